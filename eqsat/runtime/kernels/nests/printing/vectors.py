"""Values of several elements side by side as vectors of GNU C."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import C_TYPES, Expr
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead, indices_of, is_risky, substituted
from eqsat.runtime.kernels.nests.printing.scalars import ScalarPrinter
from eqsat.runtime.kernels.writer import bare

#: Templates that vectors have too, as they are.
_SAME = frozenset({"({0} + {1})", "({0} - {1})", "({0} * {1})", "({0} / {1})", "(-{0})"})
#: Templates that are functions of vectors under other names.
_FUNCTIONS: Mapping[str, str] = {
    "maximum({0}, {1})": "maximum",
    "minimum({0}, {1})": "minimum",
    "({0} <= {1} ? {1} : {0})": "maximum",
    "({0} >= {1} ? {1} : {0})": "minimum",
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
_CHOSEN = "({0} ? {1} : {2})"
#: The letter of a type of elements in the names of vectors.
LETTERS = {DType.FLOAT32: "f", DType.FLOAT64: "d"}

Kind = Literal["scalar", "vector", "mask"]


@dataclass(frozen=True)
class Text:
    """A text, and whether it is one element, one per lane, or a truth value per lane."""

    text: str
    kind: Kind


class VectorPrinter:
    """Values along the lanes of a vector, of which `valid` are there: a number, or text of one from 1 on."""

    def __init__(self, scalars: ScalarPrinter, variable: str, dtype: DType, lanes: int, valid: int | str) -> None:
        self.scalars, self.lines = scalars, scalars.lines
        self.variable, self.dtype, self.lanes, self.valid = variable, dtype, lanes, valid
        self.type = vector_type(dtype, lanes)
        self._is_whole = isinstance(valid, int) and valid >= lanes

    def vector(self, value: Expr) -> str:
        """A value as an operand that is a vector."""
        made = self._made(value)
        return made.text if made.kind == "vector" else f"splat_{self.type}({bare(made.text)})"

    def _varies(self, value: Expr) -> bool:
        """True where lanes differ."""
        environment, bound = self.scalars.environment, self.scalars.bound
        for name in indices_of(value):
            index = substituted(AffineIndex.variable(name, 1 << 40), environment)
            if substituted(index, bound).reads(self.variable):
                return True
        return False

    def _made(self, value: Expr) -> Text:
        if not self._varies(value):
            return Text(self.scalars.scalar(value), "scalar")
        if isinstance(value, ElementRead):
            return self._read(value)
        if not isinstance(value, Coordinate) and self._is_native(value):
            return self._native(value)
        return self._by_lanes(value)

    def _is_native(self, value: Expr) -> bool:
        template = value.template
        if template == _CHOSEN:
            return value.dtype is self.dtype and not any(is_risky(one) for one in value.operands[1:])
        if template in _JOINED:
            return not any(is_risky(one) for one in value.operands)
        if template in _COMPARED:
            return all(one.dtype is self.dtype for one in value.operands)
        if template in _OF_FLOAT and self.dtype is not DType.FLOAT32:
            return False
        return value.dtype is self.dtype and (template in _SAME or template in _FUNCTIONS)

    def _native(self, value: Expr) -> Text:
        made = [self._made(one) for one in value.operands]
        if value.template == _CHOSEN:
            condition, yes, no = made
            if condition.kind != "mask":
                return self._by_lanes(value)
            a, b = (self._whole(one) for one in (yes, no))
            return Text(f"select_{self.type}({bare(condition.text)}, {bare(a)}, {bare(b)})", "vector")
        if value.template in _JOINED:
            if any(one.kind != "mask" for one in made):
                return self._by_lanes(value)
            return Text(_JOINED[value.template].format(*(one.text for one in made)), "mask")
        if value.template in _COMPARED:
            a, b = (self._whole(one) for one in made)
            return Text(value.template.format(a, b), "mask")
        if value.template in _SAME:
            return Text(value.template.format(*(one.text for one in made)), "vector")
        operands = ", ".join(bare(self._whole(one)) for one in made)
        return Text(f"{_FUNCTIONS[value.template]}_{self.type}({operands})", "vector")

    def _whole(self, made: Text) -> str:
        return made.text if made.kind != "scalar" else f"splat_{self.type}({bare(made.text)})"

    def _read(self, read: ElementRead) -> Text:
        registers = self.scalars.memory.registers.get(read.buffer)
        if registers is not None:
            return Text(registers[self.scalars.vector_place(read)], "vector")
        whole = self._is_whole
        address = self._address(read)
        if address is not None:
            text = f"load_{self.type}({address})" if whole else f"load_part_{self.type}({address}, {self.valid})"
        else:
            address = self._address(read, 2) if self.lanes > 2 else None
            if address is None:
                return self._by_lanes(read)
            count = "" if whole else f", {self.valid}"
            text = f"load_even_{'' if whole else 'part_'}{self.type}({address}{count})"
        return Text(self.lines.define(self.type, read.buffer.lower()[:12] + "_v", text), "vector")

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
        if buffer.dtype is not self.dtype or varying or checked or far or buffer.is_empty:
            return None
        index, computed = self.scalars.places(read, False)
        rest = index.without(self.variable)
        if index.coefficient(self.variable) != step or rest.reads(self.variable):
            return None
        text = self.scalars.index_text(rest)
        terms = [self.scalars.memory.texts[read.buffer], *computed, *([] if text == "0" else [text])]
        return " + ".join(terms)

    def _by_lanes(self, value: Expr) -> Text:
        """A value computed lane by lane."""
        name = self.lines.name("lane_values")
        mask = value.dtype is DType.BOOL
        type_ = f"mask_{self.type}" if mask else self.type
        self.lines.add(f"{type_} {name} = {{0}};")
        with self.lines.block(f"for (int {self.variable} = 0; {self.variable} < {self.valid}; ++{self.variable})"):
            text = bare(self.scalars.scalar(value))
            self.lines.add(f"{name}[{self.variable}] = {f'-({text})' if mask else text};")
        return Text(name, "mask" if mask else "vector")

    def store(self, target: ElementRead, text: str) -> None:
        """Write the lanes to memory."""
        address = self._address(target)
        buffer = self.scalars.memory.buffers[target.buffer]
        self.lines.forget(self.scalars.memory.texts[target.buffer])
        if address is None:
            name = self.lines.define(self.type, "lanes_of", bare(text))
            head = f"for (int {self.variable} = 0; {self.variable} < {self.valid}; ++{self.variable})"
            with self.lines.block(head):
                place = f"{self.scalars.memory.texts[target.buffer]}[{self.scalars.offset(target, False)}]"
                self.lines.add(f"{place} = {self.scalars.stored(buffer, f'{name}[{self.variable}]')};")
        elif self._is_whole:
            self.lines.add(f"store_{self.type}({address}, {bare(text)});")
        else:
            self.lines.add(f"store_part_{self.type}({address}, {bare(text)}, {self.valid});")


def vector_type(dtype: DType, lanes: int) -> str:
    """The name of a type of vectors."""
    return f"v{lanes}{LETTERS[dtype]}"


def definitions(dtype: DType, lanes: int) -> str:
    """The text that defines a type of vectors and its functions."""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    integer = "i32" if dtype is DType.FLOAT32 else "i64"
    size = lanes * dtype.itemsize
    values = ", ".join(["x"] * lanes)
    suffix = "f" if dtype is DType.FLOAT32 else ""
    return f"""
