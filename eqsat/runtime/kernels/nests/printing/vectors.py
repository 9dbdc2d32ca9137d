"""Values of several elements side by side as vectors of GNU C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import C_TYPES, NARROW, STORED, Expr
from eqsat.runtime.kernels.nests.computation import (
    Coordinate,
    ElementRead,
    KernelBuffer,
    indices_of,
    is_risky,
    parts,
    substituted,
)
from eqsat.runtime.kernels.nests.printing.scalars import ScalarPrinter
from eqsat.runtime.kernels.nests.printing.vector_types import vector_type
from eqsat.runtime.kernels.writer import bare

#: Templates that vectors have too, as they are.
_SAME = frozenset({"({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / {1})", "(-{0})"})
#: Templates of integers, which wrap around, by what vectors have.
_WRAPPING = {"sum({0}, {1})": "+", "difference({0}, {1})": "-", "product({0}, {1})": "*"}
_BITS = {f"({name})({{0}} {sign} {{1}})": sign for name in C_TYPES.values() for sign in "&|^"}
#: Templates that are functions of vectors under other names.
_EXTREMES: Mapping[str, str] = {
    "maximum({0}, {1})": "maximum",
    "minimum({0}, {1})": "minimum",
    "({0} <= {1} ? {1} : {0})": "maximum",
    "({0} >= {1} ? {1} : {0})": "minimum",
}
_FUNCTIONS: Mapping[str, str] = {
    **_EXTREMES,
    "fmaxf({0}, {1})": "fmax",
    "fminf({0}, {1})": "fmin",
    "fmax({0}, {1})": "fmax",
    "fmin({0}, {1})": "fmin",
    "expf({0})": "exp",
    "sqrtf({0})": "sqrt",
    "sqrt({0})": "sqrt",
    "fabsf({0})": "fabs",
    "fabs({0})": "fabs",
    "tanhf({0})": "tanh",
    "erff({0})": "erf",
    "sigmoid({0})": "sigmoid",
}
#: Templates that vectors of float alone have.
_OF_FLOAT = frozenset({"expf({0})", "tanhf({0})", "erff({0})", "sigmoid({0})"})
_COMPARED = frozenset(f"({{0}} {sign} {{1}})" for sign in ("<", "<=", ">", ">=", "==", "!="))
_JOINED = {"({0} && {1})": "({0} & {1})", "({0} || {1})": "({0} | {1})", "(!{0})": "(~{0})"}
_CHOSEN, _TRUTH, _NO_NUMBER = "({0} ? {1} : {2})", "({0} != 0)", "({0} != {0})"
#: Bytes of the widest vectors of any processor.
_WIDEST = 64

Kind = Literal["scalar", "vector", "mask"]


@dataclass(frozen=True)
class Text:
    """A text, and whether it is one element, one per lane, or a truth value per lane, as wide as elements of a type."""

    text: str
    kind: Kind
    dtype: DType


@dataclass
class VectorTypes:
    """The types of vectors that a function takes, and those that its memory holds as floats of fewer bits."""

    whole: set[tuple[DType, int]] = field(default_factory=set)
    narrow: set[tuple[DType, int]] = field(default_factory=set)

    def of(self, dtype: DType, lanes: int) -> str:
        """The name of a type."""
        self.whole.add((dtype, lanes))
        return vector_type(dtype, lanes)


def is_converted(value: Expr) -> bool:
    """Return whether a value is one of a number type in another one, of which none is cut."""
    if not value.operands or value.template != f"({C_TYPES[value.dtype]}){{0}}":
        return False
    return value.dtype is not DType.BOOL and not (value.operands[0].dtype.is_float and value.dtype.is_integer)


def has_vectors(value: Expr) -> bool:
    """True of values of integers all of whose parts vectors have; elements side by side are taken for granted."""
    return all(_is_known(one) for one in _parts_along(value))


def _parts_along(value: Expr) -> list[Expr]:
    """The parts of a value but for those of subscripts."""
    within = {id(p) for one in parts(value) if isinstance(one, ElementRead) for s in one.operands for p in parts(s)}
    return [one for one in parts(value) if id(one) not in within]


def is_chosen(value: Expr) -> bool:
    """True of values that a condition chooses, or that are made of such ones."""
    return any(one.template == _CHOSEN for one in _parts_along(value))


def part_bytes(value: Expr) -> tuple[int, int]:
    """Bytes of the smallest and the largest elements that a value is computed of, but for numbers and truth values."""
    sizes = [
        one.dtype.itemsize for one in _parts_along(value) if one.value is None and one.dtype is not DType.BOOL
    ] or [value.dtype.itemsize]
    return min(sizes), max(sizes)


def _is_known(one: Expr) -> bool:
    if not one.operands or isinstance(one, ElementRead | Coordinate):
        return True
    known = one.template in (*_WRAPPING, *_BITS, *_EXTREMES, *_JOINED, _CHOSEN, _TRUTH, _NO_NUMBER)
    return known or one.template in _COMPARED or is_converted(one)


class VectorPrinter:
    """Values along the lanes of a vector, of which `valid` are there: a number, or text of one from 1 on."""

    def __init__(
        self, scalars: ScalarPrinter, variable: str, dtype: DType, lanes: int, valid: int | str, types: VectorTypes
    ) -> None:
        self.scalars, self.lines = scalars, scalars.lines
        self.variable, self.dtype, self.lanes, self.valid = variable, dtype, lanes, valid
        self.types = types
        self._is_whole = isinstance(valid, int) and valid >= lanes

    def _type(self, dtype: DType) -> str:
        return self.types.of(DType.UINT8 if dtype is DType.BOOL else dtype, self.lanes)

    def vector(self, value: Expr) -> str:
        """A value as an operand that is a vector."""
        return self._whole(self._made(value))

    def _varies(self, value: Expr) -> bool:
        """True where lanes differ."""
        environment, bound = self.scalars.environment, self.scalars.bound
        for name in indices_of(value):
            index = substituted(AffineIndex.variable(name, 1 << 40), environment)
            if substituted(index, bound).reads(self.variable):
                return True
        return False

    def _fits(self, dtype: DType) -> bool:
        """Return whether a type is that of the vectors here, or one of vectors that a register holds as well."""
        return dtype is self.dtype or self.lanes * dtype.itemsize <= _WIDEST

    def _made(self, value: Expr) -> Text:
        if not self._varies(value):
            return Text(self.scalars.scalar(value), "scalar", value.dtype)
        if isinstance(value, ElementRead):
            return self._read(value)
        if isinstance(value, Coordinate):
            return self._counted(value)
        return self._native(value) if self._is_native(value) else self._by_lanes(value)

    def _is_native(self, value: Expr) -> bool:
        template, dtype = value.template, value.dtype
        if template == _CHOSEN:
            return self._has(dtype) and not any(is_risky(one) for one in value.operands[1:])
        if template in _JOINED:
            return not any(is_risky(one) for one in value.operands)
        if template in _COMPARED or template in (_TRUTH, _NO_NUMBER):
            return all(self._has(one.dtype) for one in value.operands)
        if template in _OF_FLOAT and dtype is not DType.FLOAT32:
            return False
        if is_converted(value):
            given = value.operands[0].dtype
            return self._has(dtype) and self._fits(given) and (self._is_alike(given) or not self.dtype.is_float)
        if dtype.is_float:
            return dtype is self.dtype and (template in _SAME or template in _FUNCTIONS)
        return self._has(dtype) and (template in _WRAPPING or template in _BITS or template in _EXTREMES)

    def _is_alike(self, dtype: DType) -> bool:
        """Return whether elements of a type are as large as those of these vectors.

        Of other ones compilers make vectors of floats best where they are read one by one.
        """
        return dtype.itemsize == self.dtype.itemsize

    def _has(self, dtype: DType) -> bool:
        """Return whether numbers of a type are compared and chosen in vectors here."""
        return dtype is not DType.BOOL and self._fits(dtype) and dtype in C_TYPES

    def _native(self, value: Expr) -> Text:
        made, template = [self._made(one) for one in value.operands], value.template
        if template == _NO_NUMBER:
            dtype = value.operands[0].dtype
            name = self.lines.define(self._type(dtype), "part_v", bare(self._whole(made[0])))
            return Text(f"({name} != {name})", "mask", dtype)
        if template in _COMPARED or template == _TRUTH:
            dtype = value.operands[0].dtype
            sign = "!=" if template == _TRUTH else template.split()[1]
            a, b = self._whole(made[0]), self._whole(made[1]) if len(made) > 1 else f"splat_{self._type(dtype)}(0)"
            return Text(f"({a} {sign} {b})", "mask", dtype)
        if template in _JOINED:
            return self._joined(value, made)
        if template == _CHOSEN:
            condition, yes, no = made
            if condition.kind != "mask":
                return self._by_lanes(value)
            mask = bare(self._mask(condition, value.dtype))
            chosen = f"select_{self._type(value.dtype)}({mask}, {bare(self._whole(yes))}, {bare(self._whole(no))})"
            return Text(chosen, "vector", value.dtype)
        if is_converted(value):
            return self._converted(made[0], value.dtype)
        if template in _SAME:
            return Text(template.format(*(one.text for one in made)), "vector", value.dtype)
        wrapping = _WRAPPING.get(template) or _BITS.get(template)
        if wrapping:
            return Text(f"({self._whole(made[0])} {wrapping} {self._whole(made[1])})", "vector", value.dtype)
        operands = ", ".join(bare(self._whole(one)) for one in made)
        return Text(f"{_FUNCTIONS[template]}_{self._type(value.dtype)}({operands})", "vector", value.dtype)

    def _joined(self, value: Expr, made: list[Text]) -> Text:
        """Truth values that are joined, all as wide as the first."""
        if any(one.kind != "mask" for one in made):
            return self._by_lanes(value)
        dtype = made[0].dtype
        return Text(_JOINED[value.template].format(*(self._mask(one, dtype) for one in made)), "mask", dtype)

    def _mask(self, mask: Text, dtype: DType) -> str:
        """Truth values as wide as elements of a type."""
        if mask.dtype.itemsize == dtype.itemsize:
            return mask.text
        return f"__builtin_convertvector({bare(mask.text)}, mask_{self._type(dtype)})"

    def _converted(self, made: Text, dtype: DType) -> Text:
        type_ = self._type(dtype)
        if made.kind == "mask":  # whose lanes are -1 where they are true
            return Text(f"(-__builtin_convertvector({bare(made.text)}, {type_}))", "vector", dtype)
        return Text(f"__builtin_convertvector({bare(self._whole(made))}, {type_})", "vector", dtype)

    def _whole(self, made: Text) -> str:
        return made.text if made.kind != "scalar" else f"splat_{self._type(made.dtype)}({bare(made.text)})"

    def _counted(self, value: Coordinate) -> Text:
        """A sum of indices that goes up by the same from lane to lane."""
        index = self.scalars.index(value.index)
        rest, step = index.without(self.variable), index.coefficient(self.variable)
        if rest.reads(self.variable) or not self._has(value.dtype) or value.dtype.is_float:
            return self._by_lanes(value)
        type_ = self._type(value.dtype)
        steps = f"({type_}){{{', '.join(str(lane * step) for lane in range(self.lanes))}}}"
        text = self.scalars.index_text(rest)
        return Text(f"(splat_{type_}({text}) + {steps})" if text != "0" else steps, "vector", value.dtype)

    def _read(self, read: ElementRead) -> Text:
        registers = self.scalars.memory.registers.get(read.buffer)
        if registers is not None:
            return Text(registers[self.scalars.vector_place(read)], "vector", read.dtype)
        buffer, whole = self.scalars.memory.buffers[read.buffer], self._is_whole
        if not self._fits(read.dtype) or (self.dtype.is_float and read.dtype not in (self.dtype, DType.BOOL)):
            return self._by_lanes(read)
        address, type_ = self._address(read), self._type(read.dtype)
        count = "" if whole else f", {self.valid}"
        if buffer.dtype is DType.BOOL:
            if address is None or self.dtype.is_float:
                return self._by_lanes(read)
            text = f"load_{'' if whole else 'part_'}{type_}((const u8 *)({address}){count})"
            return Text(f"({self._named(read, text)} != 0)", "mask", DType.UINT8)
        if address is not None:
            text = f"load_{'' if whole else 'part_'}{self._stored(buffer, read.dtype)}({address}{count})"
        else:
            evenly = self.lanes > 2 and read.dtype.is_float and buffer.dtype is read.dtype
            address = self._address(read, 2) if evenly else None
            if address is None:
                return self._by_lanes(read)
            text = f"load_even_{'' if whole else 'part_'}{type_}({address}{count})"
        return Text(self._named(read, text), "vector", read.dtype)

    def _named(self, read: ElementRead, text: str) -> str:
        return self.lines.define(self._type(read.dtype), read.buffer.lower()[:12] + "_v", text)

    def _stored(self, buffer: KernelBuffer, dtype: DType) -> str:
        """The type of vectors of a buffer, as functions that read and write it are named."""
        type_ = self._type(dtype)
        if buffer.dtype is dtype:
            return type_
        self.types.narrow.add((buffer.dtype, self.lanes))
        return f"{type_}_{STORED[buffer.dtype]}"

    def _address(self, read: ElementRead, step: int = 1) -> str | None:
        """The address of the first lane where the others follow it at a distance."""
        buffer = self.scalars.memory.buffers[read.buffer]
        varying = [one for one in read.subscripts if isinstance(one, Expr) and self._varies(one)]
        checked = [
            one
            for one, mark in zip(read.subscripts, read.checked, strict=False)
            if mark and isinstance(one, AffineIndex) and self.scalars.index(one).reads(self.variable)
        ]
        far = [
            one
            for one, distance in zip(read.subscripts, buffer.strides, strict=True)
            if distance is None and isinstance(one, AffineIndex) and self.scalars.index(one).reads(self.variable)
        ]
        is_held = buffer.dtype is read.dtype or (buffer.dtype in NARROW and read.dtype is DType.FLOAT32)
        if not is_held or buffer.dtype is DType.FLOAT8E4M3FN or varying or checked or far or buffer.is_empty:
            return None
        index, computed = self.scalars.places(read, False)
        rest = index.without(self.variable)
        if index.coefficient(self.variable) != step or rest.reads(self.variable):
            return None
        text = self.scalars.index_text(rest)
        terms = [self.scalars.memory.texts[read.buffer], *computed, *([] if text == "0" else [text])]
        return " + ".join(terms)

    def _by_lanes(self, value: Expr) -> Text:
        """A value computed lane by lane; truth values are as wide as the elements of these vectors."""
        name = self.lines.name("lane_values")
        mask = value.dtype is DType.BOOL
        dtype = self.dtype if mask else value.dtype
        type_ = f"mask_{self._type(dtype)}" if mask else self._type(dtype)
        self.lines.add(f"{type_} {name} = {{0}};")
        with self.lines.block(f"for (int {self.variable} = 0; {self.variable} < {self.valid}; ++{self.variable})"):
            text = bare(self.scalars.scalar(value))
            self.lines.add(f"{name}[{self.variable}] = {f'-({text})' if mask else text};")
        return Text(name, "mask" if mask else "vector", dtype)

    def store(self, target: ElementRead, text: str) -> None:
        """Write the lanes to memory."""
        address = self._address(target)
        buffer = self.scalars.memory.buffers[target.buffer]
        self.lines.forget(self.scalars.memory.texts[target.buffer])
        if address is None:
            name = self.lines.define(self._type(self.dtype), "lanes_of", bare(text))
            head = f"for (int {self.variable} = 0; {self.variable} < {self.valid}; ++{self.variable})"
            with self.lines.block(head):
                place = f"{self.scalars.memory.texts[target.buffer]}[{self.scalars.offset(target, False)}]"
                self.lines.add(f"{place} = {self.scalars.stored(buffer, f'{name}[{self.variable}]')};")
        elif self._is_whole:
            self.lines.add(f"store_{self._stored(buffer, self.dtype)}({address}, {bare(text)});")
        else:
            self.lines.add(f"store_part_{self._stored(buffer, self.dtype)}({address}, {bare(text)}, {self.valid});")
