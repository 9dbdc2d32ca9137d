"""Analyses that stand for slow, failing and odd ones in a process of their own."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError


class NoIslpy(MetaPathFinder):
    """An import hook of an environment without islpy."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Refuse islpy, and leave other modules to other finders."""
        if fullname.split(".")[0] == "islpy":
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


def sleep(seconds: float) -> None:
    """Take long."""
    time.sleep(seconds)


def crash() -> None:
    """Fail by what is no judgement."""
    raise ZeroDivisionError("1 / 0")


def refuse() -> None:
    """Find a fault."""
    raise IllegalScheduleError("c is read before it is written")


def answer(value: object) -> object:
    """Return a value."""
    return value


def end() -> None:
    """End the process without an answer."""
    sys.exit(3)


def import_without_islpy() -> None:
    """Import the judge where there is no islpy."""
    sys.meta_path.insert(0, NoIslpy())
    __import__("eqsat.runtime.kernels.polyhedral.legality")
