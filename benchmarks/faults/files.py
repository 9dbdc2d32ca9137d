"""Changed model files: read, and optimised where they read; an error of ours is the worst that may come of one."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

from benchmarks.faults.mutation import mutated
from benchmarks.faults.samples import DATA, DATA_FILE, sample
from benchmarks.faults.watch import Bounds, Found
from eqsat.errors import EqsatError

#: A file that is refused, read or optimised takes no longer, and its process no more memory.
BOUNDS = Bounds(seconds=10.0, memory=1024)
#: The limits that a file which reads is optimised with.
LIMITS: dict[str, Any] = {"measure": False, "node_limit": 150, "time_limit": 1.5}


def attempt(number: int, seed: int, folder: Path) -> Found:
    """One changed file, with the file beside it that it keeps a tensor in."""
    rng = random.Random(f"{seed} {number}")
    (folder / DATA_FILE).write_bytes(DATA)
    path = folder / "model.onnx"
    path.write_bytes(mutated(sample(rng), rng))
    return read_and_optimise(path)


def read_and_optimise(path: Path) -> Found:
    """Reads a file, optimises what it holds, writes that and reads it again."""
    import eqsat
    from eqsat.language.onnx.read.importer import load

    try:
        load(path)
    except EqsatError as error:
        return "refused", None if str(error) else "an error without a message"
    target = path.with_name("optimised.onnx")
    try:
        eqsat.optimize(path, **LIMITS).save(target)
    except EqsatError as error:
        return "read, not optimised", None if str(error) else "an error without a message"
    try:
        load(target)
    except EqsatError as error:
        if _contradicts_itself(path):
            return "optimised, contradictory as it came", None
        return "unreadable result", f"what was written is not read: {error}"
    return "optimised", None


def _contradicts_itself(path: Path) -> bool:
    """Whether onnx finds a model ill-formed: what it states may be refuted once a part that hid it is gone."""
    import onnx

    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError, ValueError):
        return True
    return False
