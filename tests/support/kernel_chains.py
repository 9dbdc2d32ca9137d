"""Groups of operators with their operands in memory in any way, run on the processor and compared with references."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run_node
from eqsat.language.ops import OPS
from eqsat.language.terms import Array, Constant, DType, Node, TensorType
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.templates.codegen import generate
from eqsat.runtime.kernels.view import View
from eqsat.testing.cuda.emulator import build
from tests.support.guarded import run

SHAPES = [(), (1,), (5,), (24,), (4, 16), (7, 13), (2, 3, 8), (3, 1, 40), (1, 24), (0, 4), (2, 0, 3), (2, 5, 4, 8)]
SHAPES += [(2, 8, 3, 3), (6, 1), (1, 1, 1), (40, 33), (2, 33, 40), (3, 4, 1, 2, 5)]
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
INDEXED = ("gather", "scatter")
#: How far a result may be from the exact one, by the element type it is held in, in units of the largest value.
SLACK = {"float16": 1.5e-3, "bfloat16": 1.2e-2, "float32": 1e-5, "float64": 1e-11}
#: Attributes that sample rules leave at their defaults.
MORE = {
    "mod": lambda rng: {"fmod": rng.random() < 0.5},
    "bit_shift": lambda rng: {"direction": rng.choice(("LEFT", "RIGHT"))},
    "isinf": lambda rng: {"detect_negative": rng.random() < 0.5, "detect_positive": rng.random() < 0.5},
    "leaky_relu": lambda rng: {"alpha": rng.choice((0.25, 0.1))},
    "elu": lambda rng: {"alpha": rng.choice((1.0, 0.7))},
    "celu": lambda rng: {"alpha": rng.choice((1.0, 0.7))},
    "silu": lambda rng: {"alpha": rng.choice((1.0, 1.5))},
    "gelu": lambda rng: {"approximate": rng.choice(("none", "tanh"))},
    "scatter_elements": lambda rng: {"reduction": rng.choice(("none", "add", "mul", "max", "min"))},
    "scatter_nd": lambda rng: {"reduction": rng.choice(("none", "add", "mul", "max", "min"))},
    "shrink": lambda rng: {"bias": 0.25},
    "pad": lambda rng: {"mode": rng.choice(("constant", "constant", "edge", "reflect", "wrap"))},
}


@dataclass
class Case:
    """A group, the arrays of its operands, and what its results are to be."""

    group: Group
    arrays: dict[str, Array]
    wanted: dict[str, Array]
    scale: float = 1.0


class Chain:
    """A group under construction: operators one after the other, each reading what the last one made."""

    def __init__(self, rng: random.Random, dtype: str, *, special: bool = False, tame: bool = False) -> None:
        self.rng, self.dtype, self.special, self.tame = rng, dtype, special, tame
        self.numbers = np.random.default_rng(rng.randrange(2**32))
        self.types: dict[str, TensorType] = {}
        self.arrays: dict[str, Array] = {}
        self.values: dict[str, Array] = {}
        self.nodes: list[Node] = []
        self.constants: dict[str, Constant] = {}
        self.last: str | None = None

    def add(self, op: str, shape: tuple[int, ...] | None = None, attrs: Mapping[str, Any] | None = None) -> bool:
        """Adds an operator; False where it does not take what there is."""
        declared, rng = OPS[op], self.rng
        most = declared.max_operands if declared.max_operands is not None else declared.min_operands + 2
        count = rng.randint(declared.min_operands, most)
        given = {**(MORE[op](rng) if op in MORE else {}), **(attrs or {})}
        kinds = [declared.dtypes.get(i, self.dtype) for i in range(count)]
        if op in ("bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_not", "bit_shift"):
            kinds = [self.dtype] * count
        for _ in range(20):
            names: list[str | None] = [None] * count
            fixed = op.startswith(INDEXED)  # what was made before is no index
            if self.last is not None:
                kind = self.types[self.last].dtype.value
                places = [i for i in range(1 if fixed else count) if kinds[i] == kind]
                if not places:
                    return False
                names[rng.choice(places)] = self.last
            known = [None if n is None else self.types[n].shape for n in names]
            if self.last is None and shape is not None and count and rng.random() < 0.8:
                known[0] = shape
            found = declared.drawn(rng, known, given)
            if found is None:
                continue
            if op in ("fill", "eye", "iota", "identity_kernel", "pool_kernel"):
                found = found[0], {**found[1], "dtype": self.dtype}
            if self.apply(op, found[0], found[1], names, kinds):
                return True
        return False

    def apply(
        self,
        op: str,
        shapes: Sequence[tuple[int, ...]],
        attrs: Mapping[str, Any],
        names: Sequence[str | None] | None = None,
        kinds: Sequence[str] | None = None,
    ) -> bool:
        """Adds an operator of operands of these shapes, new ones where not named; False where it does not take them."""
        names = list(names or [None] * len(shapes))
        kinds = kinds or [self.dtype] * len(shapes)
        declared = OPS[op]
        try:
            full = declared.complete(attrs)
            types = [TensorType.of(k, s) for k, s in zip(kinds, shapes, strict=True)]
            results = declared.result_types(types, full)
        except GraphError:
            return False
        if op.startswith(INDEXED) and 0 in types[0].static:  # there is nothing to read
            return False
        if any(math.prod(t.static) > 20000 for t in (*types, *results)):
            return False
        for i, type in enumerate(types):
            if names[i] is None:
                names[i] = self._operand(op, i, type, types, full)
            elif self.types[names[i]].shape != type.shape:
                return False
        outputs = tuple(f"v{len(self.nodes)}_{i}" for i in range(len(results)))
        node = Node(op, tuple(names), outputs, full)
        wide = Floats(wide=True)
        with np.errstate(all="ignore"):
            try:
                made = run_node(wide, node, [self.values[str(n)] for n in names], list(types), list(results))
            except ValueError:  # a term of einsum that takes a diagonal of what is no square
                return False
        for name, value, type in zip(outputs, made, results, strict=True):
            self.types[name], self.values[name] = type, np.asarray(value)
        self.nodes.append(node)
        self.last = outputs[self.rng.randrange(len(outputs))]
        return True

    def _operand(
        self, op: str, place: int, type: TensorType, types: Sequence[TensorType], attrs: Mapping[str, Any]
    ) -> str:
        name = f"x{len(self.arrays)}"
        array = self.elements(type)
        if type.dtype.is_integer and op.startswith(INDEXED) and place == 1:
            array = self._indices(op, type, types[0].static, attrs)
        elif array.size and type.rank and self.rng.random() < 0.15:
            axis = self.rng.randrange(type.rank)
            array = np.repeat(np.take(array, [0], axis), type.static[axis], axis)
        self.types[name], self.arrays[name] = type, array
        self.values[name] = array.astype(np.float64) if type.dtype.is_float else array
        if array.size == 1 and self.rng.random() < 0.5:
            self.constants[name] = Constant.of(array, type.dtype)
        return name

    def _indices(self, op: str, type: TensorType, shape: Sequence[int], attrs: Mapping[str, Any]) -> Array:
        if op.endswith("_nd"):
            depth = type.static[-1]
            sizes = np.array(shape[attrs.get("batch_dims", 0) :][:depth])
        else:
            sizes = np.array([shape[attrs["axis"]]])
        low, high = -sizes, sizes
        return self.numbers.integers(low, np.maximum(high, low + 1), type.static).astype(type.dtype.numpy)

    def elements(self, type: TensorType) -> Array:
        """Numbers that every float type holds exactly; infinities, NaN and -0 among them where asked for."""
        shape, numbers = type.static, self.numbers
        if type.dtype is DType.BOOL:
            return np.asarray(numbers.random(shape) < 0.5)
        if type.dtype.is_integer:
            low = 0 if type.dtype.value.startswith("u") else -9
            made = numbers.integers(low, 10, shape)
            if self.special:
                info = np.iinfo(type.dtype.numpy)
                extremes = np.array([info.min, info.max, info.max // 3], object)
                drawn = numbers.choice(extremes, shape)
                return np.asarray(np.where(numbers.random(shape) < 0.3, drawn, made)).astype(type.dtype.numpy)
            return np.asarray(made).astype(type.dtype.numpy)
        made = np.asarray(numbers.integers(-48, 49, shape) / 16)
        if self.tame:
            made = np.abs(made) / 4 + 0.25
        if self.special:
            rare = numbers.choice([np.inf, -np.inf, np.nan, -0.0, 0.0], shape)
            made = np.where(numbers.random(shape) < 0.2, rare, made)
        return np.asarray(made).astype(type.dtype.numpy)

    def case(self) -> Case:
        """The group as it stands, every operand and result held in some way."""
        read = {v for n in self.nodes for v in n.inputs}
        made = [o for n in self.nodes for o in n.outputs]
        results = [o for o in made if o not in read]
        shapes = {self.types[o].shape for o in results}
        if len(shapes) == 1 and self.rng.random() < 0.3:
            results += [o for o in made if o in read and self.types[o].shape in shapes]
        operands = {n: self.view(n, True) for n in self.arrays}
        views = {n: self.view(n, False) for n in results}
        group = Group(tuple(self.nodes), self.types, operands, views, self.constants)
        finite = [np.abs(v[np.isfinite(v)]) for v in self.values.values() if v.dtype == np.float64]
        scale = max((float(v.max()) for v in finite if v.size), default=1.0)
        return Case(group, self.arrays, {n: self.values[n] for n in results}, max(scale, 1.0))

    def view(self, name: str, operand: bool) -> View:
        """A way to hold a value: axes in any order, gaps, backward, repeated, misaligned, in a narrower float."""
        rng, type, dtype = self.rng, self.types[name], self.types[name].dtype
        if dtype.is_float and rng.random() < 0.25:
            dtype = rng.choice([DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
        rank = type.rank
        order = list(range(rank))
        if rng.random() < 0.35:
            rng.shuffle(order)
        if rng.random() < 0.45:
            return View.of(name, dtype, type.static, order)
        gaps = [rng.choice((0, 0, 0, 1, 3, 8)) for _ in range(rank)]
        view = View.of(name, dtype, [n + g for n, g in zip(type.static, gaps, strict=True)], order)
        for axis, (size, gap) in enumerate(zip(type.static, gaps, strict=True)):
            view = view.sliced(axis, rng.choice((0, gap)), size)
            if size and rng.random() < 0.12:
                view = view.sliced(axis, size - 1, size, -1)
        array = self.arrays.get(name)
        for axis, size in enumerate(type.static):
            if operand and array is not None and size > 1 and _is_repeated(array, axis):
                view = replace(view, strides=(*view.strides[:axis], 0, *view.strides[axis + 1 :]))
        return replace(view, offset=view.offset + rng.choice((0, 0, 1, 2, 8)))


def _is_repeated(array: Array, axis: int) -> bool:
    first = np.take(array, [0], axis)
    return bool(array.size) and bool((array == first).all())


def check(cases: Sequence[Case], *, descending: bool = False) -> None:
    """Generates the kernels of cases, compiles all at once, runs each, and compares what it makes."""
    sources = []
    for case in cases:
        source = generate(case.group)
        assert source is not None, f"no kernel for {case.group.label}"
        sources.append(source)
    build([source for source in sources if 0 not in source.grid])
    for case, source in zip(cases, sources, strict=True):
        verify(case, source, descending=descending)


def verify(case: Case, source: KernelSource, *, descending: bool = False) -> None:
    """Runs a kernel of a case, and compares what it makes."""
    operands = {name: (view, case.arrays[name]) for name, view in case.group.operands.items()}
    made = run(source, operands, case.group.results, descending=descending)
    for name, array in made.items():
        compare(case, name, array, source.text)


def compare(case: Case, name: str, made: Array, text: str) -> None:
    """Equal for integers and truth values, near for floats, with infinities and NaN where the reference has them."""
    wanted, dtype = case.wanted[name], case.group.results[name].dtype
    with np.errstate(all="ignore"):
        wanted = np.asarray(wanted).astype(dtype.numpy)
    if not dtype.is_float:
        np.testing.assert_array_equal(made, wanted, err_msg=f"{name}\n{text}")
        return
    made, wanted = made.astype(np.float64), wanted.astype(np.float64)
    slack = max(SLACK[t.value] for t in (dtype, *(t.dtype for n, t in case.group.types.items() if _narrow(case, n))))
    odd = ~np.isfinite(wanted)
    same = (made == wanted) | (np.isnan(made) & np.isnan(wanted))
    with np.errstate(invalid="ignore"):
        near = np.abs(made - wanted) <= slack * np.maximum(case.scale, np.abs(wanted))
    wrong = ~(same | (near & ~odd))
    assert not wrong.any(), f"{name}: {made[wrong][:4]} for {wanted[wrong][:4]}\n{text}"


def _narrow(case: Case, name: str) -> bool:
    """Whether a value is made in the type of its own: casts to narrower floats round, and float64 never is."""
    return any(n.op == "cast" and name in n.outputs for n in case.group.nodes) and case.group.types[name].dtype.is_float
