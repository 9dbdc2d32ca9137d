"""Proofs for every size of slices, borders and constants with a pattern, and of no rule near to these that is false."""

from __future__ import annotations

import itertools
from random import Random
from typing import Any

import pytest

from eqsat.language.ops import spec
from eqsat.language.parametric.equations.bounds import FormulaBounds
from eqsat.language.parametric.equations.products import contradicts
from eqsat.language.parametric.facts import Fact
from eqsat.language.terms import Attrs, DType, TensorType
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.proof.axes.claims import along, keeps_inside, works_along_axes
from eqsat.rewrites.proof.axes.rules import AXIS_WISE, works_axis_by_axis
from eqsat.rewrites.proof.sizes import prove_paths, prove_sizes
from tests.support.candidates import parsed as rule

SLICES = "slice(slice(x, **s), **t) => slice(x, **after(x, s, t))"
PAD = "pad(x, pads=p, mode='constant', value=0.0)"
N, P, K = map(Sym.named, ("n", "p", "k"))


@pytest.mark.parametrize(
    "text",
    [
        f"{SLICES} if forward(s, t)",
        "slice(pad(x, pads=p, mode='edge', value=v), **s) => slice(x, **inside(shape(x), p, s))",
        "pad(pad(x, pads=p, mode='constant', value=v), pads=q, mode='constant', value=v) "
        "=> pad(x, pads=added(p, q), mode='constant', value=v) if min(p) >= 0, min(q) >= 0",
        "slice(x, **s) => x if forward(s), shape(slice(x, **s)) == shape(x)",
        "slice(fill(shape=s, value=v, dtype=d), **a) "
        "=> fill(shape=shape(slice(fill(shape=s, value=v, dtype=d), **a)), value=v, dtype=d)",
        "gemm(concat(*xs, axis=1 if a.trans_a else 0), w, **a) => concat(*[gemm(x, w, **a) for x in xs], axis=0)",
    ],
)  # fmt: skip
def test_true_rules_are_proved_for_every_rank(text: str) -> None:
    assert prove_sizes(rule(text)).every_rank


@pytest.mark.parametrize(
    "text",
    [
        SLICES,
        f"{SLICES} if forward(s)",
        "slice(slice(x, **s), **t) => slice(x, **after(x, t, s)) if forward(s, t)",
        "pad(pad(x, pads=p, mode='constant', value=v), pads=q, mode='constant', value=v) "
        "=> pad(x, pads=added(p, q), mode='constant', value=v) if min(p) >= 0",
        "pad(pad(x, pads=p, mode='constant', value=v), pads=q, mode='constant', value=w) "
        "=> pad(x, pads=added(p, q), mode='constant', value=w) if min(p) >= 0, min(q) >= 0",
        "pad(pad(x, pads=p, mode='edge'), pads=q, mode='edge') => pad(x, pads=added(q, p), mode='reflect') "
        "if min(p) >= 0, min(q) >= 0",
        "slice(pad(x, pads=p, mode=m, value=v), **s) => slice(x, **s)",
        "slice(x, **s) => x if shape(slice(x, **s)) == shape(x)",
    ],
)  # fmt: skip
def test_false_rules_of_slices_are_not(text: str) -> None:
    assert not prove_sizes(rule(text)).is_proved


@pytest.mark.parametrize(
    "text",
    [
        # True of vectors alone: of two axes, one number fills in before the other.
        "pad(pad(x, pads=p, mode='constant', value=v), pads=q, mode='constant', value=w) => "
        "pad(pad(x, pads=p, mode='constant', value=w), pads=q, mode='constant', value=v)",
        "pad(pad(x, pads=p), pads=q) => pad(x, pads=added(p, q)) if len(p) == 2, min(p) >= 0, min(q) >= 0",
        "pad(x, pads=p) => pad(x, pads=added(p, p)) if sum(p) == 0",
        "slice(transpose(x, perm=p), **s) => slice(x, **s)",
        "slice(x, axes=a, starts=i, ends=j) => slice(x, axes=a, starts=j, ends=i)",
    ],
)  # fmt: skip
def test_rules_that_say_more_than_of_each_axis_are_told_apart(text: str) -> None:
    assert not works_axis_by_axis(rule(text))


