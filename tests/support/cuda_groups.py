"""Groups of operators for generated kernels: how they are written down, drawn views for them, and their references."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run_node
from eqsat.language.ops import spec
from eqsat.language.terms import Array, Attrs, DType, Node, TensorType
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.view import View

WIDE = Floats(wide=True)
#: Operators that no kernel computes but where there is one step: references run, on CuPy's functions or on the host.
WITHOUT_KERNEL = frozenset({"gru", "lstm", "rnn"})
#: Operators that no template knows.
WITHOUT_TEMPLATE = WITHOUT_KERNEL | {
    "conv_integer",
    "crop_resize",
    "dynamic_quantize_linear",
    "grid_sample",
    "grouped_attention",
    "lp_pool",
    "matmul_integer",
    "qlinear_conv",
    "qlinear_matmul",
    "resize",
    "resize_nearest",
}
_SUMMED = frozenset({"reduce_sum", "reduce_l1", "reduce_sum_square", "cumsum"})
_CENTRED = frozenset({"layer_norm", "instance_norm", "group_norm", "mvn"})
_LOGARITHMS = frozenset({"log_softmax", "reduce_log_sum", "reduce_log_sum_exp"})


@dataclass
class GroupBuilder:
    """Operands with their elements, and the nodes that are applied to them."""

    types: dict[str, TensorType] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)

    def operand(self, name: str, type: TensorType, array: Any, view: View | None = None) -> str:
        self.types[name] = type
        self.views[name] = View.of(name, type.dtype, type.static) if view is None else view
        self.arrays[name] = np.asarray(array).astype(self.views[name].dtype.numpy).reshape(type.static)
        return name

    def node(self, op: str, *inputs: str | None, name: str = "", **attrs: Any) -> str:
        made = name or f"{op}_{len(self.nodes)}"
        complete = spec(op).complete(attrs)
        types = [None if v is None else self.types[v] for v in inputs]
        (self.types[made],) = spec(op).result_types(types, complete)
        self.nodes.append(Node(op, inputs, (made,), Attrs(complete)))
        return made

    def magnitude(self, name: str, values: Mapping[str, Array]) -> Any:
        """How large the terms are whose rounding errors a value has beside its own: bounds, element by element."""
        node = next((n for n in self.nodes if n.outputs[0] == name), None)
        if node is None or values[name].dtype.kind != "f":
            return 0.0
        terms = [_finite(values[str(v)]) for v in node.inputs]
        largest = [float(t.max(initial=0.0)) for t in terms]
        passed = [self.magnitude(str(v), values) for v in node.inputs]
        if node.op in ("add", "sub"):
            return sum(terms) + sum(passed)
        if node.op == "mul":
            return passed[0] * terms[1] + passed[1] * terms[0]
        if node.op in ("relu", "sigmoid", "transpose", "reshape", "concat"):
            return max(np.max(p, initial=0.0) for p in passed)
        own = largest[0] + np.max(passed[0], initial=0.0)
        if node.op in _SUMMED:
            return own * (own if "square" in node.op else 1) * values[str(node.inputs[0])].size
        if node.op in _CENTRED:
            return own / node.attrs.get("epsilon", 1e-5) ** 0.5 * max([1.0, *largest[1:2]]) + sum(largest[2:])
        if node.op in _LOGARITHMS:
            return own + 1
        return own if "mean" in node.op or "avg" in node.op else _finite(values[name]) * own

    def group(self, results: Mapping[str, View]) -> Group:
        return Group(tuple(self.nodes), dict(self.types), dict(self.views), dict(results))

    def expected(self) -> dict[str, Array]:
        """Every value in float64, integers as they are, from the operands as they are held."""
        values: dict[str, Any] = {
            n: a.astype(np.float64) if self.types[n].dtype.is_float else a.astype(self.types[n].dtype.numpy)
            for n, a in self.arrays.items()
        }
        with np.errstate(all="ignore"):
            for node in self.nodes:
                types = [None if v is None else self.types[v] for v in node.inputs]
                operands = [None if v is None else values[v] for v in node.inputs]
                (values[node.outputs[0]],) = run_node(WIDE, node, operands, types, [self.types[node.outputs[0]]])
        return values


def _finite(x: Array) -> Array:
    """Absolute values, 0 for what is no number."""
    return np.abs(np.nan_to_num(x.astype(np.float64), nan=0.0, posinf=0.0, neginf=0.0))


@st.composite
def views(draw: st.DrawFn, name: str, dtype: DType, shape: Sequence[int]) -> View:
    """A view in a buffer of its own: plain, permuted, or a part of a larger one, in steps or backwards."""
    order = draw(st.permutations(range(len(shape)))) if draw(st.booleans()) else list(range(len(shape)))
    if draw(st.integers(0, 2)):
        return View.of(name, dtype, shape, order)
    cuts = [draw(st.tuples(st.integers(0, 2), st.integers(0, 2), st.sampled_from((1, 1, 1, 2, -1)))) for _ in shape]
    whole = [before + size * abs(step) + after for size, (before, after, step) in zip(shape, cuts, strict=True)]
    view = View.of(name, dtype, whole, order)
    for axis, (size, (before, _, step)) in enumerate(zip(shape, cuts, strict=True)):
        view = view.sliced(axis, before + (max(size - 1, 0) if step < 0 else 0), size, step)
    return view


def close(made: Array, expected: Array, magnitude: Any, count: int) -> str:
    """What differs by more than the type it is held in rounds, and sums of `count` terms in the one computed in."""
    if expected.dtype.kind not in "f":
        return "" if np.array_equal(made, expected) else f"{made} is not {expected}"
    held = made.dtype
    made = made.astype(np.float64)
    computed = 2.0**-53 if held == np.float64 else 2.0**-24
    unit, least = _steps(held)
    with np.errstate(all="ignore"):
        expected = np.where(np.abs(expected) > float(_largest(held)), np.sign(expected) * np.inf, expected)
        finite = np.isfinite(expected)
        room = unit * np.abs(expected) + computed * (16 + 2 * count**0.5) * (magnitude + np.abs(expected)) + least
        wrong = (
            finite & ~(np.abs(made - expected) <= room) & ~(np.isinf(made) & (np.abs(expected) > 0.99 * _largest(held)))
        )
        wrong |= ~finite & ~((made == expected) | (np.isnan(made) & np.isnan(expected)))
    if not wrong.any():
        return ""
    at = tuple(np.argwhere(wrong)[0])
    return f"{wrong.sum()} of {wrong.size} differ: at {at} {made[at]} is not {expected[at]} ({room[at]:.2g} allowed)"


def _steps(held: np.dtype[Any]) -> tuple[float, float]:
    """The relative error of rounding to a type, and half its smallest step."""
    if held == np.float64:
        return 2.0**-53, 0.0
    bits = {"float32": (24, -149), "float16": (11, -24), "bfloat16": (8, -133)}[held.name]
    return 2.0 ** -bits[0], 2.0 ** (bits[1] - 1)


def _largest(held: np.dtype[Any]) -> float:
    return {"float64": 1.79e308, "float32": 3.4028234e38, "float16": 65504.0, "bfloat16": 3.3895314e38}[held.name]
