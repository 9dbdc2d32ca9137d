"""What the pages tell readers to type works: Python, shell lines, links, and notebooks."""

import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import onnx
import pytest

from benchmarks.models import load
from eqsat import cli

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *sorted((ROOT / "docs").rglob("*.md"))]
MAKE_TARGETS = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.M)


FENCED = re.compile(r"^```(python|sh)(?: (\S+))?\n(.*?)^```", re.M | re.S)
#: Pages with files to write: their steps build on one another.
TOLD = [p for p in PAGES if any(name for _, name, _ in FENCED.findall(p.read_text(encoding="utf-8")))]


def blocks(language):
    """Every fenced block of a language, by the page it stands on and its number there."""
    found = {}
    for page in PAGES:
        if page in TOLD:
            continue
        texts = re.findall(rf"^```{language}\n(.*?)^```", page.read_text(encoding="utf-8"), re.M | re.S)
        found |= {f"{page.relative_to(ROOT)}-{number}": text for number, text in enumerate(texts)}
    return found


PYTHON = blocks("python")
SHELL = [line for block in blocks("sh").values() for line in block.splitlines()]
RULES = "".join(blocks("rules").values())


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder such as `make demo` leaves behind, with the rules of the pages in mine.rules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    (tmp_path / "demo").mkdir()
    onnx.save(load("sru_text_classifier"), "demo/sru_text_classifier.onnx")
    Path("mine.rules").write_text(RULES)
    return tmp_path


@pytest.mark.parametrize("block", PYTHON)
def test_python_on_the_pages_runs(block, folder, capsys):
    exec(compile(PYTHON[block], block, "exec"), {"__name__": "page"})
    assert capsys.readouterr().out


@pytest.mark.parametrize("line", SHELL)
def test_shell_lines_on_the_pages_work(line, folder):
    program, *arguments = shlex.split(line)
    if program == "make":
        assert set(arguments) <= set(MAKE_TARGETS)
    else:
        assert program == "eqsat", f"nothing here runs {line!r}"
        before = set(Path().rglob("*"))
        assert cli.run(arguments) == 0
        written = {a for a in arguments if a.endswith((".onnx", ".json")) and Path(a) not in before}
        assert all(Path(name).stat().st_size for name in written)


@pytest.mark.parametrize("page", TOLD, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_page_that_writes_files_works_from_top_to_bottom(page, tmp_path):
    """In fresh interpreters, so that the operators it declares are not those of other tests."""
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path))), "EQSAT_EVIDENCE": str(tmp_path / "evidence")}
    environment = {**os.environ, **paths, "EQSAT_COST_TABLE": str(tmp_path / "costs.sqlite3")}
    for language, name, text in FENCED.findall(page.read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).write_text(text)
            continue
        lines = [["-c", text]] if language == "python" else [["-m", *shlex.split(t)] for t in text.splitlines()]
        for line in lines:
            line[1] = "eqsat.cli" if line[1] == "eqsat" else line[1]
            made = subprocess.run(
                [sys.executable, *line], cwd=tmp_path, env=environment, capture_output=True, text=True
            )
            assert made.returncode == 0, f"{text}\n{made.stderr}"
            assert made.stdout, text


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_decision_is_listed_in_order():
    listed = re.findall(r"\(adr/(.+?)\)", (ROOT / "docs" / "README.md").read_text())
    assert listed == sorted(p.name for p in (ROOT / "docs" / "adr").glob("*.md"))


@pytest.mark.parametrize("notebook", sorted((ROOT / "notebooks").glob("*.py")), ids=lambda p: p.stem)
def test_notebooks_run(notebook, folder, capsys):
    runpy.run_path(str(notebook))
    assert capsys.readouterr().out


def test_the_files_that_pages_name_exist():
    for page in PAGES:
        for name in re.findall(r"`((?:eqsat|tests|benchmarks|docs|notebooks)/[\w/.*{}-]+)`", page.read_text()):
            assert list(ROOT.glob(name.rstrip("/"))), f"{page.name} names {name}"
