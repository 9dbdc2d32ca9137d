"""Sizes computed by integer operators, in the spellings of exporters: each is read as the polynomial that it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import hypothesis.strategies as st
import numpy as np
import onnx
from hypothesis import given, settings
from onnx import TensorProto, helper, numpy_helper

from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import Dim, Graph, Sym, evaluate
from eqsat.runtime.backend import select

#: The dims of the inputs, by where a shape has them.
BATCH, PAST, NEW = map(Sym.named, ("batch", "past", "new"))
PLACES: dict[Dim, tuple[str, int]] = {BATCH: ("x", 0), NEW: ("x", 1), PAST: ("c", 1)}
INPUTS = {"x": ("batch", "new", 12), "c": ("batch", "past", 12)}
SIZES = ({"batch": 1, "past": 0, "new": 1}, {"batch": 2, "past": 3, "new": 1}, {"batch": 3, "past": 4, "new": 5})


class Speller:
    """The nodes of a model that computes sizes; every value is a vector of one element."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def add(self, op: str, *operands: str, **attrs: object) -> str:
        """The value of a new node."""
        self.nodes.append(helper.make_node(op, list(operands), [f"v{len(self.nodes)}"], **attrs))
        return str(self.nodes[-1].output[0])

    def integers(self, *values: int, scalar: bool = False) -> str:
        """A constant."""
        array = np.array(values[0] if scalar else values, np.int64)
        self.constants.append(numpy_helper.from_array(array, f"k{len(self.constants)}"))
        return str(self.constants[-1].name)

    def graph(self, outputs: Sequence[str]) -> Graph:
        """The model as it is read, its outputs of types that are not stated."""
        inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, shape) for n, shape in INPUTS.items()]
        results = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None, None]) for n in outputs]
        graph = helper.make_graph(self.nodes, "spelled", inputs, results, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model)
        return load(model)


@st.composite
def atoms(draw: st.DrawFn, model: Speller, dim: Dim) -> str:
    """A named dim, taken out of a shape."""
    name, axis = PLACES[dim]
    kind = draw(st.sampled_from(["scalar", "vector", "slice", "from the end", "attributes", "split", "product"]))
    if kind == "attributes":
        return model.add("Shape", name, start=axis, end=axis + 1)
    shape = model.add("Shape", name)
    if kind == "scalar":
        return model.add("Unsqueeze", model.add("Gather", shape, model.integers(axis, scalar=True)), model.integers(0))
    if kind == "vector":
        return model.add("Gather", shape, model.integers(axis), axis=0)
    if kind == "slice":
        return model.add("Slice", shape, model.integers(axis), model.integers(axis + 1), model.integers(0))
    if kind == "from the end":
        return model.add("Slice", shape, model.integers(axis - 3), model.integers(axis - 2), model.integers(0))
    if kind == "split":
        parts = [f"v{len(model.nodes)}_{place}" for place in range(3)]
        model.nodes.append(helper.make_node("Split", [shape, model.integers(1, 1, 1)], parts, axis=0))
        return parts[axis]
    # The product of all dims by that of the others.
    others = [place for place in range(3) if place != axis]
    rest = model.add("ReduceProd", model.add("Gather", shape, model.integers(*others)), keepdims=1)
    return model.add("Div", model.add("Reshape", model.add("Size", name), model.integers(1)), rest)


#: The polynomials that are spelled: an atom, a number, or two of them added or multiplied.
Formula: TypeAlias = "tuple[str, Formula, Formula] | int | Sym"
FORMULAS: st.SearchStrategy[Formula] = st.recursive(
    st.one_of(st.sampled_from([BATCH, PAST, NEW]), st.integers(1, 6)),
    lambda inner: st.tuples(st.sampled_from("+*"), inner, inner),
    max_leaves=4,
)


def value_of(formula: Formula) -> Dim:
    """The polynomial of a formula."""
    if not isinstance(formula, tuple):
        return formula
    op, one, other = formula
    a, b = value_of(one), value_of(other)
    return a + b if op == "+" else a * b


