"""Sums of sums of products: what the theory writes is what NumPy computes, and sums that differ are not equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import assume, given, settings
from numpy.typing import NDArray

import eqsat
from eqsat.errors import RuleError
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.contractions import UnreadError
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.linear.combinations import CombinationReader, states_combination
from eqsat.rewrites.theories.linear.writing import CombinationWriter
from eqsat.rewrites.theories.orders import PairwiseSteps
from eqsat.rewrites.theories.stating import term_of
from eqsat.runtime.backend import select

Shape = tuple[int, ...]

_NAMESPACE = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "neg": np.negative,
    "matmul": np.matmul,
    "reshape": lambda x, shape: np.reshape(x, shape),
    "transpose": lambda x, perm: np.transpose(x, perm),
    "expand": lambda x, shape: np.broadcast_to(x, np.broadcast_shapes(np.shape(x), shape)),
    "reduce_sum": lambda x, axes, keepdims=False: np.sum(x, axis=axes, keepdims=keepdims),
    "reduce_mean": lambda x, axes, keepdims=False: np.mean(x, axis=axes, keepdims=keepdims),
    "fill": lambda shape, value, dtype: np.full(shape, value),
    "dtype": lambda x: x.dtype,
}
#: Operands: matrices, a row, a number, a matrix that is three times the identity, and one of equal elements.
OPERANDS: dict[str, Any] = {
    "x0": np.random.default_rng(0).standard_normal((4, 4)),
    "x1": np.random.default_rng(1).standard_normal((4, 4)),
    "x2": np.random.default_rng(2).standard_normal((1, 4)),
    "x3": 3.0 * np.eye(4),
    "x4": np.full((4, 4), 0.5),
}
CONDITIONS = [
    *(f"rank({name}) == {x.ndim}" for name, x in OPERANDS.items()),
    *(f"dim({name}, {axis}) == {d}" for name, x in OPERANDS.items() for axis, d in enumerate(x.shape)),
    "is_diagonal(x3, 3.0)",
    "is_all(x4, 0.5)",
]


def computed(text: str) -> NDArray[Any]:
    """The value of a term by NumPy."""
    return np.asarray(eval(text, {**_NAMESPACE, **OPERANDS}))


def asked_of(text: str) -> list[str]:
    """The conditions on the operands of a term."""
    return [condition for condition in CONDITIONS if any(f"({name}" in condition for name in OPERANDS if name in text)]


@st.composite
def terms(draw: st.DrawFn, depth: int = 3) -> str:
    """A term that adds, multiplies, sums, and moves axes of matrices."""
    if depth == 0:
        return draw(st.sampled_from(sorted(OPERANDS)))
    op = draw(st.sampled_from(["add", "sub", "mul", "matmul", "neg", "transpose", "reduce", "spread", "joined"]))
    x = draw(terms(depth - 1))
    if op == "neg":
        return f"neg({x})"
    if op == "transpose":
        return f"transpose({x}, perm=(1, 0))"
    if op == "reduce":
        f, axis = draw(st.sampled_from(["reduce_sum", "reduce_mean"])), draw(st.sampled_from([0, 1]))
        return f"{f}({x}, axes=({axis},), keepdims=True)"
    if op == "spread":
        return f"expand({x}, shape=(4, 4))"
    if op == "joined":
        rows, columns = computed(x).shape
        return f"reshape(reshape({x}, shape=({rows * columns},)), shape=({rows}, {columns}))"
    y = draw(terms(depth - 1))
    if op == "matmul" and computed(x).shape[1] != computed(y).shape[0]:
        return f"mul({x}, {y})"
    return f"{op}({x}, {y})"


@given(terms())
@settings(max_examples=150, deadline=None)
def test_what_is_written_for_a_sum_of_products_is_what_numpy_computes(text: str) -> None:
    read = term_of(text, asked_of(text))
    assume(read is not None)
    assert read is not None
    reader = CombinationReader.under(read[1])
    try:
        (whole,) = reader.finished([reader.followed(read[0])])
        forms = list(_writer(reader).written(whole))
    except UnreadError:
        return
    expected = computed(text)
    for form in forms:
        found = computed(form.text)
        assert found.shape == expected.shape, form.text
        assert np.allclose(found, expected, rtol=1e-9, atol=1e-9 * max(1.0, float(np.abs(expected).max()))), form.text


def _writer(reader: CombinationReader) -> CombinationWriter:
    steps = PairwiseSteps(dict(enumerate(reader.indices.dims)))
    return CombinationWriter(steps, frozenset({"x3", "x4"}), "x0")


@given(terms(), terms())
@settings(max_examples=100, deadline=None)
def test_terms_with_other_values_are_not_proved_equal(one: str, other: str) -> None:
    asked = ", ".join([*asked_of(one), *(f"finite({name})" for name in OPERANDS if name in one)])
    try:
        (rule,) = parse_rules(f"%phase expand\none: {one} => {other} if {asked}", "a test", origin="identity")
    except RuleError:  # one that reads other operands
        assume(False)
    a, b = computed(one), computed(other)
    if a.shape != b.shape or not np.allclose(a, b, rtol=1e-6, atol=1e-6):
        assert not states_combination(rule)


TWO, FOUR = (f"fill(shape=(), value={value}, dtype=dtype(x))" for value in (2.0, 4.0))
SQUARE = "rank(x) == 2, rank(y) == 2, dim(x, 0) == 4, dim(x, 1) == 4, dim(y, 0) == 4, dim(y, 1) == 4"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        (f"(x + y) @ x => x @ x + y @ x if {SQUARE}, finite(x, y)", True),
        (f"(x + y) @ x => x @ x + x @ y if {SQUARE}, finite(x, y)", False),
        (f"(x + y) @ x => x @ x + y @ x if {SQUARE}, finite(x)", False),
        (f"(x + y) @ x => x @ x - y @ x if {SQUARE}, finite(x, y)", False),
        (f"(c - x) @ y => y * {TWO} - x @ y if {SQUARE}, rank(c) == 2, dim(c, 0) == 4, dim(c, 1) == 4, "
         "is_diagonal(c, 2.0), finite(x, y, c)", True),
        (f"(c - x) @ y => y * {TWO} - x @ y if {SQUARE}, rank(c) == 2, dim(c, 0) == 4, dim(c, 1) == 4, "
         "is_diagonal(c, 3.0), finite(x, y, c)", False),
        (f"reduce_sum(x + y, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) + y * {FOUR} "
         "if rank(x) == 2, rank(y) == 2, dim(x, 0) == 4, dim(y, 0) == 1, dim(x, 1) == dim(y, 1), finite(x, y)", True),
        (f"reduce_sum(x + y, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) + y * {FOUR} "
         "if rank(x) == 2, rank(y) == 2, dim(x, 0) == 5, dim(y, 0) == 1, dim(x, 1) == dim(y, 1), finite(x, y)", False),
        (f"reduce_sum(x + y, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) + y * {FOUR} "
         "if rank(x) == 2, rank(y) == 2, dim(y, 0) == 1, dim(x, 1) == dim(y, 1), finite(x, y)", False),
    ],
)  # fmt: skip
def test_an_equation_is_proved_only_where_both_sides_are_one_sum_of_products(text: str, true: bool) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {text}", "a test", origin="identity")
    assert states_combination(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def test_axes_that_are_taken_apart_in_two_ways_are_not_the_same() -> None:
    """An axis of 16 elements is 2 times 8 of them or 4 times 4, over each of which another operand is spread."""
    asked = "rank(x) == 1, dim(x, 0) == 16, rank(y) == 1, dim(y, 0) == 4, finite(x, y)"
    apart = {(4, 4): "reshape(y, shape=(4, 1))", (2, 8): "reshape(y, shape=(1, 4))"}

    def sums(shape: Shape, beside: str) -> str:
        return f"reduce_sum(mul(reshape(x, shape={shape!r}), {beside}), axes=(0, 1), keepdims=False)"

    one, other = sums((4, 4), apart[4, 4]), sums((4, 4), apart[2, 8])
    (rule,) = parse_rules(f"%phase expand\none: {one} => {other} if {asked}", "a test", origin="identity")
    assert not states_combination(rule)
    (rule,) = parse_rules(f"%phase expand\none: {one} => {one} if {asked}", "a test", origin="identity")
    assert states_combination(rule)


def _graph(make: Any, *shapes: Sequence[int]) -> Any:
    builder = eqsat.Graph("sums")
    builder.output("y", make(*(builder.input(f"x{n}", tuple(shape)) for n, shape in enumerate(shapes))))
    return builder.build()


@pytest.mark.parametrize(
    ("make", "shapes", "share"),
    [
        (lambda v, x: (np.eye(256, dtype=np.float32) - (v @ v.transpose(1, 0)) * 2.0) @ x, [(256, 1), (256, 64)], 0.2),
        (lambda a, b: eqsat.reduce_sum(a + b, 0, keepdims=True), [(512, 512), (1, 512)], 0.5),
        (lambda a, w, b: eqsat.reduce_mean(a @ w + b, 0), [(512, 256), (256, 512), (512,)], 0.2),
        (
            lambda a, b, x: (a.reshape(32, 1, 32, 1) * b.reshape(1, 32, 1, 32)).reshape(1024, 1024) @ x,
            [(32, 32), (32, 32), (1024, 1)],
            0.2,
        ),
        (lambda x: eqsat.reduce_sum(eqsat.relu(eqsat.expand(x, shape=(512, 1024))), 0), [(1, 1024)], 0.1),
    ],
)
def test_work_that_only_all_steps_together_save_is_saved(make: Any, shapes: list[Shape], share: float) -> None:
    graph = _graph(make, *shapes)
    result = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False)
    assert result.report.cost_after < share * result.report.cost_before
    random = np.random.default_rng(0)
    inputs = {f"x{n}": random.standard_normal(shape, np.float32) for n, shape in enumerate(shapes)}
    first, second = (next(iter(select("numpy").compile(g).run(inputs).values())) for g in (graph, result.graph))
    assert np.abs(first - second).max() <= 1e-4 * np.abs(first).max()
