"""Calibration data: inputs that a model is quantised on, in three disjoint parts."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from eqsat.errors import CALLERS_NOTE, BackendError, UsageError, nearest
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import DType, Graph, Sym, TensorType
from eqsat.quantisation.forms import FORMS, CalibrationArgument, check_calibration_form
from eqsat.quantisation.stored import stored_batches
from eqsat.runtime.inputs import checked_inputs

Array = np.ndarray[Any, np.dtype[Any]]
#: Values of all inputs, by name.
Batch: TypeAlias = Mapping[str, Array]

#: The most batches that are read, and the most bytes of them; at least one batch is.
MOST_BATCHES = 512
MOST_BYTES = 2**30


@dataclass(frozen=True)
class CalibrationParts:
    """Batches for ranges and error coefficients, for tightening the search, and for the reported error.

    `warning` says where parts share data or are rows of one batch; "" where they are batches of their own.
    """

    calibrate: tuple[Batch, ...]
    tighten: tuple[Batch, ...]
    report: tuple[Batch, ...]
    warning: str = ""


@dataclass(frozen=True, eq=False)
class CalibrationData:
    """Batches of inputs that fit a graph, where they are from, and a warning if not all of them were kept.

    `rows` names the inputs whose first axis counts the rows of a batch, so that a batch can be split. Arrays are copies
    that cannot be written to.
    """

    batches: tuple[Batch, ...]
    source: str
    rows: frozenset[str] = frozenset()
    warning: str = ""

    def __iter__(self) -> Iterator[Batch]:
        return iter(self.batches)

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of all batches: names, element types, shapes and elements."""
        sha = hashlib.sha256()
        for batch in self.batches:
            sha.update(f"batch of {len(batch)}\n".encode())
            for name in sorted(batch):
                array = batch[name]
                sha.update(f"{name!r} {array.dtype.name} {array.shape}\n".encode())
                if array.dtype == object:
                    sha.update(repr(array.tolist()).encode())
                elif array.size:
                    sha.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        return sha.hexdigest()

    @cached_property
    def parts(self) -> CalibrationParts:
        """The batches dealt to three parts in turn.

        Fewer than three are split by rows, dealt in turn too, where all inputs that count rows have enough: one batch
        into three, of two the second into two. Where they cannot be split, parts share a batch, which is said.
        """
        if len(self.batches) >= 3:
            return CalibrationParts(self.batches[0::3], self.batches[1::3], self.batches[2::3])
        *first, last = self.batches
        wanted = 3 - len(first)
        if self._row_count(last) >= wanted:
            split = [*first, *(self._dealt(last, start, wanted) for start in range(wanted))]
            warning = (
                "two batches: tightening and report have rows of the second"
                if first
                else "one batch: parts are rows of it"
            )
        else:
            split = [*first, *[last] * wanted]
            warning = (
                "two batches: tightening and report share the second" if first else "one batch: all parts share it"
            )
        calibrate, tighten, report = split
        return CalibrationParts((calibrate,), (tighten,), (report,), f"calibration data of {warning}")

    def _row_count(self, batch: Batch) -> int:
        return min((batch[name].shape[0] for name in self.rows), default=0)

    def _dealt(self, batch: Batch, start: int, parts: int) -> Batch:
        return {name: array[start::parts] if name in self.rows else array for name, array in batch.items()}


def _counted(batches: int) -> str:
    return "one batch" if batches == 1 else f"{batches} batches"


def read_calibration(given: CalibrationArgument, graph: Graph) -> CalibrationData:
    """Calibration data for a graph: an iterable of dicts of inputs, one dict, or the path of a file or folder.

    An iterable is gone through once, and no further than `MOST_BATCHES` batches or `MOST_BYTES` bytes: `warning` says
    so if it had more. Files are described in `eqsat/quantisation/stored.py`. Named dims may differ between batches.
    Data that were read are checked against the graph and returned, so that several runs share what one iterable gave.
    UsageError for data of another form, for no batch, and for a batch that does not fit the graph's inputs, is empty or
    has elements that are not finite.
    """
    if isinstance(given, CalibrationData):
        for index, batch in enumerate(given.batches):
            _fitted(batch, graph, f"{given.source}, batch {index}")
        return given
    tensors = {name: graph.type(name) for name in graph.inputs}
    for name, type in tensors.items():
        if not isinstance(type, TensorType):
            raise UsageError(
                f"calibration of a model whose input {name!r} is {type}",
                where=graph.name,
                expected="inputs that are tensors",
            )
    source = source_of(given)
    batches: list[Batch] = []
    total, warning = 0, ""
    for index, inputs in enumerate(_each(given, graph)):
        if index == MOST_BATCHES:
            warning = f"{source} has more than {MOST_BATCHES} batches: the first {MOST_BATCHES} are used"
            break
        batch = _checked(inputs, graph, f"{source}, batch {index}")
        total += sum(array.nbytes for array in batch.values())
        if batches and total > MOST_BYTES:
            warning = f"{source} has more than {MOST_BYTES} bytes: the first {_counted(index)} are used"
            break
        batches.append(batch)
    if not batches:
        raise UsageError("no batch", where=source, expected=FORMS)
    return CalibrationData(tuple(batches), source, _inputs_of_rows(graph), warning)