def test_which_operators_work_along_axes_and_keep_what_is_inside() -> None:
    assert works_along_axes(spec("slice")) and works_along_axes(spec("pad"))
    assert not any(works_along_axes(spec(op)) for op in ("transpose", "relu", "concat", "reshape", "tile"))
    assert keeps_inside(spec("pad")) and not any(keeps_inside(spec(op)) for op in ("slice", "relu", "resize"))


def _record(rng: Random, rank: int) -> Attrs:
    axes = tuple(axis for axis in range(rank) if rng.random() < 0.7)
    starts = tuple(rng.randint(0, 2) for _ in axes)
    ends = tuple(rng.randint(0, 5) for _ in axes)
    steps = tuple(rng.randint(1, 3) for _ in axes) if rng.random() < 0.7 else ()
    return Attrs(axes=axes, starts=starts, ends=ends, steps=steps)


def _arguments(name: str, rng: Random, dims: tuple[int, ...]) -> list[Any]:
    rank = len(dims)
    pads = [tuple(rng.randint(-1, 2) for _ in range(2 * rank)) for _ in range(2)]
    if name == "after":
        return [Drawn("x", TensorType(DType.FLOAT32, dims)), _record(rng, rank), _record(rng, rank)]
    return [dims, tuple(max(p, 0) for p in pads[0]), _record(rng, rank)] if name == "inside" else pads


def _along_axis(argument: Any, rank: int, axis: int) -> Any:
    if isinstance(argument, Drawn):
        return Drawn(argument.name, argument.type.with_shape((argument.type.dims[axis],)))
    if isinstance(argument, Attrs):
        restricted = along(argument, rank, axis)
        assert restricted is not None
        return Attrs(restricted)
    return tuple(argument[axis::rank])


@pytest.mark.parametrize("name", sorted(AXIS_WISE))
def test_functions_of_axes_give_along_each_axis_what_they_are_given_there(name: str) -> None:
    rng, seen = Random(name), 0
    for _ in range(600):
        dims = tuple(rng.randint(1, 5) for _ in range(rng.randint(2, 4)))
        arguments = _arguments(name, rng, dims)
        try:
            whole = FUNCTIONS[name](*arguments)
        except Exception:  # noqa: BLE001 - then a rule does not fire
            continue
        seen += 1
        for axis in range(len(dims)):
            single = FUNCTIONS[name](*(_along_axis(one, len(dims), axis) for one in arguments))
            expected = _along_axis(whole, len(dims), axis)
            # Steps that are left out are ones.
            assert single == expected or (not single["axes"] and not expected["axes"])
    assert seen > 40


@pytest.mark.parametrize(
    "text",
    [
        "gather(x, i, axis=k) => reshape(slice(x, **cut(k, index(i, dim(x, k)), index(i, dim(x, k)) + 1)), "
        "shape=shape(gather(x, i, axis=k))) if constant(i), size(i) == 1",
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i), first(i) + dim(i, 0))) "
        "if is_range(i), first(i) + dim(i, 0) <= dim(x, k)",
        "gather(x, i, axis=k) => slice(x, axes=(k,), starts=(first(i),), ends=(last(i) + 1,), "
        "steps=((last(i) - first(i)) // (dim(i, 0) - 1),)) if is_progression(i), last(i) < dim(x, k)",
        "x @ c => gather(x, argmax(c, axis=0, keepdims=False), axis=rank(x) - 1) "
        "if is_selection(c, 0), rank(x) >= 1, finite(x)",
        "c @ w => cumsum(w, axis=rank(w) - 2, reverse=is_upper(c)) if is_triangle(c), rank(w) >= 2, finite(w), wide(w)",
        "x @ c => concat(slice(x, **cut(rank(x) - 1, 0, block(c, 0))) @ slice(c, axes=(0, 1), starts=(0, 0), "
        "ends=(block(c, 0), block(c, 1))), slice(x, **cut(rank(x) - 1, block(c, 0), dim(c, 0))) @ slice(c, "
        "axes=(0, 1), starts=(block(c, 0), block(c, 1)), ends=shape(c)), axis=rank(x) - 1) "
        "if is_in_blocks(c), rank(x) >= 1, finite(x), wide(x)",
        "x @ c => x * fill(shape=(), value=entry(c, 0, 0) - entry(c, 0, 1), dtype=dtype(x)) + reduce_mean(x, "
        "axes=(rank(x) - 1,), keepdims=True) * fill(shape=(), value=entry(c, 0, 1) * dim(c, 0), dtype=dtype(x)) "
        "if is_even_beside(c), rank(x) >= 1, finite(x), wide(x)",
    ],
)  # fmt: skip
def test_rules_of_constants_with_a_pattern_are_proved(text: str) -> None:
    assert prove_paths(rule(text), highest=2).rank == 2


