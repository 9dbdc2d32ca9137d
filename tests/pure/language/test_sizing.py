"""Sizes of named dims are solved for: what a model's operators accept, near what is asked for, and small."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.sizes.search import SizeSearch, proved
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import Constraint, Dim, Graph, Sym
from eqsat.runtime.backend import execute
from eqsat.runtime.examples import example_inputs
from eqsat.system.deadline import Deadline

N, M = Sym.named("n"), Sym.named("m")


def graph(build: Callable[[Builder, Any], Tensor], *shapes: Sequence[Dim | str], dtype: str = "float32") -> Graph:
    g = eqsat.Graph("g")
    made = build(g, *(g.input(f"x{i}", shape, dtype) for i, shape in enumerate(shapes)))
    g.output("y", made)
    return g.build()


def weight(*shape: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def conv(g: Builder, x: Tensor, kernel: int = 3, stride: int = 1, pads: int = 0) -> Tensor:
    return g.apply("conv", x, g.constant(weight(2, 3, kernel, kernel)), strides=(stride,) * 2, pads=(pads,) * 4)


def cut(g: Builder, x: Tensor, start: Dim, end: Dim) -> Tensor:
    return g.apply("slice", x, starts=(start,), ends=(end,), axes=(0,), steps=(1,))


#: What a model does, the shape of its input, what it takes nearest to 16, nearest to 7 and at least.
MODELS: dict[str, tuple[Callable[..., Tensor], tuple[Dim | str, ...], int, int, int]] = {
    "nothing": (lambda g, x: eqsat.relu(x), (N, 3), 16, 7, 1),
    "a slice from the fourth element": (lambda g, x: cut(g, x, 3, N), (N, 2), 16, 7, 4),
    "a slice up to the fourth from the end": (lambda g, x: cut(g, x, 0, N - 3), (N, 2), 16, 7, 4),
    "rows of 32": (lambda g, x: g.apply("reshape", x, shape=(N // 32, 32)), (N,), 32, 32, 32),
    "rows of 3": (lambda g, x: g.apply("reshape", x, shape=(N // 3, 3)), (N,), 18, 6, 3),
    "four elements times n": (lambda g, x: g.apply("reshape", x, shape=(N // 4, 8)), (N, 2), 16, 8, 4),
    "a window of 20": (lambda g, x: conv(g, x, 20), (1, 3, N, 20), 20, 20, 20),
    "a window of 9 padded by 2": (lambda g, x: conv(g, x, 9, 2, 2), (1, 3, N, N), 16, 7, 5),
    "a table of 12 rows": (lambda g, x: x + cut(g, g.constant(weight(12, 1)), 0, Sym.function("min", N, 12)),
                           (N, 1), 12, 7, 1),
    "a weight of 40 rows": (lambda g, x: x @ g.constant(weight(40, 2)), (3, N), 40, 40, 40),
    "a bias of 24": (lambda g, x: x + g.constant(weight(24)), (3, N), 24, 24, 24),
    "the sixth element": (lambda g, x: g.apply("gather", x, g.constant(np.array([5])), axis=0), (N, 2), 16, 7, 6),
    "a reflection of 5": (lambda g, x: g.apply("pad", x, pads=(5, 5), mode="reflect"), (N,), 16, 7, 6),
    "a negative pad": (lambda g, x: g.apply("pad", x, pads=(-4, -4)), (N,), 16, 9, 9),
    "a multiple of it and one": (lambda g, x: eqsat.relu(x), (2 * N + 1,), 16, 7, 1),
    "halves": (lambda g, x: g.apply("split", x, axis=0, sizes=(N // 2, N // 2)), (N,), 16, 8, 2),
    "blocks of 6": (lambda g, x: g.apply("space_to_depth", x, blocksize=6), (1, 1, N, 6), 18, 6, 6),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_sizes_are_the_nearest_that_run_on_onnx_runtime(name: str) -> None:
    build, shape, default, near, least = MODELS[name]

    def first(g: Builder, x: Tensor) -> Tensor:
        made = build(g, x)
        return made[0] if isinstance(made, list | tuple) else made

    built = graph(first, shape)
    sizing = sizing_of(built)
    assert sizing.unread is None
    assert [sizing.near(), sizing.near({"n": 7}), sizing.smallest()] == [{"n": s} for s in (default, near, least)]
    for sizes in (*sizing.several(), sizing.near(), sizing.near({"n": 7})):
        execute(built, example_inputs(built, sizes or {}, 0), "onnxruntime")


def test_sizes_below_the_smallest_are_not_accepted_and_do_not_run() -> None:
    built = graph(lambda g, x: conv(g, x, 20), (1, 3, N, 20))
    assert sizing_of(built).accepts({"n": 20})
    assert not sizing_of(built).accepts({"n": 19})
    with pytest.raises(eqsat.EqsatError):
        execute(built, {"x0": np.zeros((1, 3, 19, 20), np.float32)}, "onnxruntime")


def test_dims_that_must_be_equal_are_and_others_differ() -> None:
    added = graph(lambda g, x, y: x + y, (N, 3), (M, 3))
    assert sizing_of(added).near({"n": 4}) == {"n": 4, "m": 4}
    apart = graph(lambda g, x, y: eqsat.concat([x, y], axis=0), (N, 3), (M, 3))
    assert sizing_of(apart).several() == [{"n": 5, "m": 3}, {"n": 1, "m": 1}]
    doubled = graph(lambda g, x, y: eqsat.concat([x, x], axis=0) + y, (N, 3), (M, 3))
    assert sizing_of(doubled).near({"m": 9}) == {"n": 5, "m": 10}


def test_products_of_two_names_must_divide() -> None:
    built = graph(lambda g, x: g.apply("reshape", x, shape=(N * M // 12, 12)), (N, M))
    for wanted in ({}, {"n": 5}, {"n": 5, "m": 7}, {"m": 1}):
        sizes = sizing_of(built).near(wanted)
        assert sizes is not None
        assert sizes["n"] * sizes["m"] % 12 == 0
    assert sizing_of(built).near({"n": 5}) == {"n": 5, "m": 24}


def test_the_size_that_is_asked_for_first_is_kept_where_both_cannot_be() -> None:
    built = graph(lambda g, x, y: eqsat.concat([x, x], axis=0) + y, (N, 3), (M, 3))
    assert sizing_of(built).near({"n": 3, "m": 9}) == {"n": 3, "m": 6}


def test_large_sizes_that_are_asked_for_are_kept() -> None:
    built = graph(lambda g, x: g.apply("reshape", x, shape=(N // 64, 64)), (N,))
    assert sizing_of(built).near({"n": 1_000_000}) == {"n": 1_000_000}
    assert sizing_of(built).near({"n": 1_000_001}) == {"n": 1_000_000}


def test_a_graph_that_nothing_fits_has_no_sizes_and_says_so() -> None:
    def build(g: Builder, x: Tensor) -> Tensor:
        one, two = cut(g, x, 0, N - 40), g.constant(weight(50))
        return g.apply("reshape", one + g.constant(weight(7)), shape=(7,)) + cut(g, two + x, 0, 7)

    built = graph(build, (N,))
    assert sizing_of(built).near() is None
    assert sizing_of(built).smallest() is None
    assert sizing_of(built).several() == []


def test_equal_graphs_have_the_same_sizes_however_long_they_are() -> None:
    def build(g: Builder, x: Tensor) -> Tensor:
        for _ in range(2000):
            x = eqsat.relu(x) + x
        for _ in range(5):
            x = g.apply("max_pool", x, kernel=(3, 3), strides=(2, 2))
        return x

    shape = ("batch", 3, "height", "width")
    both = [sizing_of(graph(build, shape)).near({"height": 5}) for _ in range(2)]
    assert both[0] == both[1] == {"batch": 16, "height": 63, "width": 63}


def test_z3_finds_what_the_search_cannot() -> None:
    a, b, c = (Sym.named(n) for n in "abc")
    constraints = [
        Constraint("equal", 17 * a + 19 * b, 23 * c + 100_003),
        Constraint("at_least", a, 2000),
        Constraint("at_least", c, b + 30),
        *(Constraint("present", d) for d in (a, b, c)),
    ]
    orders = dict.fromkeys("abc", ("from", 16))
    sizes = proved(constraints, orders, elements=True, equal=True)  # type: ignore[arg-type]
    assert sizes is not None
    assert all(c.holds(sizes, elements=True) for c in constraints)
    never = [*constraints, Constraint("at_least", 1, c)]
    assert proved(never, orders, elements=True, equal=True) is None  # type: ignore[arg-type]


def test_the_search_gives_up_when_its_budget_is_spent() -> None:
    from eqsat.language.sizes.search import Exhausted

    a, b, c = (Sym.named(n) for n in "abc")
    search = SizeSearch([Constraint("equal", a * a * a + b * b * b, c * c * c)], budget=100_000)
    with pytest.raises(Exhausted):
        search.first(dict.fromkeys("abc", ("from", 3)))


def test_indices_are_drawn_from_all_places_there_are_and_only_from_those() -> None:
    g = eqsat.Graph("g")
    ids, mask = g.input("ids", ("batch", "length"), "int64"), g.input("mask", ("batch", "length"), "int64")
    rows = g.apply("gather", g.constant(weight(50, 4)), ids, axis=0)
    g.output("y", rows * g.apply("reshape", g.apply("cast", mask, to="float32"), shape=(*mask.shape, 1)))
    one = g.apply("gather", g.input("single", (1, 2)), g.input("at", (3,), "int64"), axis=0)
    g.output("z", one)
    feeds = example_inputs(g.build(), {"batch": 8, "length": 30}, 0)
    assert feeds["ids"].shape == (8, 30)
    assert 40 < feeds["ids"].max() < 50
    assert set(np.unique(feeds["mask"])) == {0, 1}
    assert not feeds["at"].any()


def test_dims_without_a_name_are_called_by_their_input() -> None:
    g = eqsat.Graph("g")
    x = g.input("image", ("batch", 3, Sym.named("?0"), Sym.named("?1")))
    g.output("y", conv(g, x, 5))
    sizing = sizing_of(g.build())
    sizes = sizing.near({"image[2]": 3})
    assert sizes is not None
    assert sizing.describe(sizes) == "batch=16, image[2]=5, image[3]=16"


def test_products_of_many_dims_are_solved_by_their_divisors() -> None:
    """Neither trying every size nor Z3 finds four dims of which one may be any and three make 20."""
    a, b, c, d = (Sym.named(name) for name in "abcd")
    product = Constraint("equal", a * b * c * d, 20 * a)
    orders: dict[str, Any] = dict.fromkeys("abcd", ("from", 16))
    assert SizeSearch((product,)).first(orders) == {"a": 16, "b": 20, "c": 1, "d": 1}
    square = Constraint("equal", b * b * c, 20)
    assert SizeSearch((product, square)).first(orders) == {"a": 16, "b": 2, "c": 5, "d": 2}
    assert SizeSearch((product, Constraint("equal", b, 3))).first(orders) is None


def test_nodes_that_no_size_makes_a_difference_to_are_not_looked_at() -> None:
    """A step is counted for each node that is."""
    still = graph(lambda g, x: g.apply("relu", g.apply("neg", x)), (2, 3))
    named = graph(lambda g, x, y: g.apply("add", g.apply("relu", x), g.apply("tanh", y)), ("n", 3), (3,))
    for made, looks in ((still, 0), (named, 2)):
        counting = Deadline(steps=1000)
        with counting:
            assert sizing_of(made).near({}) is not None
        assert 1000 - counting.left == looks
