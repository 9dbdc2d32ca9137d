"""Arguments of `optimize` and `pareto`, checked before a model is read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from numbers import Integral, Real
from typing import Any

from eqsat.costs.model.amounts import amount
from eqsat.costs.table.table import CostTable
from eqsat.errors import UsageError
from eqsat.language.terms.state import State, check_layouts
from eqsat.runtime.threads import check_threads


def check_budget(node_limit: int, time_limit: float, threads: int, seed: int, steps: int | None = None) -> None:
    """UsageError for a limit that leaves nothing to do, and for what is no number."""
    if not _is(node_limit, Integral) or node_limit < 1:
        raise UsageError(f"node_limit = {node_limit!r}", expected="a whole number above 0")
    check_threads(threads)
    if not _is(time_limit, Real) or not time_limit > 0:
        raise UsageError(f"time_limit = {time_limit!r}", expected="seconds, a number above 0")
    if steps is not None and (not _is(steps, Integral) or steps < 1):
        raise UsageError(f"steps = {steps!r}", expected="a whole number above 0, or None to limit seconds")
    if not _is(seed, Integral) or seed < 0:
        raise UsageError(f"seed = {seed!r}", expected="a whole number of 0 or more")


def check_opset(opset: int | None) -> None:
    """UsageError for an opset that nothing is read or written in."""
    if opset is None:
        return
    from eqsat.language.onnx.files.reader import OLDEST_OPSET, newest_opset

    if not _is(opset, Integral) or not OLDEST_OPSET <= opset <= newest_opset():
        raise UsageError(f"opset = {opset!r}", expected=f"an opset from {OLDEST_OPSET} to {newest_opset()}")


def check_calls(**functions: Any) -> None:
    """UsageError for what is to be called and cannot be."""
    for name, given in functions.items():
        if given is not None and not callable(given):
            raise UsageError(f"{name} = {given!r}", expected="a function, or None")


def check_flags(**flags: Any) -> None:
    """UsageError for a switch that is neither on nor off."""
    for name, given in flags.items():
        if not isinstance(given, bool):
            raise UsageError(f"{name} = {given!r}", expected="True or False")


def check_finite_math(given: object) -> None:
    """UsageError for what says neither that all numbers are finite, nor that they need not be, nor nothing."""
    if given is not None and not isinstance(given, bool):
        raise UsageError(f"finite_math = {given!r}", expected="True, False or None")


def check_names(**names: Any) -> None:
    """UsageError for what is no name."""
    for name, given in names.items():
        if not isinstance(given, str):
            raise UsageError(f"{name} = {given!r}", expected="a name")


def check_outputs(outputs: Sequence[str] | None) -> None:
    """UsageError for outputs that are no names."""
    if outputs is None or (isinstance(outputs, Sequence) and not isinstance(outputs, str) and outputs):
        return
    raise UsageError(f"outputs = {outputs!r}", expected="a list of one name or more")


def table_of(given: CostTable | str | os.PathLike[str] | None) -> CostTable:
    """The table that is given, or that of a file; the user's own where there is none."""
    if isinstance(given, CostTable):
        return given
    if given is None or isinstance(given, str):
        return CostTable(given)
    if isinstance(given, os.PathLike):
        return CostTable(os.fspath(given))
    raise UsageError(f"table = {given!r}", expected="a CostTable, or the path of one")


def bounds_of(given: Mapping[str, float | str] | None) -> dict[str, float]:
    """The most of each term: bytes, seconds or a count."""
    _check_mapping("limits", given, "{'peak_memory': '8 GB', 'launches': 40}")
    return {term: amount(term, most) for term, most in (given or {}).items()}


def boundary_of(given: Mapping[str, State] | None) -> dict[str, State]:
    """The states of inputs and outputs, where they are some."""
    _check_mapping("boundary", given, "{'x': State('column', 'float16')}")
    for name, state in (given or {}).items():
        if not isinstance(state, State):
            raise UsageError(f"boundary[{name!r}] = {state!r}", expected="a State, such as State('column', 'float16')")
        check_layouts((state.layout,))
    return dict(given or {})


def layouts_of(given: str | Sequence[str], known: tuple[str, ...], device: str) -> tuple[str, ...]:
    """The layouts that values may be held in on a device that has kernels for those `known`; row-major always."""
    if isinstance(given, str):
        given = known if given == "auto" else (given,)
    if not isinstance(given, Sequence):
        raise UsageError(f"layouts = {given!r}", expected="'auto', or names of layouts such as ('row', 'column')")
    check_layouts(tuple(given))
    missing = [name for name in given if name not in known]
    if missing:
        raise UsageError(
            f"layout {missing[0]!r} on {device}",
            expected="layouts it has kernels for: " + ", ".join(known),
            remedy="layouts='auto' takes them all",
        )
    return tuple(dict.fromkeys(("row", *given)))


def _is(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _check_mapping(name: str, given: Any, example: str) -> None:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{name} = {given!r}", expected=f"a mapping, such as {example}")