@pytest.mark.parametrize(
    "text",
    [
        # One too few; from the next on; in another order; beyond the end; of other constants.
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i), first(i) + dim(i, 0) - 1)) "
        "if is_range(i), first(i) + dim(i, 0) <= dim(x, k)",
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i) + 1, first(i) + dim(i, 0) + 1)) "
        "if is_range(i), first(i) + dim(i, 0) < dim(x, k)",
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i), first(i) + dim(i, 0))) if is_range(i)",
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i), last(i) + 1)) if is_progression(i), last(i) < dim(x, k)",
        "gather(x, i, axis=k) => slice(x, **cut(k, first(i), first(i) + dim(i, 0))) if dim(i, 0) <= dim(x, k)",
        "gather(x, i, axis=k) => reshape(slice(x, **cut(k, 0, 1)), shape=shape(gather(x, i, axis=k))) "
        "if constant(i), size(i) == 1",
        "gather(x, i, axis=k) => slice(x, **cut(k, index(i, dim(x, k)), index(i, dim(x, k)) + 1)) if constant(i)",
        "x @ c => gather(x, argmax(c, axis=1, keepdims=False), axis=rank(x) - 1) if is_selection(c, 1), rank(x) >= 1",
        "x @ c => gather(x, argmin(c, axis=0, keepdims=False), axis=rank(x) - 1) if is_selection(c, 0), rank(x) >= 1",
        "x @ c => gather(x, argmax(c, axis=0, keepdims=False), axis=rank(x) - 1) if is_triangle(c), rank(x) >= 1",
        "c @ w => cumsum(w, axis=rank(w) - 2, reverse=not is_upper(c)) if is_triangle(c), rank(w) >= 2, wide(w)",
        "c @ w => cumsum(w, axis=rank(w) - 2, exclusive=True, reverse=is_upper(c)) "
        "if is_triangle(c), rank(w) >= 2, wide(w)",
        "x @ c => x * fill(shape=(), value=entry(c, 0, 0), dtype=dtype(x)) + reduce_mean(x, axes=(rank(x) - 1,), "
        "keepdims=True) * fill(shape=(), value=entry(c, 0, 1) * dim(c, 0), dtype=dtype(x)) "
        "if is_even_beside(c), rank(x) >= 1, wide(x)",
        "x @ c => slice(x, **cut(rank(x) - 1, 0, block(c, 0))) @ slice(c, axes=(0,), starts=(0,), ends=(block(c, 0),)) "
        "if is_in_blocks(c), rank(x) >= 1, wide(x)",
        "gemm(concat(*xs, axis=1 if a.trans_b else 0), w, **a) => concat(*[gemm(x, w, **a) for x in xs], axis=0)",
    ],
)  # fmt: skip
def test_false_rules_of_constants_are_not(text: str) -> None:
    assert not prove_paths(rule(text), highest=2).is_proved


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        (f"conv({PAD}, w, **a) => conv(x, w, pads=padded_by(a, p), **a) "
         "if pads_space(p), a.group == 1, a.strides == (), a.dilations == ()", True),
        (f"conv({PAD}, w, **a) => conv(x, w, **a) if pads_space(p), a.group == 1", False),
        ("conv(pad(x, pads=p, mode='constant', value=1.0), w, **a) => conv(x, w, pads=padded_by(a, p), **a) "
         "if pads_space(p), a.group == 1, a.strides == (), a.dilations == ()", False),
        (f"avg_pool({PAD}, **a) => avg_pool(x, pads=padded_by(a, p), **a) "
         "if pads_space(p), a.count_include_pad, not a.ceil_mode, a.strides == ()", False),
        (f"avg_pool({PAD}, **a) => avg_pool(x, pads=padded_by(a, p), **a) if pads_space(p), not a.ceil_mode", False),
        (f"max_pool({PAD}, **a) => max_pool(x, pads=padded_by(a, p), **a) if pads_space(p)", False),
    ],
)  # fmt: skip
def test_pads_of_operators_are_borders_where_they_are_seen_to_be(text: str, is_true: bool) -> None:
    asked = rule(text)
    opaque = frozenset({asked.roots[0].op})
    assert prove_paths(asked, highest=3, opaque=opaque).is_proved is is_true


