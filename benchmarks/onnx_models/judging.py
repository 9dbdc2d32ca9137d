"""Whether a result is right: exactly where it is exact, and within what rounding of the original explains elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

from benchmarks.onnx_models.noise import beyond_promise, noisy_runs, underflows
from benchmarks.onnx_models.sessions import Feed, dense

#: A difference of so many units of rounding, relative to the element, is taken without asking where it came from.
_FREE = 32.0
#: Denormal numbers that a difference may be: they are as far apart near 0 as anywhere below the normal ones.
_DENORMAL = 64
#: How much further than noise of up to 8 units a result may be: a dozen runs do not find the worst.
_FACTOR = 8.0


def difference(model: ModelProto, feed: Feed, old: Sequence[Any], new: Sequence[Any], *, finite: bool) -> str | None:
    """How results differ beyond rounding and what is promised, in words; None where they do not.

    `model` is the original; `finite` says that results were taken for finite.
    """
    apart = [i for i, (a, b) in enumerate(zip(old, new, strict=True)) if not _close(a, b)]
    if not apart:
        return None
    try:
        if beyond_promise(model, feed, finite=finite) is not None:
            return None
        small = underflows(model, feed)
    except Exception:  # noqa: BLE001 - inner values cannot be shown: then all is taken for promised
        small = False
    runs = _with_noise(model, feed)
    # What ONNX itself says: kernels of empty tensors differ from it, those of halves keep more digits between, and that
    # of Sigmoid makes 0 of what is next to 0.
    stated = _stated(model, feed)
    apart = [i for i in apart if stated is None or not _is_stated(stated[i], old[i], new[i])]
    for i in apart:
        words = _unexplained(
            old[i], new[i], [run[i] for run in runs], None if stated is None else stated[i], small=small
        )
        if words is not None:
            return f"output {model.graph.output[i].name!r}: {words}"
    return None


def _with_noise(model: ModelProto, feed: Feed) -> list[list[Any]]:
    """The outputs with noise; those there are where a result of another shape ends it."""
    found: list[list[Any]] = []
    try:
        for run in noisy_runs(model, feed):
            found.append(run)
    except Exception:  # noqa: BLE001
        pass
    return found


def _stated(model: ModelProto, feed: Feed) -> list[Any] | None:
    """The outputs by ONNX's reference evaluator, which knows no kernels; None where it lacks an operator."""
    try:
        with warnings.catch_warnings(action="ignore"):
            return [np.asarray(v) for v in ReferenceEvaluator(dense(model)).run(None, dict(feed))]
    except Exception:  # noqa: BLE001 - whatever it lacks
        return None


def _is_stated(stated: Any, old: Any, new: Any) -> bool:
    """Whether a result is what ONNX says; its shape is enough where the original's kernel has another one."""
    if np.shape(stated) != np.shape(old):
        return np.shape(stated) == np.shape(new)
    return _close(stated, new)


def _close(old: Any, new: Any) -> bool:
    """Equal in type and shape, and in value but for a few roundings."""
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return bool(_same(old, new))
    if old.dtype != new.dtype or old.shape != new.shape:
        return False
    return not _apart(old, new).any()


def _same(old: Any, new: Any) -> bool:
    if isinstance(old, list) and isinstance(new, list):
        return len(old) == len(new) and all(_close(np.asarray(a), np.asarray(b)) for a, b in zip(old, new, strict=True))
    return type(old) is type(new) and bool(np.all(old == new))


def _apart(old: Any, new: Any) -> Any:
    if old.dtype.kind != "f":
        return old != new
    info = np.finfo(old.dtype)
    with np.errstate(all="ignore"):
        a, b = old.astype(np.float64), new.astype(np.float64)
        near = np.abs(a - b) <= _FREE * float(info.eps) * np.abs(a) + _DENORMAL * float(info.smallest_subnormal)
    return ~((a == b) | (np.isnan(a) & np.isnan(b)) | (near & np.isfinite(a) & np.isfinite(b)))


def _unexplained(old: Any, new: Any, runs: Sequence[Any], stated: Any, *, small: bool) -> str | None:
    """The difference that neither noise nor what ONNX says of an element explains, in words.

    `small` says that digits were lost below the normal numbers. Kernels that keep more digits between make of each
    element what ONNX says or another number, so that a result may be the former at one place and not at the next.
    """
    if not isinstance(old, np.ndarray) or not isinstance(new, np.ndarray):
        return f"{str(old)[:80]} became {str(new)[:80]}"
    if old.dtype != new.dtype:
        return f"{old.dtype} became {new.dtype}"
    if old.shape != new.shape:
        explained = any(run.shape == new.shape for run in runs)
        return None if explained else f"shape {old.shape} became {new.shape}"
    like = [run for run in runs if run.shape == old.shape]
    if len(like) < len(runs):
        return None  # the shape itself depends on rounding
    wrong = _apart(old, new)
    for_all = np.zeros(old.shape, bool)
    if old.dtype.kind != "f":
        for run in like:
            for_all |= run != old
    elif like:
        with np.errstate(all="ignore"):
            a, b = old.astype(np.float64), new.astype(np.float64)
            spread = np.max([np.abs(run.astype(np.float64) - a) for run in like], axis=0)
            unstable = np.any(
                [(np.isfinite(r) != np.isfinite(old)) | (np.isnan(r) != np.isnan(old)) for r in like], axis=0
            )
            for_all = (np.abs(a - b) <= _FACTOR * spread) | unstable | np.isinf(spread)
    if small and old.dtype.kind == "f":
        for_all |= np.isfinite(old) & np.isfinite(new)
    wrong &= ~for_all
    if isinstance(stated, np.ndarray) and (stated.dtype, stated.shape) == (new.dtype, new.shape):
        wrong &= _apart(stated, new)
    if not wrong.any():
        return None
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{old[at]} became {new[at]} at {at} of {old.shape}, {int(wrong.sum())} elements"