typedef {element} {name} __attribute__((vector_size({size})));
typedef {element} loose_{name} __attribute__((vector_size({size}), aligned({dtype.itemsize}), may_alias));
typedef {integer} mask_{name} __attribute__((vector_size({size})));
INLINE {name} splat_{name}({element} x) {{ return ({name}){{{values}}}; }}
INLINE {name} load_{name}(const {element} *from) {{ return *(const loose_{name} *)from; }}
INLINE void store_{name}({element} *to, {name} x) {{ *(loose_{name} *)to = x; }}
{_partial_load(dtype, lanes)}
{_even_load(dtype, lanes)}
INLINE void store_part_{name}({element} *to, {name} x, int count) {{
  __builtin_memcpy(to, &x, count * sizeof({element}));
}}
INLINE {name} select_{name}(mask_{name} where, {name} a, {name} b) {{
  return ({name})((where & (mask_{name})a) | (~where & (mask_{name})b));
}}
INLINE {name} maximum_{name}({name} a, {name} b) {{ return select_{name}((a > b) | (a != a), a, b); }}
INLINE {name} minimum_{name}({name} a, {name} b) {{ return select_{name}((a < b) | (a != a), a, b); }}
INLINE {name} fmax_{name}({name} a, {name} b) {{ return select_{name}((a > b) | (b != b), a, b); }}
INLINE {name} fmin_{name}({name} a, {name} b) {{ return select_{name}((a < b) | (b != b), a, b); }}
INLINE {name} fabs_{name}({name} x) {{ return ({name})((mask_{name})x & ~(mask_{name})splat_{name}(-0.0{suffix})); }}
INLINE {name} sqrt_{name}({name} x) {{
  {name} made;
  for (int lane = 0; lane < {lanes}; ++lane) made[lane] = sqrt{suffix}(x[lane]);
  return made;
}}
""" + (_exponential(name, lanes) if dtype is DType.FLOAT32 else "")


def _even_load(dtype: DType, lanes: int) -> str:
    """The loads of every other element, none beyond the last of which is read."""
    if lanes < 4:
        return ""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    places = ", ".join(str(place) for place in (*range(0, lanes, 2), *range(lanes + 1, 2 * lanes, 2)))
    apart = ", ".join(f"from[{2 * lane}]" for lane in range(lanes))
    return f"""INLINE {name} load_even_{name}(const {element} *from) {{
#if defined(__clang__) || __GNUC__ >= 12
  return __builtin_shufflevector(load_{name}(from), load_{name}(from + {lanes - 1}), {places});
#else
  return ({name}){{{apart}}};
#endif
}}
INLINE {name} load_even_part_{name}(const {element} *from, int count) {{
#if defined(__clang__) || __GNUC__ >= 12
  const int read = 2 * count - 1, more = read - {lanes - 1};
  const {name} near = read < {lanes} ? load_part_{name}(from, read) : load_{name}(from);
  const {name} far = more > 0 ? load_part_{name}(from + {lanes - 1}, more) : near;
  return __builtin_shufflevector(near, far, {places});
#else
  {name} x = {{0}};
  for (int lane = 0; lane < count; ++lane) x[lane] = from[2 * lane];
  return x;
#endif
}}"""


def _partial_load(dtype: DType, lanes: int) -> str:
    """The load of the first elements of a vector: under a mask where the processor has one, else byte by byte."""
    element, name = C_TYPES[dtype], vector_type(dtype, lanes)
    size, kind = lanes * dtype.itemsize, "ps" if dtype is DType.FLOAT32 else "pd"
    integer = "i32" if dtype is DType.FLOAT32 else "i64"
    numbers = ", ".join(map(str, range(lanes)))
    if size == 64:
        macro = "__AVX512F__"
        read = f"return __builtin_ia32_loadu{kind}512_mask((const void *)from, ({name}){{0}}, (1u << count) - 1);"
    else:
        macro, width = "__AVX__", "256" if size == 32 else ""
        mask = f"(mask_{name}){{{numbers}}} < ({integer})count"
        read = f"return __builtin_ia32_maskload{kind}{width}((const void *)from, {mask});"
    return f"""INLINE {name} load_part_{name}(const {element} *from, int count) {{
#ifdef {macro}
  {read}
#else
  {name} x = {{0}};
  __builtin_memcpy(&x, from, count * sizeof({element}));
  return x;
#endif
}}"""


def _exponential(name: str, lanes: int) -> str:
    """Functions exp, tanh, sigmoid and erf of vectors of float.

    Of exp it is a polynomial on the rest beside a multiple of log 2. Those of erf were fitted by weighted least squares
    to values of 30 digits: of erf(√t)/√t for t to 0.9, and of -log erfc(x) for x from 0.92 to 4.
    """
    return f"""
