"""Values of one element as text of C."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, IndexVariable
from eqsat.runtime.kernels.expressions.coordinates import offset as flat_offset
from eqsat.runtime.kernels.expressions.expression import C_TYPES, NARROW, Expr
from eqsat.runtime.kernels.nests.computation import (
    GUARDED,
    Coordinate,
    ElementRead,
    Environment,
    KernelBuffer,
    is_risky,
    substituted,
)
from eqsat.runtime.kernels.nests.extents import sum_of
from eqsat.runtime.kernels.nests.printing.dialects import Dialect
from eqsat.runtime.kernels.nests.printing.lines import Lines, is_simple
from eqsat.runtime.kernels.writer import bare

_PLACE = re.compile(r"\{(\d+)\}")


@dataclass
class NamedBuffers:
    """Buffers by the names that values read them by: as text of C, as variables where they are registers."""

    buffers: dict[str, KernelBuffer]
    texts: dict[str, str] = field(default_factory=dict)
    registers: dict[str, dict[tuple[int, ...], str]] = field(default_factory=dict)
    #: Registers that hold vectors, with their lanes.
    lanes: dict[str, int] = field(default_factory=dict)
    #: Buffers whose elements are read through the cache of a GPU for what is never written.
    cached: frozenset[str] = frozenset()


class ScalarPrinter:
    """Values of one element, with indices put in: those of an environment, and those that loops have bound."""

    def __init__(self, lines: Lines, memory: NamedBuffers, dialect: Dialect) -> None:
        self.lines, self.memory, self.dialect = lines, memory, dialect
        self.bound: dict[str, AffineIndex] = {}
        self.environment: Environment = {}

    def index(self, index: AffineIndex) -> AffineIndex:
        """A sum of indices in the variables of the loops around."""
        return substituted(substituted(index, self.environment), self.bound)

    def index_text(self, index: AffineIndex) -> str:
        """A sum of variables of loops as text."""
        return index.text(self._variable)

    def _variable(self, variable: IndexVariable) -> str:
        if variable.of is None:
            return variable.name
        text = self.index_text(variable.of)
        is_one = len(variable.of.terms) == 1 and variable.of.terms[0][1] == 1 and not variable.of.constant
        return f"({text if is_one else f'({text})'} {variable.kind} {variable.by})"

    def scalar(self, value: Expr, guarded: bool = False) -> str:
        """A value as an operand; a `guarded` one may not be computed ahead."""
        uses: dict[int, int] = {}
        if not guarded:
            _count(value, uses, set())
        return self._scalar(value, guarded, uses)

    def _scalar(self, value: Expr, guarded: bool, uses: Mapping[int, int]) -> str:
        if isinstance(value, ElementRead):
            return self.element(value, guarded)
        if isinstance(value, Coordinate):
            index = self.index(value.index)
            text = self.index_text(index)
            cast = f"({C_TYPES[value.dtype]})"
            return f"{cast}({text})" if not text.isdigit() else f"{cast}{text}"
        if not value.operands:
            return value.template
        late = GUARDED.get(value.template, ())
        texts = [
            self._scalar(operand, guarded or (place in late and is_risky(operand)), uses)
            for place, operand in enumerate(value.operands)
        ]
        text = self.filled(value, texts, guarded)
        if not guarded and uses.get(id(value), 0) > 1:
            return self.lines.define(value.c_type, "part", bare(text))
        return text

    def filled(self, value: Expr, texts: list[str], guarded: bool) -> str:
        """A template with the texts of its operands; those that it reads twice are named."""
        template = self.dialect.template(value.template, value.dtype)
        counts = [0] * len(texts)
        for place in _PLACE.findall(template):
            counts[int(place)] += 1
        inside = []
        for place, (count, operand) in enumerate(zip(counts, value.operands, strict=True)):
            if count < 2 or is_simple(texts[place]):
                continue
            if guarded:
                name = self.lines.name("once")
                inside.append(f"const {operand.c_type} {name} = {bare(texts[place])};")
                texts[place] = name
            else:
                texts[place] = self.lines.define(operand.c_type, "part", bare(texts[place]))
        text = template.format(*texts)
        return self.dialect.scoped(inside, text) if inside else text

    def element(self, read: ElementRead, guarded: bool) -> str:
        """An element as an operand, widened where it is stored narrow."""
        registers = self.memory.registers.get(read.buffer)
        if registers is not None:
            return self._register(read, registers)
        buffer = self.memory.buffers[read.buffer]
        if buffer.is_empty:
            return f"(failed = 1, ({C_TYPES[read.dtype]})0)"
        text = f"{self.memory.texts[read.buffer]}[{self.offset(read, guarded)}]"
        if read.buffer in self.memory.cached:
            text = f"CACHED({text})"
        return f"widen({text})" if buffer.dtype in NARROW else text

    def _register(self, read: ElementRead, registers: Mapping[tuple[int, ...], str]) -> str:
        place = [self.index(one) for one in read.subscripts if isinstance(one, AffineIndex)]
        if self.memory.lanes.get(read.buffer, 1) == 1:
            return registers[tuple(one.constant for one in place)]
        *first, lane = place
        return f"{registers[tuple(one.constant for one in first)]}[{self.index_text(lane)}]"

    def vector_place(self, read: ElementRead) -> tuple[int, ...]:
        """The place of a vector among registers, without its lane."""
        return tuple(self.index(one).constant for one in read.subscripts[:-1] if isinstance(one, AffineIndex))

    def offset(self, read: ElementRead, guarded: bool) -> str:
        """The offset of an element in its buffer, in elements."""
        index, computed = self.places(read, guarded)
        text = self.index_text(index)
        if not computed:
            return text
        return " + ".join([*computed, *([] if text == "0" else [text])])

    def places(self, read: ElementRead, guarded: bool) -> tuple[AffineIndex, list[str]]:
        """The offset of an element: the sum of indices, and terms that are computed from elements."""
        buffer = self.memory.buffers[read.buffer]
        strides = [step if step is not None else self._stride(buffer, axis) for axis, step in enumerate(buffer.strides)]
        plain: list[AffineIndex] = []
        steps: list[int] = []
        computed: list[str] = []
        checked = read.checked or (False,) * len(read.subscripts)
        for subscript, step, extent, is_checked in zip(read.subscripts, strides, buffer.shape, checked, strict=True):
            if isinstance(subscript, AffineIndex) and not is_checked:
                index = self.index(subscript)
                if isinstance(step, int):
                    plain.append(index)
                    steps.append(step)
                elif index.terms or index.constant:
                    computed.append(f"(i64)({self.index_text(index)}) * {step}")
                continue
            if isinstance(subscript, AffineIndex):
                text = f"(i64)({self.index_text(self.index(subscript))})"
            else:
                text = bare(self.scalar(subscript, guarded))
            text = f"INSIDE({text}, {self.index_text(sum_of(extent))})" if is_checked else f"({text})"
            if not guarded:
                text = self.lines.define("i64", "at", text)
            computed.append(f"{text} * {step}" if step != 1 else text)
        return flat_offset(tuple(plain), steps), computed

    def _stride(self, buffer: KernelBuffer, axis: int) -> str:
        """Elements between neighbours along an axis, where sizes of a call decide; of no element where one is 0."""
        return " * ".join(f"({self.index_text(sum_of(extent))})" for extent in buffer.shape[axis + 1 :])

    def stored(self, buffer: KernelBuffer, text: str) -> str:
        """The text of a value as an element in memory."""
        if buffer.dtype not in NARROW:
            return bare(text)
        return self.dialect.narrowed(buffer.dtype, bare(text), is_held=buffer.is_held)


def _count(value: Expr, uses: dict[int, int], seen: set[int]) -> None:
    """Count how often each part is read outside of conditions."""
    uses[id(value)] = uses.get(id(value), 0) + 1
    if id(value) in seen:
        return
    seen.add(id(value))
    if isinstance(value, ElementRead):
        return
    late = GUARDED.get(value.template, ())
    for place, operand in enumerate(value.operands):
        if not (place in late and is_risky(operand)):
            _count(operand, uses, seen)
