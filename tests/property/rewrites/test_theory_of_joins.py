"""Sums of products side by side as one sum: true equations are proved, false ones are not, and rotations are found."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import eqsat
from eqsat import Tensor, concat, stack
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.joins.labels import states_joined
from eqsat.runtime.backend import select

FIRST, SECOND = (f"slice(x, axes=(1,), starts=({n},), ends=({n + 3},), steps=(1,))" for n in (0, 3))
LEFT = f"concat(sub(mul({FIRST}, c), mul({SECOND}, s)), add(mul({SECOND}, c), mul({FIRST}, s)), axis=1)"
RIGHT = f"add(mul(x, concat(c, c, axis=1)), mul(concat({SECOND}, {FIRST}, axis=1), concat(neg(s), s, axis=1)))"
SIZES = "rank(x) == 2, dim(x, 0) == 2, dim(x, 1) == 6, " + ", ".join(
    f"rank({n}) == 2, dim({n}, 0) == 2, dim({n}, 1) == 3" for n in "cs"
)


@pytest.mark.parametrize(
    ("right", "sizes", "true"),
    [
        (RIGHT, SIZES, True),
        (RIGHT.replace("concat(neg(s), s", "concat(s, s"), SIZES, False),
        (RIGHT.replace("concat(neg(s), s", "concat(s, neg(s)"), SIZES, False),
        (RIGHT.replace("concat(c, c", "concat(c, s"), SIZES, False),
        (RIGHT.replace(f"concat({SECOND}, {FIRST}", f"concat({FIRST}, {SECOND}"), SIZES, False),
        (RIGHT.replace(f"concat({SECOND}, {FIRST}", f"concat({SECOND}, {SECOND}"), SIZES, False),
        (f"sub{RIGHT.removeprefix('add')}", SIZES, False),
        (f"neg({RIGHT})", SIZES, False),
        (f"add(mul(x, x), {RIGHT})", SIZES, False),
        (f"mul({RIGHT}, x)", SIZES, False),
        (f"transpose({RIGHT}, perm=(1, 0))", SIZES, False),
        (RIGHT, SIZES.replace(", dim(s, 1) == 3", ""), False),
    ],
)
def test_an_equation_is_proved_only_where_each_element_is_the_same_sum(right: str, sizes: str, true: bool) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {LEFT} => {right} if {sizes}", "a test", origin="identity")
    assert states_joined(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def _parts(x: Tensor, by_pairs: bool) -> tuple[Tensor, Tensor]:
    half = int(x.shape[-1]) // 2
    return (x[..., ::2], x[..., 1::2]) if by_pairs else (x[..., :half], x[..., half:])


def _joined(parts: list[Tensor], by_pairs: bool, shape: tuple[int, ...]) -> Tensor:
    return stack(parts, axis=len(shape)).reshape(*shape) if by_pairs else concat(parts, axis=len(shape) - 1)


@given(
    dims=st.sampled_from([(5,), (2, 3), (2, 3, 4)]),
    half=st.integers(1, 4),
    by_pairs=st.booleans(),
    along=st.integers(0, 2),
    signs=st.tuples(st.booleans(), st.booleans()),
    swapped=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=25, deadline=None)
def test_a_turn_of_elements_is_one_sum_of_the_same_numbers(
    dims: tuple[int, ...],
    half: int,
    by_pairs: bool,
    along: int,
    signs: tuple[bool, bool],
    swapped: bool,
    seed: int,
) -> None:
    random, shape = np.random.default_rng(seed), (*dims, 2 * half)
    builder = eqsat.Graph("turn")
    x = builder.input("x", shape, "float32")
    own = (*dims[max(0, len(dims) - along) :], half)
    c, s = (builder.constant(random.standard_normal(own).astype(np.float32)) for _ in range(2))
    a, b = _parts(x, by_pairs)
    first = a * c - b * s if signs[0] else a * c + b * s
    second = (a * s - b * c if signs[1] else a * s + b * c) if swapped else b * c - a * s if signs[1] else b * c + a * s
    builder.output("y", _joined([first, second], by_pairs, shape))
    graph = builder.build()
    result = eqsat.optimize(graph, device="nvidia-h200", measure=False, cache=False)
    ops = [node.op for node in result.graph.nodes]
    assert ops.count("mul") <= 2
    assert ops.count("add") + ops.count("sub") <= 1
    data = random.standard_normal(shape).astype(np.float32)
    data.flat[0] = np.inf
    with np.errstate(all="ignore"):
        wanted, found = (select("numpy").compile(g).run({"x": data})["y"] for g in (graph, result.graph))
    assert np.array_equal(wanted, found, equal_nan=True)


@pytest.mark.parametrize("kind", ["two tensors", "a factor that is computed", "overlapping halves", "three products"])
def test_other_sums_side_by_side_stay_apart(kind: str) -> None:
    random = np.random.default_rng(0)
    builder = eqsat.Graph("apart")
    x, z = (builder.input(name, (2, 6), "float32") for name in "xz")
    c, s = (builder.constant(random.standard_normal(3).astype(np.float32)) for _ in range(2))
    a, b = x[:, :3], x[:, 3:]
    if kind == "two tensors":
        b = z[:, 3:]
    if kind == "a factor that is computed":
        c = z[:, :3]
    if kind == "overlapping halves":
        b = x[:, 2:5]
    more = a * z[:, :3] if kind == "three products" else None
    first, second = a * c - b * s, b * c + a * s
    builder.output("y", concat([first if more is None else first + more, second], axis=1))
    graph = builder.build()
    result = eqsat.optimize(graph, device="nvidia-h200", measure=False, cache=False)
    inputs: dict[str, Any] = {name: random.standard_normal((2, 6)).astype(np.float32) for name in graph.inputs}
    wanted, found = (select("numpy").compile(g).run(inputs)["y"] for g in (graph, result.graph))
    assert np.allclose(wanted, found, rtol=1e-4, atol=1e-5)
    assert not any("joined" in str(change.rules) for change in result.report.changes)
