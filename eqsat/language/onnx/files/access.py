"""Files that a model can be read from, told before anything of them is read."""

from __future__ import annotations

from pathlib import Path

from eqsat.errors import ImportModelError, nearest
from eqsat.system.files import NO_FILE, unreadable


def check_model_file(path: Path) -> None:
    """ImportModelError for a path that no model can be read from; its content is not looked at."""
    reason = unreadable(path)
    if reason is not None:
        raise refused(path, reason)


def refused(path: Path, reason: str) -> ImportModelError:
    """The error for a file that cannot be opened, with the model beside it whose name is nearest."""
    where, expected = str(path), "the path of an ONNX model"
    if reason == NO_FILE:
        return ImportModelError(reason, where=where, expected=expected)
    try:
        beside = [] if path.exists() else [p.name for p in path.parent.glob("*.onnx")]
    except (OSError, ValueError):  # a name beyond what the system can look up
        beside = []
    remedy = nearest(path.name, beside) or "check the path and its permissions"
    return ImportModelError(f"the file cannot be read: {reason}", where=where, expected=expected, remedy=remedy)