def source_of(given: CalibrationArgument) -> str:
    """The name of calibration data in messages and reports: their path, or "calibration" for data of the caller's."""
    if isinstance(given, CalibrationData):
        return given.source
    return str(given) if isinstance(given, str | os.PathLike) else "calibration"


def _each(given: CalibrationArgument, graph: Graph) -> Iterator[Any]:
    """The batches, not checked yet."""
    check_calibration_form(given)
    if isinstance(given, str | os.PathLike):
        return stored_batches(Path(given), graph)
    return iter([given]) if isinstance(given, Mapping) else _noted(given)


def _noted(given: Iterable[Any]) -> Iterator[Any]:
    """The elements of an iterable of the caller's, whose own exceptions are told from eqsat's by a note."""
    try:
        yield from given
    except Exception as error:
        error.add_note(CALLERS_NOTE)
        raise


def _fitted(inputs: Any, graph: Graph, where: str) -> dict[str, Any]:
    """The inputs of one batch as arrays; UsageError where they do not fit the graph."""
    if not isinstance(inputs, Mapping):
        raise UsageError(
            f"a batch is a {type(inputs).__name__}", where=where, expected="a dict of arrays by input name"
        )
    for name in inputs:
        if name not in graph.inputs:
            raise UsageError(
                f"unknown input {name!r}",
                where=where,
                expected="inputs " + (", ".join(graph.inputs) or "none"),
                remedy=nearest(name, graph.inputs),
            )
    try:
        return checked_inputs(graph, {name: _viewed(array, graph.type(name)) for name, array in inputs.items()})
    except BackendError as error:
        raise UsageError(error.what, where=where, expected=error.expected, remedy=error.remedy) from error


def _checked(inputs: Any, graph: Graph, where: str) -> Batch:
    """A copy of the inputs of one batch; UsageError where they do not fit the graph, or are empty or not finite."""
    batch = {name: np.array(array) for name, array in _fitted(inputs, graph, where).items()}
    for name, array in batch.items():
        array.flags.writeable = False
        # A cache of keys of no length is an input that holds nothing, beside others that do.
        if not array.size and (0 in array.shape[:1] or not any(other.size for other in batch.values())):
            raise UsageError(f"input {name!r} of shape {list(array.shape)} is empty", where=where, expected="elements")
        if array.dtype != object and not np.isfinite(array).all():
            fault = "NaN" if np.isnan(array).any() else "an infinity"
            raise UsageError(f"input {name!r} has {fault}", where=where, expected="finite numbers")
    return batch


def _viewed(array: Any, type: Any) -> Any:
    """An array whose element type NumPy's files do not name, such as bfloat16, in the type that the input has."""
    if isinstance(array, np.ndarray) and array.dtype.kind == "V" and isinstance(type, TensorType):
        wanted = type.dtype.numpy
        if type.dtype is not DType.STRING and array.dtype.names is None and array.dtype.itemsize == wanted.itemsize:
            return array.view(wanted)
    return array


def _inputs_of_rows(graph: Graph) -> frozenset[str]:
    """The inputs whose first axis is a named dim that counts independent rows.

    That is the first dim of every output, at no other place in an input, of any size that is asked for, and of tensors
    of rank 2 or more: a model of one sequence may have its length first.
    """
    results = [graph.type(value) for value in graph.outputs.values()]
    first = {type.shape[0] if isinstance(type, TensorType) and type.shape else None for type in results}
    dim = first.pop() if len(first) == 1 else None
    if not isinstance(dim, Sym) or dim.is_anonymous or len(dim.names()) != 1 or dim != Sym.named(*dim.names()):
        return frozenset()
    rows = set()
    for name in graph.inputs:
        type = graph.type(name)
        shape = type.shape if isinstance(type, TensorType) else None
        if shape is None:
            return frozenset()
        counted = len(shape) > 1 and shape[0] == dim
        if any(isinstance(one, Sym) and one.names() & dim.names() for one in shape[counted:]):
            return frozenset()
        if counted:
            rows.add(name)
    # A dim may always be said to be present; other constraints would hold for some of its sizes.
    constraints = [one for one in sizing_of(graph).constraints if one.kind != "present"]
    return frozenset() if any(dim.names() & one.names for one in constraints) else frozenset(rows)
