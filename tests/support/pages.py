"""Pages with files to write: their steps build on one another."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import pytest

from eqsat import cli
from eqsat.costs.table import shipped
from eqsat.language.ops import OPS

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(python|sh)(?: (\S+))?\n(.*?)^```", re.M | re.S)
#: A declaration of an operator.
DECLARES = re.compile(r"^\s*@eqsat\.op\b", re.M)


def tells_files(page: Path) -> bool:
    """Whether a page has files for its reader to write."""
    return any(name for _, name, _ in FENCED.findall(page.read_text(encoding="utf-8")))


def surroundings(folder: Path) -> dict[str, str]:
    """Variables of whoever follows a page in a folder: its files can be imported, its evidence and costs stay there."""
    path = os.pathsep.join(map(str, (ROOT, folder)))
    return {
        "PYTHONPATH": path,
        "EQSAT_EVIDENCE": str(folder / "evidence"),
        "EQSAT_COST_TABLE": str(folder / "costs.sqlite3"),
    }


def follow(page: Path, folder: Path, done: Callable[[str], None] = lambda _step: None, *, fresh: bool = False) -> None:
    """Does what a page says from top to bottom; `done` is called with each step after it.

    In fresh interpreters where that is asked for, and where its code declares operators, so that they are not those of
    other tests, else in this one, which need not load everything again for each step.
    """
    blocks = FENCED.findall(page.read_text(encoding="utf-8"))
    follow_step = _fresh if fresh or any(DECLARES.search(block) for _, _, block in blocks) else _here
    known = set(OPS)
    with _inside(folder):
        for language, name, block in blocks:
            if name:
                (folder / name).write_text(block)
                continue
            for step in [block] if language == "python" else block.splitlines():
                assert follow_step(step, language), step
                done(step)
    assert set(OPS) == known, f"{page.name} declares operators here"


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """The folder as the current one, whose modules are forgotten afterwards."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in surroundings(folder).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        patch.setattr(shipped, "FOLDER", resources.files("eqsat.costs") / "devices")
        _forget_shipped()
        try:
            yield
        finally:
            _forget_shipped()
            for name in set(sys.modules) - before:
                if (folder / f"{name}.py").exists():
                    del sys.modules[name]


def _forget_shipped() -> None:
    """Readers see the costs that come with eqsat, which other tests do not."""
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


def _here(step: str, language: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        if language == "python":
            exec(compile(step, "page", "exec"), {"__name__": "page"})
        else:
            program, *arguments = shlex.split(step)
            assert program == "eqsat", step
            assert cli.run(arguments) == 0, step
    return shown.getvalue()


def _fresh(step: str, language: str) -> str:
    words = ["-c", step] if language == "python" else ["-m", "eqsat", *shlex.split(step)[1:]]
    assert language == "python" or step.startswith("eqsat "), step
    made = subprocess.run([sys.executable, *words], capture_output=True, text=True)
    assert made.returncode == 0, f"{step}\n{made.stderr}"
    return made.stdout
