"""Regions of a model that runtimes run as one kernel on integers: an operator between dequantisation and quantisation.

The kernels are those that values held in integers are computed by (`Implementation` with the arithmetic "int8"), under
whose keys they are measured.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from eqsat.costs.kernels.fusion import FusedOperator
from eqsat.costs.kernels.groups import Groups
from eqsat.language.graphs.quantised import INTEGER
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import PLAIN, DType, Implementation, State, TensorType
from eqsat.language.terms.state import QUANTISED

Value = TypeVar("Value", bound=Hashable)

#: The layout in which runtimes hold images of integers.
_IMAGES = "nhwc"
#: The operators of quantised models whose operands are integers, and the operators of float32 that they stand for.
STATED = {"qlinear_conv": "conv", "qlinear_matmul": "matmul"}


@dataclass(frozen=True)
class Made(Generic[Value]):
    """An operator where it is applied: `place` says where, `operands` and `result` are the values there."""

    place: Any
    op: str
    attrs: Mapping[str, Any]
    operands: tuple[Value | None, ...]
    result: Value


class ApplicationSpace(Protocol[Value]):
    """Values with the operators that make them: a graph, where it is one, or an e-graph."""

    def every(self) -> Iterable[Made[Value]]:
        """All applications."""

    def makers(self, value: Value) -> Iterable[Made[Value]]:
        """The applications that make a value."""

    def type(self, value: Value) -> TensorType | None:
        """The type of a value."""

    def is_constant(self, value: Value) -> bool:
        """True for a value that constants alone decide."""


@dataclass(frozen=True)
class IntegerRegion(Generic[Value]):
    """Dequantisations by the operand that each makes, the operator that reads them, and what follows it.

    `clamp` holds the results between bounds, `end` quantises them; without it they are floats.
    """

    restored: tuple[tuple[int, Made[Value]], ...]
    core: Made[Value]
    clamp: Made[Value] | None = None
    end: Made[Value] | None = None

    @property
    def steps(self) -> tuple[Made[Value], ...]:
        """All applications, operands first, each once."""
        inner = dict.fromkeys(made.place for _, made in self.restored)
        before = [next(made for _, made in self.restored if made.place == place) for place in inner]
        return (*before, self.core, *(one for one in (self.clamp, self.end) if one is not None))

    def operators(self, space: ApplicationSpace[Value], images: Collection[Value]) -> tuple[FusedOperator, ...]:
        """The kernel on integers that the region runs as: the operator, and bounds after it."""
        held = dict(self.restored)
        made = PLAIN
        if self.end is not None:
            numbers = space.type(self.end.result)
            made = _state(self.core.result, numbers.dtype if numbers is not None else DType.UINT8, images)
        taken: list[State] = []
        const: list[bool] = []
        for index, operand in enumerate(self.core.operands):
            source = held[index].operands[0] if index in held else operand
            numbers = space.type(source) if source is not None else None
            const.append(source is not None and space.is_constant(source))
            integers = index in held and numbers is not None and numbers.dtype.value in QUANTISED
            if not integers or numbers is None or operand is None:
                taken.append(PLAIN)
            else:
                taken.append(State("row", numbers.dtype.value) if const[-1] else _state(operand, numbers.dtype, images))
        core = _member(space, self.core, taken, made, const, (None,) * len(taken))
        if self.clamp is None:
            return (core,)
        bounds = len(self.clamp.operands) - 1
        after = [made, *(PLAIN,) * bounds], [False, *(True,) * bounds], (0, *(None,) * bounds)
        return core, _member(space, self.clamp, after[0], made, after[1], after[2])


def _state(value: Hashable, dtype: DType, images: Collection[Any]) -> State:
    return State(_IMAGES if value in images else "row", dtype.value)


def _member(
    space: ApplicationSpace[Any],
    made: Made[Any],
    taken: Sequence[State],
    result: State,
    const: Sequence[bool],
    links: tuple[int | None, ...],
) -> FusedOperator:
    types = tuple(None if v is None else space.type(v) for v in made.operands)
    way = Implementation(tuple(taken), result, INTEGER)
    return FusedOperator(made.op, made.attrs, types, (space.type(made.result),), tuple(const), way, links)


def regions(space: ApplicationSpace[Value], integers: Collection[str]) -> Iterator[IntegerRegion[Value]]:
    """The regions around operators that a device runs on integers."""
    for made in space.every():
        if made.op == "quantize_linear" and _is_whole(space, made, made.result):
            for inner in space.makers(_first(made)):
                yield from _around(space, integers, inner, None, made)
                declared = OPS.get(inner.op)
                if declared is not None and declared.clamps and all(_is_settled(space, v) for v in inner.operands[1:]):
                    for core in space.makers(_first(inner)):
                        yield from _around(space, integers, core, inner, made)
        elif made.op in OPS and OPS[made.op].product and not OPS[made.op].windowed:
            yield from _around(space, integers, made, None, None)


def _first(made: Made[Value]) -> Value:
    operand = made.operands[0]
    assert operand is not None
    return operand


def _is_settled(space: ApplicationSpace[Value], value: Value | None) -> bool:
    return value is None or space.is_constant(value)


def _is_whole(space: ApplicationSpace[Value], made: Made[Value], numbers: Value) -> bool:
    """Return whether an operator has one scale, for numbers of 8 bits."""
    type, scale = space.type(numbers), made.operands[1]
    known = space.type(scale) if scale is not None else None
    bytes_ = type is not None and type.dtype.value in QUANTISED
    return bytes_ and not made.attrs["block"] and known is not None and known.shape in ((), (1,))


def _around(
    space: ApplicationSpace[Value],
    integers: Collection[str],
    core: Made[Value],
    clamp: Made[Value] | None,
    end: Made[Value] | None,
) -> Iterator[IntegerRegion[Value]]:
    """The region of an operator, where its operands are dequantised."""
    type = space.type(core.result)
    if core.op not in integers or type is None or type.shape is None or type.dtype is not DType.FLOAT32:
        return
    restored: list[tuple[int, Made[Value]]] = []
    for index, operand in enumerate(core.operands):
        if operand is None:
            continue
        source = next((m for m in space.makers(operand) if m.op == "dequantize_linear"), None)
        if source is not None and _fits(space, core, index, source):
            restored.append((index, source))
        elif _reads(core.op, index) or not space.is_constant(operand):
            return
    if not restored or (end is not None and not _may_end(core, restored, end)):
        return
    yield IntegerRegion(tuple(restored), core, clamp, end)


def _reads(op: str, index: int) -> bool:
    """Return whether a kernel on integers reads an operand in integers."""
    declared = OPS[op]
    return index < (2 if declared.product else 1) or not (declared.product or declared.clamps)


def _fits(space: ApplicationSpace[Value], core: Made[Value], index: int, source: Made[Value]) -> bool:
    numbers = source.operands[0]
    type = space.type(numbers) if numbers is not None else None
    if numbers is None or type is None or source.attrs["block"]:
        return False
    if OPS[core.op].product and index == 2:
        return type.dtype is DType.INT32 and space.is_constant(numbers)
    if OPS[core.op].product and index == 1 and space.is_constant(numbers):
        return type.dtype.value in QUANTISED
    return _is_whole(space, source, numbers)


def _may_end(core: Made[Value], restored: Sequence[tuple[int, Made[Value]]], end: Made[Value]) -> bool:
    """Return whether a runtime computes into the numbers of a quantisation: of elements that only move, into the same.

    Numbers of one type are read and made.
    """
    declared = OPS[core.op]
    if (declared.movement and core.op != "concat") or declared.selects:
        return all(made.operands[1:] == end.operands[1:] for _, made in restored)
    return True


def images(space: ApplicationSpace[Value], found: Iterable[IntegerRegion[Value]]) -> frozenset[Value]:
    """The values of four axes that operators on images read or make, and what is computed of those by elements."""
    groups = Groups[Value]()
    seeds: set[Value] = set()
    for region in found:
        declared = OPS[region.core.op]
        read = [region.core.operands[index] for index, _ in region.restored]
        last = region.clamp or region.core
        ends = [v for v in (*read, region.core.result, last.result) if v is not None and _rank(space, v) == 4]
        moving = [v for v in ends if not space.is_constant(v) and not _is_weight(space, v)]
        # A value is one with the numbers that it is restored from.
        for _, made in region.restored:
            if made.result in moving and made.operands[0] is not None:
                groups.join(made.result, made.operands[0])
        if region.end is not None and last.result in moving:
            groups.join(last.result, region.end.result)
        if declared.windowed:
            seeds.update(moving)
        elif not declared.product and not (declared.movement and declared.name != "concat"):
            for other in moving[1:]:
                groups.join(moving[0], other)
    return groups.beside(seeds)


def _is_weight(space: ApplicationSpace[Value], value: Value) -> bool:
    return any(m.operands[0] is not None and space.is_constant(m.operands[0]) for m in space.makers(value))


def _rank(space: ApplicationSpace[Value], value: Value) -> int:
    type = space.type(value)
    return type.rank if type is not None and type.shape is not None else -1


def stated(
    op: str, attrs: Mapping[str, Any], operands: Sequence[TensorType | None], const: Sequence[bool]
) -> FusedOperator | None:
    """The kernel on integers that an operator on integers of a model is; None for another operator."""
    core = STATED.get(op)
    if core is None or len(operands) < 8:
        return None
    x, w, zero = operands[0], operands[3], operands[7]
    if x is None or w is None or zero is None or x.shape is None or w.shape is None:
        return None
    if any(type.dtype.value not in QUANTISED for type in (x, w, zero)):
        return None
    layout = _IMAGES if core == "conv" and x.rank == 4 else "row"
    taken = [State(layout, x.dtype.value), State("row", w.dtype.value)]
    types: list[TensorType | None] = [replace(x, dtype=DType.FLOAT32), replace(w, dtype=DType.FLOAT32)]
    flags = [const[0], const[3]]
    if len(operands) > 8 and operands[8] is not None:
        taken, types, flags = [*taken, PLAIN], [*types, replace(operands[8], dtype=DType.FLOAT32)], [*flags, True]
    declared = spec(core)
    full = declared.complete({name: value for name, value in attrs.items() if name in declared.attrs})
    way = Implementation(tuple(taken), State(layout, zero.dtype.value), INTEGER)
    results = tuple(declared.result_types(types, full))
    return FusedOperator(core, full, tuple(types), results, tuple(flags), way, (None,) * len(types))
