"""Pages with files to write: their steps build on one another, and run in fresh interpreters."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
FENCED = re.compile(r"^```(python|sh)(?: (\S+))?\n(.*?)^```", re.M | re.S)


def tells_files(page: Path) -> bool:
    """Whether a page has files for its reader to write."""
    return any(name for _, name, _ in FENCED.findall(page.read_text(encoding="utf-8")))


def surroundings(folder: Path) -> dict[str, str]:
    """The environment of whoever follows a page in a folder: its files can be imported, its evidence and costs stay."""
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, folder))), "EQSAT_EVIDENCE": str(folder / "evidence")}
    return {**os.environ, **paths, "EQSAT_COST_TABLE": str(folder / "costs.sqlite3")}


def follow(page: Path, folder: Path) -> None:
    """Does what a page says from top to bottom, in fresh interpreters, so that operators it declares are no others'."""
    for language, name, text in FENCED.findall(page.read_text(encoding="utf-8")):
        if name:
            (folder / name).write_text(text)
            continue
        lines = [["-c", text]] if language == "python" else [["-m", *shlex.split(t)] for t in text.splitlines()]
        for line in lines:
            line[1] = "eqsat.cli" if line[1] == "eqsat" else line[1]
            command, environment = [sys.executable, *line], surroundings(folder)
            made = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
            assert made.returncode == 0, f"{text}\n{made.stderr}"
            assert made.stdout, text