@st.composite
def spelled(draw: st.DrawFn, model: Speller, formula: Formula) -> str:
    """A formula computed one way or another."""

    def again(one: Formula) -> str:
        return str(draw(spelled(model, one)))

    if isinstance(formula, int):
        found = model.integers(formula)
    elif isinstance(formula, Sym):
        found = draw(atoms(model, formula))
    else:
        op, one, other = formula
        if draw(st.booleans()):
            one, other = other, one
        if op == "*" and isinstance(other, tuple) and other[0] == "+" and draw(st.booleans()):
            return again(("+", ("*", one, other[1]), ("*", other[2], one)))
        a, b = again(one), again(other)
        joined = draw(st.sampled_from(["operator", "reduction"]))
        if joined == "operator":
            found = model.add("Add" if op == "+" else "Mul", a, b)
        elif op == "*":
            found = model.add("ReduceProd", model.add("Concat", a, b, axis=0), axes=[0], keepdims=1)
        else:
            found = model.add("ReduceSum", model.add("Concat", a, b, axis=0), model.integers(0), keepdims=1)
    return _rewritten(draw(st.sampled_from(list(DETOURS))), model, found, again)


#: What leaves a size as it is.
DETOURS: dict[str, Callable[[Speller, str, Callable[[Formula], str]], str]] = {
    "none": lambda m, v, again: v,
    "nothing at all": lambda m, v, again: v,
    "as 32 bits": lambda m, v, again: m.add("Cast", m.add("Cast", v, to=TensorProto.INT32), to=TensorProto.INT64),
    "as a scalar": lambda m, v, again: m.add("Reshape", m.add("Squeeze", v, m.integers(0)), m.integers(1)),
    "among others": lambda m, v, again: m.add(
        "Slice", m.add("Concat", m.integers(7), v, m.integers(9), axis=0), m.integers(1), m.integers(2), m.integers(0)
    ),
    "added and taken away": lambda m, v, again: m.add("Sub", m.add("Add", v, (a := again(PAST))), a),
    "times a sum, by it": lambda m, v, again: m.add("Div", m.add("Mul", v, (a := again(("+", BATCH, NEW)))), a),
    "unless it is -1": lambda m, v, again: m.add(
        "Where", m.add("Equal", v, m.integers(-1)), m.integers(1), v
    ),
    "no less than 0": lambda m, v, again: m.add("Max", v, m.integers(0)),
    "negated twice": lambda m, v, again: m.add("Neg", m.add("Neg", v)),
    "expanded and cut": lambda m, v, again: m.add(
        "Slice", m.add("Expand", v, m.integers(3)), m.integers(0), m.integers(1), m.integers(0)
    ),
}  # fmt: skip


def _rewritten(name: str, model: Speller, value: str, again: Callable[[Formula], str]) -> str:
    return DETOURS[name](model, value, again)


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_two_spellings_of_a_size_are_one_polynomial(data: st.DataObject) -> None:
    model, formula = Speller(), data.draw(FORMULAS)
    one = numpy_helper.from_array(np.ones((1, 1), np.float32), "one")
    model.constants.append(one)
    for place in range(2):
        size = data.draw(spelled(model, formula))
        shape = model.add("Concat", size, model.integers(2), axis=0)
        model.nodes.append(helper.make_node("Expand", ["one", shape], [f"y{place}"]))
    graph = model.graph(["y0", "y1"])
    wanted = value_of(formula)
    assert {node.op for node in graph.nodes} <= {"expand"}
    for name in ("y0", "y1"):
        assert graph.type(graph.outputs[name]).shape == (wanted, 2)
    for sizes in SIZES:
        feeds = {n: np.zeros([sizes.get(str(d), d) for d in shape], np.float32) for n, shape in INPUTS.items()}
        found = select("numpy").compile(graph).run(feeds)
        assert all(found[name].shape == (evaluate(wanted, sizes), 2) for name in ("y0", "y1"))