INLINE {name} exp_{name}({name} x) {{
  const {name} inside = maximum_{name}(splat_{name}(-104.0f), minimum_{name}(splat_{name}(89.0f), x));
  const {name} shifted = inside * 1.44269504f + 12582912.0f, times = shifted - 12582912.0f;
  const {name} rest = (inside - times * 0.693359375f) + times * 2.12194440e-4f;
  {name} made = splat_{name}(1.9875691500e-4f) * rest + 1.3981999507e-3f;
  made = made * rest + 8.3334519073e-3f;
  made = made * rest + 4.1665795894e-2f;
  made = made * rest + 1.6666665459e-1f;
  made = made * rest + 5.0000001201e-1f;
  made = made * rest * rest + rest + 1.0f;
  const mask_{name} power = __builtin_convertvector(times, mask_{name}), half = power >> 1;
  made = made * ({name})((half + 127) << 23) * ({name})((power - half + 127) << 23);
  return select_{name}(x != x, x, made);
}}
INLINE {name} tanh_{name}({name} x) {{
  const {name} size = fabs_{name}(x), square = x * x;
  {name} small = splat_{name}(-5.70498872745e-3f) * square + 2.06390887954e-2f;
  small = small * square - 5.37397155531e-2f;
  small = small * square + 1.33314422036e-1f;
  small = small * square - 3.33332819422e-1f;
  small = small * square * size + size;
  const {name} large = 1.0f - 2.0f / (exp_{name}(size + size) + 1.0f);
  const {name} made = select_{name}((size < 0.625f), small, large);
  return ({name})((mask_{name})made | ((mask_{name})x & (mask_{name})splat_{name}(-0.0f)));
}}
INLINE {name} sigmoid_{name}({name} x) {{ return 1.0f / (1.0f + exp_{name}(-x)); }}
INLINE {name} erf_{name}({name} x) {{
  const {name} size = fmin_{name}(fabs_{name}(x), splat_{name}(4.0f)), square = size * size;
  {name} small = splat_{name}(8.193779649445787e-05f) * square - 0.0008099877741187811f;
  small = small * square + 0.005197154823690653f;
  small = small * square - 0.02685779146850109f;
  small = small * square + 0.11283665895462036f;
  small = small * square - 0.37612631916999817f;
  small = (small * square + 1.128379225730896f) * size;
  {name} power = splat_{name}(2.116183895850554e-05f) * size - 0.0004352181567810476f;
  power = power * size + 0.0041746399365365505f;
  power = power * size - 0.025128616020083427f;
  power = power * size + 0.10829393565654755f;
  power = power * size + 0.6333346366882324f;
  power = power * size + 1.1295207738876343f;
  power = power * size - 0.00017587367619853467f;
  const {name} made = select_{name}((size < 0.93f), small, 1.0f - exp_{name}(-power));
  return select_{name}(x != x, x, ({name})((mask_{name})made | ((mask_{name})x & (mask_{name})splat_{name}(-0.0f))));
}}
"""
