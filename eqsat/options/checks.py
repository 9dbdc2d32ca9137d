"""Checks of single options, made before a model is read: each returns the option in one form, or raises UsageError."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, TypeVar, cast, get_args

from eqsat.errors import CALLERS_NOTE, UsageError, nearest

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from eqsat.costs.devices.device import DeviceArgument
    from eqsat.costs.kernels.precision import PrecisionPolicy
    from eqsat.costs.table.table import CostTable
    from eqsat.language.sizes.buckets import Buckets
    from eqsat.language.terms.state import State
    from eqsat.rewrites.rules.rule import Trust

Called = TypeVar("Called", bound=Callable[..., Any])


def anything(_name: str, given: Any) -> Any:
    """An option that is checked where it is used."""
    return given


def device(name: str, given: Any) -> DeviceArgument:
    """A device, by its name, by the path of its file, or itself; CostError for one that there is not."""
    from eqsat.costs.devices.device import Device

    if not isinstance(given, str | os.PathLike | Device):
        raise UsageError(f"{name} = {given!r}", expected="the name of a device, or the path of its file")
    Device.of(given)
    return given


def switch(name: str, given: Any) -> bool:
    """True or False."""
    if not isinstance(given, bool):
        raise UsageError(f"{name} = {given!r}", expected="True or False")
    return given


def switch_or_none(name: str, given: Any) -> bool | None:
    """True, False or None."""
    if given is not None and not isinstance(given, bool):
        raise UsageError(f"{name} = {given!r}", expected="True, False or None")
    return given


def count(name: str, given: Any) -> int:
    """A whole number above 0."""
    if not _is(given, Integral) or given < 1:
        raise UsageError(f"{name} = {given!r}", expected="a whole number above 0")
    return int(given)


def whole(name: str, given: Any) -> int:
    """A whole number of 0 or more."""
    if not _is(given, Integral) or given < 0:
        raise UsageError(f"{name} = {given!r}", expected="a whole number of 0 or more")
    return int(given)


def seconds(name: str, given: Any) -> float:
    """Seconds above 0."""
    if not _is(given, Real) or not given > 0:
        raise UsageError(f"{name} = {given!r}", expected="seconds, a number above 0")
    return float(given)


def steps(name: str, given: Any) -> int | None:
    """A whole number of steps, None to limit seconds."""
    if given is not None and (not _is(given, Integral) or given < 1):
        raise UsageError(f"{name} = {given!r}", expected="a whole number above 0, or None to limit seconds")
    return None if given is None else int(given)


def threads(_name: str, given: Any) -> int:
    """A number of threads that a runtime here may be given."""
    from eqsat.runtime.threads import check_threads

    check_threads(given)
    return int(given)


def opset(name: str, given: Any) -> int | None:
    """An opset that models are read and written in, None for the model's own."""
    if given is None:
        return None
    from eqsat.language.onnx.files.reader import OLDEST_OPSET, newest_opset

    if not _is(given, Integral) or not OLDEST_OPSET <= given <= newest_opset():
        raise UsageError(f"{name} = {given!r}", expected=f"an opset from {OLDEST_OPSET} to {newest_opset()}")
    return int(given)


def quantised(name: str, given: Any) -> Any:
    """A form of operators on integers."""
    from eqsat.language.graphs.operators_on_integers import check_form

    check_form(name, given)
    return given


def over_sizes(name: str, given: Any) -> Any:
    """A way to weigh sizes against each other."""
    from eqsat.runtime.examples import OverSizes

    known = get_args(OverSizes)
    if given not in known:
        raise UsageError(f"{name} = {given!r}", expected=" or ".join(map(repr, known)), remedy=nearest(given, known))
    return given


def partitioner(name: str, given: Any) -> str:
    """The name of a way to cut graphs."""
    from eqsat.options.choices import partitioners

    known = tuple(partitioners())
    if given not in known:
        raise UsageError(f"{name} = {given!r}", expected=" or ".join(map(repr, known)), remedy=nearest(given, known))
    return str(given)


def executor(name: str, given: Any) -> Executor | int | None:
    """An executor, or a number of processes; None for this process."""
    from concurrent.futures import Executor

    if given is not None and not isinstance(given, Executor):
        if not _is(given, Integral) or given < 1:
            raise UsageError(
                f"{name} = {given!r}",
                expected="a concurrent.futures.Executor, or a number of processes above 0",
                remedy="of a Dask client that is client.get_executor()",
            )
        return int(given)
    return given


def term(_name: str, given: Any) -> str:
    """A term of costs."""
    from eqsat.costs.model.amounts import check_term

    check_term(given)
    return str(given)


def precision(_name: str, given: Any) -> str | PrecisionPolicy:
    """A policy of precision, or the name of one."""
    from eqsat.costs.kernels.precision import policy

    policy(given)
    return cast("str | PrecisionPolicy", given)


