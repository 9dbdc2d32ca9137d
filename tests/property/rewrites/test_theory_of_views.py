"""Chains of views: what the theory writes is what NumPy computes, and views that differ are not proved equal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import example, given, settings
from numpy.typing import NDArray

import eqsat
from eqsat.rewrites.conditions.matrices import strided
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.views.reading import states_view
from eqsat.runtime.backend import select
from tests.support.view_terms import computed, filled, proved_forms, view_read


@st.composite
def integers(draw: st.DrawFn, size: int) -> tuple[NDArray[Any], str]:
    """Indices along an axis as a map of digits, and the condition that states them but for the name."""
    sizes = tuple(draw(st.lists(st.sampled_from([1, 2, 2, 3]), min_size=1, max_size=2)))
    strides = tuple(draw(st.lists(st.sampled_from([-2, -1, 1, 1, 2, 3]), min_size=len(sizes), max_size=len(sizes))))
    offsets = strided(0, sizes, strides)
    if int(offsets.max() - offsets.min()) >= size:
        sizes, strides, offsets = (1,), (1,), np.zeros(1, np.int64)
    start = draw(st.integers(-int(offsets.min()), size - 1 - int(offsets.max())))
    shape = sizes if draw(st.booleans()) else (math.prod(sizes),)
    return (offsets + start).reshape(shape), f"{start}, {sizes!r}, {strides!r}"


@st.composite
def chains(draw: st.DrawFn) -> tuple[str, tuple[int, ...], Mapping[str, NDArray[Any]], list[str]]:
    """A chain of views as a term, the shape of its operand, the indices that it reads, and conditions on all."""
    shape = tuple(draw(st.lists(st.sampled_from([1, 2, 3, 4, 6]), min_size=1, max_size=4)))
    text, x = "x0", np.arange(math.prod(shape)).reshape(shape)
    indices: dict[str, NDArray[Any]] = {}
    asked = [f"rank(x0) == {len(shape)}", *(f"dim(x0, {a}) == {d}" for a, d in enumerate(shape))]
    for _ in range(draw(st.integers(1, 12))):
        op = draw(st.sampled_from(["reshape", "transpose", "slice", "expand", "gather"]))
        now = computed(text, x, indices)
        if op == "gather" and now.ndim:
            axis, name = draw(st.integers(0, now.ndim - 1)), f"x{len(indices) + 1}"
            indices[name], stated = draw(integers(now.shape[axis]))
            asked += [f"is_strided({name}, {stated})", f"rank({name}) == {indices[name].ndim}"]
            asked += [f"dim({name}, {a}) == {d}" for a, d in enumerate(indices[name].shape)]
            text = f"gather({text}, {name}, axis={axis})"
            continue
        if op == "transpose":
            fields = f"perm={tuple(draw(st.permutations(range(now.ndim))))!r}"
        elif op == "slice" and now.ndim:
            axis = draw(st.integers(0, now.ndim - 1))
            size, step = now.shape[axis], draw(st.sampled_from([1, 1, 2, -1]))
            start = draw(st.integers(0, size - 1)) if step > 0 else size - 1
            end = draw(st.integers(start + 1, size)) if step > 0 else -1
            fields = f"axes=({axis},), starts=({start},), ends=({end},), steps=({step},)"
        elif op == "expand":
            if now.size > 500:
                continue
            fields = f"shape={tuple(3 if d == 1 and draw(st.booleans()) else d for d in now.shape)!r}"
        else:
            dims = [p for d in now.shape for p in {4: (2, 2), 6: (2, 3)}.get(d, (d,))]
            cut = draw(st.integers(0, len(dims)))
            op, fields = "reshape", f"shape={(*dims[:cut], math.prod(dims[cut:]))!r}"
        text = f"{op}({text}, {fields})"
    # Expands of what is large are left out; a term has at least one operator.
    text = text if text != "x0" else f"transpose(x0, perm={(*range(len(shape)),)!r})"
    return text, shape, indices, asked


#: Two equal digits of the indices add up to more than the digit of the axis that each fits into.
CARRYING = (
    "gather(reshape(transpose(x0, perm=(1, 0)), shape=(4,)), x1, axis=0)",
    (2, 2),
    {"x1": np.array([0, 1, 1, 2])},
    [
        *("rank(x0) == 2", "dim(x0, 0) == 2", "dim(x0, 1) == 2"),
        *("is_strided(x1, 0, (2, 2), (1, 1))", "rank(x1) == 1", "dim(x1, 0) == 4"),
    ],
)


@given(chains())
@example(CARRYING)
@settings(max_examples=200, deadline=None)
def test_what_is_written_for_a_chain_is_what_numpy_computes(
    chain: tuple[str, tuple[int, ...], Mapping[str, NDArray[Any]], list[str]],
) -> None:
    text, shape, indices, asked = chain
    view = view_read(text, asked)
    if view is None:
        return
    x = np.arange(math.prod(shape)).reshape(shape)
    wanted = computed(text, x, indices)
    assert np.array_equal(filled(view, {"x0": x}, {}), wanted)
    for form in proved_forms(view, text, asked, {"x0": shape}):
        assert np.array_equal(computed(form, x), wanted)


TURNED = "reshape(transpose(reshape(x0, shape=(2, 3, dim(x0, 1))), perm=(1, 0, 2)), shape=(6, dim(x0, 1)))"
ROWS = "rank(x0) == 2, dim(x0, 0) == 6, rank(x1) == 1, dim(x1, 0) == 6"


@pytest.mark.parametrize(
    ("right", "stated", "true"),
    [
        (TURNED, "0, (3, 2), (1, 3)", True),
        (TURNED, "0, (2, 3), (1, 2)", False),
        ("x0", "0, (6,), (1,)", True),
        ("x0", "0, (2, 3), (3, 1)", True),
        ("x0", "0, (6,), (2,)", False),
        ("slice(x0, axes=(0,), starts=(5,), ends=(-1,), steps=(-1,))", "5, (6,), (-1,)", True),
        ("slice(x0, axes=(0,), starts=(5,), ends=(-1,), steps=(-1,))", "-1, (6,), (-1,)", False),
    ],
)  # fmt: skip
def test_constant_indices_are_a_view_only_where_they_are_the_same_map(right: str, stated: str, true: bool) -> None:
    text = f"gather(x0, x1, axis=0) => {right} if {ROWS}, is_strided(x1, {stated})"
    (rule,) = parse_rules(f"%phase expand\none: {text}", origin="identity")
    assert states_view(rule) is true


def test_rows_that_are_interleaved_and_put_back_are_where_they_were() -> None:
    builder = eqsat.Graph("rows")
    x = builder.input("x", (24, 8), "float32")
    rows = builder.constant(np.arange(24).reshape(3, 8).T.reshape(-1))
    back = eqsat.gather(x, rows).reshape(8, 3, 8).transpose(1, 0, 2).reshape(24, 8)
    builder.output("y", eqsat.relu(back))
    found = eqsat.optimize(builder.build(), measure=False, cache=False).graph
    assert [node.op for node in found.nodes] == ["relu"]


NAMED = "rank(x0) == 3, dim(x0, 2) == 12"
HEADS = "transpose(reshape(x0, shape=(dim(x0, 0), dim(x0, 1), 3, 4)), perm=(0, 2, 1, 3))"
BACK = f"reshape(transpose({HEADS}, perm=(0, 2, 1, 3)), shape=(dim(x0, 0), dim(x0, 1), 12))"


@pytest.mark.parametrize(
    ("left", "right", "asked", "true"),
    [
        (BACK, "x0", NAMED, True),
        (BACK.replace("3, 4", "4, 3"), "x0", NAMED, True),
        (BACK, "x0", "rank(x0) == 3", False),
        (f"transpose({HEADS}, perm=(0, 1, 2, 3))", HEADS, NAMED, True),
        (HEADS, HEADS.replace("(0, 2, 1, 3)", "(0, 1, 2, 3)"), NAMED, False),
        ("transpose(x0, perm=(1, 0, 2))", "x0", "rank(x0) == 3, dim(x0, 0) == dim(x0, 1)", False),
        ("transpose(x0, perm=(1, 0))", "reshape(x0, shape=(dim(x0, 1), dim(x0, 0)))", "rank(x0) == 2", False),
    ],
)
def test_views_of_named_dims_are_equal_only_where_their_maps_are(left: str, right: str, asked: str, true: bool) -> None:
    (rule,) = parse_rules(f"%phase expand\none: {left} => {right} if {asked}", origin="identity")
    assert states_view(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


@pytest.mark.parametrize("batch", ["n", 4])
def test_a_chain_that_moves_digits_by_another_way_back_is_nothing(batch: int | str) -> None:
    builder = eqsat.Graph("there and back")
    x = builder.input("x", [batch, 6, 8], "float32")
    first = x.shape[0]
    moved = x[:, ::-1].reshape(first, 2, 12, 2).transpose(0, 2, 1, 3).reshape(first, 3, 4, 4).transpose(0, 2, 3, 1)
    back = moved.reshape(first, 4, 2, 2, 3).transpose(0, 2, 4, 1, 3).reshape(first, 6, 8)[:, ::-1]
    builder.output("y", eqsat.relu(back))
    found = eqsat.optimize(builder.build(), measure=False, cache=False).graph
    assert [node.op for node in found.nodes] == ["relu"]


WITHIN = {
    "a part of half of an axis": (
        lambda x: (
            x.reshape(4, 6, 2, 4)
            .transpose(0, 2, 1, 3)[:, :, :, 1:3]
            .reshape(8, 12)
            .reshape(4, 2, 2, 3, 2)
            .transpose(0, 2, 3, 1, 4)
            .reshape(4, 6, 2, 2)
        ),
        ["reshape", "slice", "relu"],
    ),
    "rows of a joined axis, and every second one of what is left": (
        lambda x: (
            x.reshape(4, 48).transpose(1, 0)[9:15].reshape(2, 3, 2, 2).transpose(2, 3, 1, 0).reshape(4, 6)[:, ::2]
        ),
        ["slice", "reshape", "relu"],
    ),
}


@pytest.mark.parametrize("name", WITHIN)
def test_parts_that_begin_within_an_axis_are_one_slice(name: str) -> None:
    make, wanted = WITHIN[name]
    builder = eqsat.Graph("within")
    builder.output("y", eqsat.relu(make(builder.input("x", (4, 6, 8), "float32"))))
    graph = builder.build()
    found = eqsat.optimize(graph, device="onnxruntime-cpu", measure=False, cache=False).graph
    assert [node.op for node in found.nodes] == wanted
    x = np.random.default_rng(0).standard_normal((4, 6, 8)).astype(np.float32)
    one, other = (select("numpy").compile(g).run({"x": x})["y"] for g in (graph, found))
    assert np.array_equal(one, other)


def test_views_are_one_map_where_rules_of_views_alone_are_chosen() -> None:
    rules = load_rules().named({"reshapes-compose", "transposes-compose", "slices-compose", "expands-compose"})
    builder = eqsat.Graph("views")
    builder.output("y", eqsat.relu(WITHIN["a part of half of an axis"][0](builder.input("x", (4, 6, 8), "float32"))))
    graph = builder.build()
    found = eqsat.optimize(graph, rules=rules, device="onnxruntime-cpu", measure=False, cache=False).graph
    assert [node.op for node in found.nodes] == ["reshape", "slice", "relu"]
    fewer = [rule for rule in rules if rule.name != "slices-compose"]
    found = eqsat.optimize(graph, rules=fewer, device="onnxruntime-cpu", measure=False, cache=False).graph
    assert len(found.nodes) > 3
