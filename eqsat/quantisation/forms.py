"""Forms that calibration data are given in, told apart before anything is read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from eqsat.errors import UsageError
from eqsat.system.files import reason_of

#: Batches of inputs by name, as `CalibrationData` are too, one such batch, or the path of a file or folder of some.
CalibrationArgument: TypeAlias = Iterable[Mapping[str, Any]] | Mapping[str, Any] | str | Path

#: The forms of files, and all of them, as messages state them.
STORED_FORMS = "an .npz file of arrays by input name, or a folder of .npy files named by input"
FORMS = "dicts of arrays by input name, one such dict, or the path of an .npz file or of a folder of .npy files"


def check_calibration_form(given: Any) -> None:
    """UsageError for calibration data that are of no form, and for a path at which there is no `.npz` or folder."""
    if isinstance(given, str | os.PathLike):
        _check_path(Path(given))
    elif isinstance(given, bytes) or hasattr(given, "__array__") or not isinstance(given, Iterable):
        raise UsageError(f"calibration = {type(given).__name__}", expected=FORMS)


def _check_path(path: Path) -> None:
    if path.is_dir():
        return
    try:
        with path.open("rb") as file:
            beginning = file.read(2)
    except (OSError, ValueError) as error:
        fault = f"the file cannot be read: {reason_of(error)}"
        raise UsageError(fault, where=str(path), expected=STORED_FORMS) from error
    if beginning != b"PK":
        raise UsageError("not an .npz file", where=str(path), expected=STORED_FORMS, remedy="numpy.savez writes one")
