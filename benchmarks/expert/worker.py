"""Cases in a process of their own."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from benchmarks.expert.cases import CASES
from benchmarks.expert.outcomes import measured


def begin(folder: str) -> None:
    """Use a cost table that nothing was measured into."""
    os.environ["EQSAT_COST_TABLE"] = str(Path(folder) / f"{os.getpid()}.db")


def row_of(number: int) -> dict[str, Any]:
    """The row of a case by its number; one that fails says by what."""
    case = CASES[number]
    try:
        return measured(case)
    except Exception as error:  # noqa: BLE001 - a case that fails is a row of the table
        return {"group": case.group, "name": case.name, "failed": f"{type(error).__name__}: {error}"[:300]}
