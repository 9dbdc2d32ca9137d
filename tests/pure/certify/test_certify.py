"""Certificates: what is accepted and how it was checked, what is refused and named."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from eqsat.certify import Certificate, assignments, certify, relative_difference
from eqsat.egraph.derived import fold_derived
from eqsat.errors import CertificateError, UncheckedError
from eqsat.language.graphs.builder import Builder, Tensor
from eqsat.language.terms import Constant, Graph, Node

Body = Callable[[Builder, Tensor], Mapping[str, Tensor]]


def graph(body: Body, shape: Sequence[int | str] = (3, 4)) -> Graph:
    g = Builder("g")
    for name, tensor in body(g, g.input("x", tuple(shape))).items():
        g.output(name, tensor)
    return g.build()


def check(old: Body, new: Body, shape: Sequence[int | str] = (3, 4)) -> Certificate:
    """Certifies two graphs of equal output names, of which nothing is claimed but the inputs and outputs."""
    before, after = graph(old, shape), graph(new, shape)
    claims = {v: (before.outputs[n],) for n, v in after.outputs.items()} | {"x": ("x",)}
    return certify(before, after, after, claims, sizes=assignments(before))


WEIGHT = np.random.default_rng(0).standard_normal((4, 5)).astype(np.float32)


def test_an_unchanged_graph_is_identical() -> None:
    one = graph(lambda g, x: {"y": g.apply("relu", x @ g.constant(WEIGHT))})
    assert certify(one, one, one, {v: (v,) for v in one.types}).kind == "identical"


def test_linear_algebra_is_checked_exactly() -> None:
    done = check(
        lambda g, x: {"y": (x + x) @ g.constant(WEIGHT)},
        lambda g, x: {"y": x @ g.constant(WEIGHT) + x @ g.constant(WEIGHT)},
    )
    assert (done.kind, done.error) == ("exact", 0.0)
    assert [r.nodes for r in done.regions] == [(2, 3)]


def test_any_function_of_equal_tensors_is_checked_exactly() -> None:
    done = check(
        lambda g, x: {"y": g.apply("relu", g.apply("concat", x, x, axis=0))},
        lambda g, x: {"y": g.apply("concat", g.apply("relu", x), g.apply("relu", x), axis=0)},
    )
    assert done.kind == "exact"


def test_a_property_of_one_function_is_checked_in_float64() -> None:
    two = np.float32([2])
    done = check(
        lambda g, x: {"y": g.apply("relu", x * g.constant(two))},
        lambda g, x: {"y": g.apply("relu", x) * g.constant(two)},
    )
    assert done.kind == "float64"
    assert done.error <= 1e-12


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            lambda g, x: {"y": g.apply("relu", x * g.constant(np.float32([-2])))},
            lambda g, x: {"y": g.apply("relu", x) * g.constant(np.float32([-2]))},
        ),
        (lambda g, x: {"y": x @ g.constant(WEIGHT)}, lambda g, x: {"y": x @ g.constant(-WEIGHT)}),
        (
            lambda g, x: {"y": g.apply("softmax", x, axis=1)},
            lambda g, x: {"y": g.apply("softmax", x, axis=0)},
        ),
        (lambda g, x: {"y": x / x}, lambda g, x: {"y": x / x * g.constant(np.float32([1.001]))}),
    ],
    ids=["negative scale", "other weights", "other axis", "nearly equal"],
)
def test_a_false_claim_is_refused_and_named(old: Body, new: Body) -> None:
    with pytest.raises(CertificateError, match=r"differ from the original by") as caught:
        check(old, new)
    assert "at most 5e-07 in float64" in str(caught.value)


def test_what_holds_only_for_one_size_of_a_named_dim_is_refused() -> None:
    with pytest.raises(CertificateError):
        check(
            lambda g, x: {"y": g.apply("reduce_sum", x, axes=(0,), keepdims=False)},
            lambda g, x: {"y": g.apply("reduce_max", x, axes=(0,), keepdims=False)},
            ("n", 4),
        )


def test_named_dims_are_checked_at_two_sizes_one_among_them() -> None:
    done = check(lambda g, x: {"y": x + x}, lambda g, x: {"y": x * g.constant(np.float32(2))}, ("n", "m"))
    assert [dict(s) for s in done.sizes] == [{"m": 3, "n": 5}, {"m": 1, "n": 1}]
    assert assignments(graph(lambda g, x: {"y": x}, ("n", 2)), {"n": 7})[0] == {"n": 7}


def test_a_region_is_widened_until_its_inputs_settle_it() -> None:
    # relu(e) = e is false of any e, and true of an exponential.
    old = graph(lambda g, x: {"y": g.apply("relu", g.apply("exp", x))})
    new = graph(lambda g, x: {"y": g.apply("exp", x)})
    exponential = old.nodes[0].outputs[0]
    claims = {"x": ("x",), new.outputs["y"]: (exponential, old.outputs["y"])}
    done = certify(old, new, new, claims)
    assert done.kind == "float64"


def test_regions_of_equal_form_are_settled_once() -> None:
    def old(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        for _ in range(6):
            x = g.apply("tanh", (x + x) @ g.constant(np.random.default_rng(1).random((4, 4)).astype(np.float32)))
        return {"y": x}

    def new(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        for _ in range(6):
            w = g.constant(np.random.default_rng(1).random((4, 4)).astype(np.float32))
            x = g.apply("tanh", x @ w + x @ w)
        return {"y": x}

    before, after = graph(old), graph(new)
    tanhs = [[n.outputs[0] for n in g.nodes if n.op == "tanh"] for g in (before, after)]
    claims = {b: (a,) for a, b in zip(*tanhs, strict=True)} | {"x": ("x",)}
    assert len(certify(before, after, after, claims).regions) == 6


def test_a_folded_constant_must_be_its_expression() -> None:
    new = graph(lambda g, x: {"y": x + (g.constant(np.float32([1])) + g.constant(np.float32([2])))})
    name = new.nodes[0].outputs[0]
    for value, fails in ((3.0, False), (3.1, True)):
        folded = Graph(
            new.name,
            new.inputs,
            new.outputs,
            new.nodes[1:],
            {**new.constants, name: Constant.of(np.float32([value]))},
            new.types,
        )
        if fails:
            with pytest.raises(CertificateError, match=r"folded constant .* differs from its expression by 3\.3e-02"):
                certify(new, new, folded, {v: (v,) for v in new.types})
        else:
            assert certify(new, new, folded, {v: (v,) for v in new.types}).folded == 1


def test_folded_constants_that_share_a_factor_are_compared_one_after_the_other() -> None:
    """In float64 all weights of a network together take twice its size, and its scales may share one number."""

    def body(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        factor = g.apply("sqrt", g.constant(np.float32([2])))
        for i in range(16):
            x = x + g.constant(np.full((256, 256), i, np.float32)) * factor
        return {"y": x}

    new = graph(body, (256, 256))
    folded = fold_derived(new)
    assert len(folded.nodes) == 16
    tracemalloc.start()
    try:
        assert certify(new, new, folded, {v: (v,) for v in new.types}).folded == 16
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 8 * 8 * 256 * 256


def test_infinities_must_be_where_the_original_has_them() -> None:
    one = np.array([1.0, -np.inf, np.nan])
    assert relative_difference(one, one) == 0.0
    assert relative_difference(one, np.array([1.0, np.inf, np.nan])) == float("inf")
    assert relative_difference(one, np.array([1.0, 0.0, np.nan])) == float("inf")


def test_infinities_are_no_residues() -> None:
    """Distributing over an infinity makes NaN, though as polynomials both sides are one."""
    row, infinite = np.float32([1, 2, 3, 4]), np.float32([np.inf, 1, 1, 1])
    with pytest.raises(CertificateError, match="'mul_0' differ"):
        check(
            lambda g, x: {"y": (x - g.constant(row)) * g.constant(infinite)},
            lambda g, x: {"y": x * g.constant(infinite) - g.constant(row) * g.constant(infinite)},
        )


def test_what_constants_make_nan_is_compared_as_that() -> None:
    nan = np.full((4,), np.nan, np.float32)
    done = check(lambda g, x: {"y": (x + x) + g.constant(nan)}, lambda g, x: {"y": x + (x + g.constant(nan))})
    assert done.kind == "float64"
    with pytest.raises(CertificateError):
        check(lambda g, x: {"y": x + g.constant(nan)}, lambda g, x: {"y": x})


@pytest.mark.parametrize(("one", "op"), [("sqrt", "log"), ("acosh", "sqrt"), ("atanh", "asin")])
def test_data_suits_the_domain(one: str, op: str) -> None:
    """A single number is outside the domain of some functions as often as not."""
    done = check(
        lambda g, x: {"y": g.apply(one, g.apply("abs", x)) + g.apply(one, x)},
        lambda g, x: {"y": g.apply(one, x) + g.apply(one, g.apply("maximum", x, -x))},
        (1, 1),
    )
    assert done.kind == "float64"
    with pytest.raises(CertificateError):
        check(lambda g, x: {"y": g.apply(one, x)}, lambda g, x: {"y": g.apply(op, x)}, (1, 1))


def test_an_input_that_the_new_graph_does_not_read_is_the_same() -> None:
    done = check(lambda g, x: {"y": x - x}, lambda g, x: {"y": g.apply("fill", shape=(3, 4), value=0.0)})
    assert done.kind == "exact"


def test_one_output_of_an_operator_may_be_known_and_another_checked() -> None:
    def old(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        first, second = g.apply("split", x, axis=0, sizes=(1, 2))
        return {"a": first, "b": g.apply("concat", second, first, axis=0)}

    def new(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        first, _ = g.apply("split", x, axis=0, sizes=(1, 2))
        return {"a": first, "b": g.apply("gather", x, g.constant([1, 2, 0]), axis=0)}

    assert check(old, new).kind == "exact"


def test_rounded_constants_are_what_they_stand_for() -> None:
    """The exact GELU of numbers in the tail, where a root of 2 in float32 makes the largest relative difference."""

    def parts(dtype: str) -> Body:
        def body(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
            x = (g.apply("abs", x) * -1.0 - 2.0).cast(dtype)
            return {"y": x * (g.apply("erf", x * float(np.float32(0.5**0.5))) + 1.0) * 0.5}

        return body

    def fused(dtype: str) -> Body:
        return lambda g, x: {"y": g.apply("gelu", (g.apply("abs", x) * -1.0 - 2.0).cast(dtype))}

    assert 1e-8 < check(parts("float32"), fused("float32")).error <= 5e-7
    with pytest.raises(CertificateError, match="differ"):
        check(parts("float64"), fused("float64"))


def test_a_region_too_large_to_run_is_not_run() -> None:
    def body(order: Sequence[str]) -> Body:
        def made(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
            wide = g.apply("expand", x, shape=(1 << 14, 1 << 14))
            for op in order:
                wide = g.apply(op, wide)
            return {"y": g.apply("reduce_sum", wide, axes=(0, 1), keepdims=False)}

        return made

    with pytest.raises(UncheckedError, match=r"has 268435456 elements, too many to check"):
        check(body(["relu", "relu"]), body(["relu"]), (1, 1))


def test_derived_infinities_are_no_residues() -> None:
    """The inverse of 0 is infinite: distributing over it makes NaN of what was infinite."""

    def old(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        return {"y": (x - g.constant(np.float32([5]))) / g.constant(np.float32([0, 1, 1, 1]))}

    def new(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        inverse = g.apply("reciprocal", g.constant(np.float32([0, 1, 1, 1])))
        return {"y": x * inverse - g.constant(np.float32([5])) * inverse}

    before, after = graph(old, (50, 4)), graph(new, (50, 4))
    claims = {v: (before.outputs[n],) for n, v in after.outputs.items()} | {"x": ("x",)}
    with pytest.raises(CertificateError, match="differ"):
        certify(before, after, fold_derived(after), claims)


def shuffled(g: Builder, x: Tensor) -> Tensor:
    """Every other element first, which is the vector itself only where it is short."""
    halves = g.apply("transpose", g.apply("reshape", x, shape=(2, 4)), perm=(1, 0))
    return g.apply("reshape", halves, shape=(8,))


def test_a_claim_about_an_input_is_checked() -> None:
    """A union of an input with what is made of it makes any graph over the one equal to the graph over the other."""

    def old(g: Builder, x: Tensor) -> Mapping[str, Tensor]:
        return {"y": g.apply("relu", shuffled(g, x))}

    before, after = graph(old, (8,)), graph(lambda g, x: {"y": g.apply("relu", x)}, (8,))
    shuffle = before.nodes[-2].outputs[0]
    with pytest.raises(CertificateError, match=f"{shuffle!r} differ") as caught:
        certify(before, after, after, {"x": ("x", shuffle), after.outputs["y"]: (before.outputs["y"],)})
    assert caught.value.pairs == (("x", shuffle),)


def test_a_claim_about_an_input_that_is_an_output_is_checked() -> None:
    before, after = graph(lambda g, x: {"y": shuffled(g, x)}, (8,)), graph(lambda g, x: {"y": x}, (8,))
    with pytest.raises(CertificateError, match="differ"):
        certify(before, after, after, {"x": ("x", before.outputs["y"])})
    same = graph(lambda g, x: {"y": g.apply("neg", g.apply("neg", x))}, (8,))
    assert certify(same, after, after, {"x": ("x", same.outputs["y"])}).kind == "exact"


def test_two_inputs_are_never_one() -> None:
    def body(second: bool) -> Graph:
        g = Builder("g")
        x, y = g.input("x", (3,)), g.input("y", (3,))
        g.output("z", g.apply("relu", y if second else x))
        return g.build()

    before, after = body(True), body(False)
    with pytest.raises(CertificateError, match="inputs 'x' and 'y' are taken for one"):
        certify(before, after, after, {"x": ("x", "y"), after.outputs["z"]: (before.outputs["z"],)})


def test_a_folded_graph_has_the_nodes_that_were_chosen() -> None:
    chosen = graph(lambda g, x: {"y": g.apply("relu", x)})
    other = graph(lambda g, x: {"y": g.apply("tanh", x)})
    renamed = Graph(
        chosen.name,
        chosen.inputs,
        chosen.outputs,
        tuple(Node("tanh", n.inputs, n.outputs) for n in chosen.nodes),
        {},
        chosen.types,
    )
    for folded in (other, renamed):
        with pytest.raises(CertificateError, match="the folded graph is another than the one that was chosen"):
            certify(chosen, chosen, folded, {v: (v,) for v in chosen.types})


def test_integers_are_drawn_on_both_sides_of_zero() -> None:
    """The absolute value of an integer is that integer wherever only 0 and 1 are tried."""
    g = Builder("g")
    g.output("y", g.apply("abs", g.input("x", (6,), "int64")))
    h = Builder("g")
    h.output("y", h.apply("identity", h.input("x", (6,), "int64")))
    before, after = g.build(), h.build()
    with pytest.raises(CertificateError, match="differ"):
        certify(before, after, after, {"x": ("x",), after.outputs["y"]: (before.outputs["y"],)})