def layouts(name: str, given: Any) -> Any:
    """Names of layouts, or "auto"."""
    from eqsat.language.terms.state import check_layouts

    if isinstance(given, str):
        given_names: Sequence[str] = () if given == "auto" else (given,)
    elif isinstance(given, Sequence):
        given_names = given
    else:
        raise UsageError(f"{name} = {given!r}", expected="'auto', or names of layouts such as ('row', 'column')")
    check_layouts(tuple(given_names))
    return given


def objective(_name: str, given: Any) -> Any:
    """Weights of terms, None for time alone."""
    from eqsat.costs.model.cost import check_objective

    if given is not None:
        check_objective(given)
    return given


def trust(name: str, given: Any) -> Trust:
    """The least that a rule has to be."""
    from eqsat.options.choices import trusts

    known = trusts()
    if given not in known:
        raise UsageError(f"{name} = {given!r}", expected=" or ".join(map(repr, known)), remedy=nearest(given, known))
    return cast("Trust", given)


def extractor(_name: str, given: Any) -> str:
    """The name of an extractor."""
    from eqsat.extract import extractor_of

    extractor_of(given)
    return str(given)


def alpha(name: str, given: Any) -> float | None:
    """A factor, or None."""
    if given is not None and not _is(given, Real):
        raise UsageError(f"{name}={given!r}", expected="a factor above 0, such as 1.05")
    return None if given is None else float(given)


def extractor_reads_alpha(extractor: str, alpha: float | None) -> None:
    """UsageError for an alpha with an extractor that does not read it."""
    if alpha is not None and extractor != "backtracking":
        raise UsageError(
            f"alpha={alpha!r} with extractor={extractor!r}",
            expected="alpha for the search that reads it",
            remedy="leave it out, or pass extractor='backtracking'",
        )


def device_has_layouts(given: DeviceArgument, names: str | Sequence[str]) -> None:
    """UsageError for a layout that a device has no kernels for."""
    from eqsat.costs.devices.device import Device

    device = Device.of(given)
    layouts_of(names, device.layouts, device.name)


def called(name: str, given: Called | None) -> Called | None:
    """A function of the caller's, whose own exceptions are told from eqsat's by a note; None for none."""
    if given is None:
        return None
    if not callable(given):
        raise UsageError(f"{name} = {given!r}", expected="a function, or None")

    @wraps(given)
    def noted(*arguments: Any, **more: Any) -> Any:
        try:
            return given(*arguments, **more)
        except Exception as error:
            if CALLERS_NOTE not in getattr(error, "__notes__", ()):
                error.add_note(CALLERS_NOTE)
            raise

    return noted  # type: ignore[return-value]


def calibration(_name: str, given: Any) -> Any:
    """Calibration data, their path, or None; they are read with the model."""
    from eqsat.quantisation.forms import check_calibration_form

    if given is not None:
        check_calibration_form(given)
    return given


def outputs(name: str, given: Any) -> Sequence[str] | None:
    """Names of outputs, None for all."""
    if given is None or (isinstance(given, Sequence) and not isinstance(given, str) and given):
        return given
    raise UsageError(f"{name} = {given!r}", expected="a list of one name or more")


def table(name: str, given: Any) -> Any:
    """A table, the path of one, or None for the user's own."""
    if given is None or isinstance(given, str | os.PathLike):
        return given
    from eqsat.costs.table.table import CostTable

    if not isinstance(given, CostTable):
        raise UsageError(f"{name} = {given!r}", expected="a CostTable, or the path of one")
    return given


def opened_table(given: CostTable | str | os.PathLike[str] | None) -> CostTable:
    """The table that is given, or that of a file; the user's own where there is none."""
    from eqsat.costs.table.table import CostTable

    return given if isinstance(given, CostTable) else CostTable(None if given is None else os.fspath(given))


def limits(name: str, given: Mapping[str, float | str] | None) -> dict[str, float]:
    """The most of each term: bytes, seconds or a count."""
    _check_mapping(name, given, "{'peak_memory': '8 GB', 'launches': 40}")
    from eqsat.costs.model.amounts import amount

    return {term: amount(term, most) for term, most in (given or {}).items()}


def boundary(name: str, given: Mapping[str, State] | None) -> dict[str, State]:
    """The states of inputs and outputs."""
    from eqsat.language.terms.state import State, check_layouts

    _check_mapping(name, given, "{'x': State('column', 'float16')}")
    for value, state in (given or {}).items():
        if not isinstance(state, State):
            raise UsageError(f"{name}[{value!r}] = {state!r}", expected="a State, such as State('column', 'float16')")
        check_layouts((state.layout,))
    return dict(given or {})


def buckets(_name: str, given: Any) -> Buckets | None:
    """Buckets, None for none."""
    from eqsat.language.sizes.buckets import Buckets

    return given if given is None or isinstance(given, Buckets) else Buckets.of(given)


def layouts_of(given: str | Sequence[str], known: tuple[str, ...], device: str) -> tuple[str, ...]:
    """The layouts that values may be held in on a device that has kernels for those `known`; row-major always."""
    layouts("layouts", given)
    if isinstance(given, str):
        given = known if given == "auto" else (given,)
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
