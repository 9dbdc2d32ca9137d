"""The table of docs/faults.md, made from the results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.faults.kinds import KINDS

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "faults.json"
PAGE = ROOT / "docs" / "faults.md"
BEGIN, END = "<!-- from benchmarks/results/faults.json -->\n", "<!-- end -->\n"
_HEADINGS = ("Fault", "Procedure", "Requirement", "Tried", "Failed", "Longest", "Most memory", "In the suite")
_HEADINGS += ("Command",)


def table(document: dict[str, Any]) -> str:
    """The table in Markdown, and where its figures were measured."""
    rows = [_HEADINGS, tuple("--:" if h in _HEADINGS[3:7] else "---" for h in _HEADINGS)]
    for name, found in document["kinds"].items():
        longest, memory = found["longest"]["seconds"], found["memory"]["mebibytes"]
        figures = (
            f"{found['tries']:,}".replace(",", " "),
            str(found["failed"]),
            f"{longest:.1f} s",
            f"{memory:.0f} MiB",
        )
        rows.append((name, found["tried"], found["holds"], *figures, f"`{KINDS[name].test}`", _command(name)))
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([*lines, "", _measured(document)]) + "\n"


def _command(name: str) -> str:
    return f"`python -m benchmarks.faults --only {repr(name) if ' ' in name else name}`"


def _measured(document: dict[str, Any]) -> str:
    """Where and when, of all kinds; they may have been tried on different days."""
    kinds = document["kinds"].values()
    machines = dict.fromkeys(_words(k["machine"]) for k in kinds)
    seeds = ", ".join(dict.fromkeys(str(k["seed"]) for k in kinds))
    hours = sum(k["seconds"] for k in kinds) / 3600
    return f"Tried with seed {seeds} on {'; '.join(machines)}; {hours:.1f} h of tries."


def _words(machine: dict[str, Any]) -> str:
    note = f", {machine['note']}" if machine["note"] else ""
    user = "by root" if machine["root"] else "by a user"
    full = "with file systems mounted for the purpose" if machine["mounts"] else "with limits on the size of files"
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    where = f"{machine['cores']} cores of {machine['cpu']}{note}, {machine['day']}, Python {machine['python']}"
    return f"{where}, {versions}, {user}, {full}, clocks by {machine['clock']}"


def rewritten(page: str, document: dict[str, Any]) -> str:
    """The page with its table made anew; ValueError where it has no place for one."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN.strip()} and {END.strip()}")
    return f"{before}{BEGIN}\n{table(document)}\n{END}{after}"