def test_sums_without_one_place() -> None:
    left = "c @ w => w * fill(shape=(), value=entry(c, 0, 0) - entry(c, 0, 1), dtype=dtype(w)) + "
    right = "reduce_sum(w, axes=(rank(w) - 2,), keepdims=True) * fill(shape=(), value=entry(c, 0, {}), dtype=dtype(w))"
    conditions = " if is_even_beside(c), rank(w) >= 2, wide(w)"
    assert prove_paths(rule(left + right.format(1) + conditions), highest=2).rank == 2
    assert not prove_paths(rule(left + right.format(0) + conditions), highest=2).is_proved


def _quotient(a: Any, b: Any) -> Sym:
    return Sym.function("floordiv", a, b)


def test_contradictions_of_products_and_quotients() -> None:
    positive = [Fact.positive(P), Fact.positive(N)]
    # (k·p) // p is k, and (k·p + p - 1) // p, too; not where the divisor may be negative, nor one further.
    for rest in (0, P - 1):
        apart = Fact.equal(_quotient(K * P + rest, P), K).turned
        assert contradicts([*positive, apart])
        assert not contradicts([apart])
    assert not contradicts([*positive, Fact.equal(_quotient(K * P + P, P), K).turned])
    assert contradicts([*positive, Fact.positive(Sym.function("min", N, P) - N)])
    assert not contradicts([*positive, Fact.positive(N - Sym.function("min", N, P))])
    assert contradicts([*positive, Fact.positive(_quotient(N, P) * P - N)])
    # Both factors of a divisor may be negative: then k is not above n, nor below it.
    divisor = [Fact.positive(N * P), Fact.positive(_quotient(K, N * P) + 1)]
    assert not contradicts([*divisor, Fact.positive(K * P - N * P * P + 1), Fact.positive(-P)])


def test_what_is_contradicted_has_no_numbers() -> None:
    rng = Random(0)
    names = ["n", "p", "k"]
    atoms = [N, P, K, N * P, _quotient(N, P), Sym.function("max", N, K), Sym.function("min", K, P)]
    found = 0
    for _ in range(120):
        facts = [Fact.positive(P)]
        for _ in range(rng.randint(2, 4)):
            formula = sum((rng.randint(-2, 2) * atom for atom in rng.sample(atoms, 3)), start=rng.randint(-3, 3))
            fact = Fact.equal(formula, 0) if rng.random() < 0.3 else Fact.positive(formula)
            facts.append(fact if rng.random() < 0.6 else fact.turned)
        if contradicts(facts):
            found += 1
            for numbers in itertools.product(range(-4, 5), range(1, 5), range(-4, 5)):
                assert not all(fact.at(dict(zip(names, numbers, strict=True))) for fact in facts)
    assert found > 8


def test_bounds_answer_what_follows_from_facts() -> None:
    rng = Random(1)
    for _ in range(200):
        sizes = {"n": rng.randint(-4, 4), "k": rng.randint(-4, 4)}
        bounds, facts = FormulaBounds(), []
        for _ in range(4):
            formula = rng.randint(-1, 1) * N + rng.randint(-1, 1) * K + rng.randint(-2, 2)
            fact = Fact.equal(formula, 0) if rng.random() < 0.3 else Fact.positive(formula)
            facts.append(fact if fact.at(sizes) else fact.turned)
        bounds.tell(facts, {})
        for shift, is_zero in itertools.product(range(-3, 4), (True, False)):
            for fact in facts:
                asked = Fact(fact.formula + shift, is_zero)
                assert bounds.answer(asked.formula, is_zero=is_zero) in (None, asked.at(sizes))
            equation = bounds.equation(facts[0].formula)
            assert equation is None or Fact(equation, True).at(sizes)
