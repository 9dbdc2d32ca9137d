"""Equations that theories make: what is made is true, and what is false is not proved."""

from __future__ import annotations

from fractions import Fraction

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings

import eqsat
from eqsat.costs.model.asked import Application
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.contractions import states_contraction
from eqsat.rewrites.theories.evidence import theory_evidence
from eqsat.rewrites.theories.forms import Leaf, PolynomialForms
from eqsat.rewrites.theories.identities import states_identity
from eqsat.rewrites.theories.orders import PairwiseSteps, least_work
from eqsat.rewrites.theories.polynomials import Monomial, Polynomial, added, expanded
from eqsat.rewrites.theories.slices import states_sliced_sum

NAMES = ("x0", "x1", "x2", "c3")
LEAVES = {name: Leaf(name, (4, 8) if name != "x2" else (4, 1), name[0] == "c") for name in NAMES}


@st.composite
def polynomials(draw: st.DrawFn) -> Polynomial:
    names = st.dictionaries(st.sampled_from(NAMES), st.integers(1, 3), max_size=3)
    monomials = names.map(lambda powers: tuple(sorted(powers.items())))
    numbers = st.sampled_from([Fraction(n, 4) for n in (*range(-8, 0), *range(1, 9))])
    terms: dict[Monomial, Fraction] = draw(st.dictionaries(monomials, numbers, max_size=8))
    return terms


@given(polynomials())
@settings(max_examples=150, deadline=None)
def test_every_form_of_a_polynomial_is_that_polynomial(polynomial: Polynomial) -> None:
    for form in PolynomialForms(LEAVES, "x0").of(polynomial):
        rule = parsed(f"form: relu(x0) + (x1 + (x2 + c3)) => {form.text}", origin="candidate")
        assert added(expanded(rule.right[0], {}), polynomial, Fraction(-1)) == {}
        assert form.constant or form.work == sum(form.steps.values())


def parsed(text: str, origin: str = "identity") -> Rule:
    (rule,) = parse_rules(text, origin=origin)  # type: ignore[arg-type]
    return rule


SHARED = "shape(add(mul(x, y), mul(x, z)))"
FACTORED = f"{SHARED} == shape(mul(x, add(y, z)))"
SQUARES = "shape(sub(mul(x, x), mul(y, y))) == shape(mul(add(x, y), sub(x, y)))"
TRIPLE = "shape(add(mul(x, n), x)) == shape(mul(x, fill(shape=(), value=3.0, dtype=dtype(x))))"
DIVIDED = "shape(add(div(x, c), div(y, c))) == shape(mul(add(x, y), reciprocal(c)))"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        (f"x * y + x * z => x * (y + z) if finite(x, y, z), {FACTORED}", True),
        (f"x * x - y * y => (x + y) * (x - y) if finite(x, y), {SQUARES}", True),
        (f"x * n + x => x * fill(shape=(), value=3.0, dtype=dtype(x)) if finite(x), is_all(n, 2.0), {TRIPLE}", True),
        (f"x / c + y / c => (x + y) * reciprocal(c) if finite(x, y, c), invertible(c), {DIVIDED}", True),
        (f"x * y + x * z => x * (y - z) if finite(x, y, z), {SHARED} == shape(mul(x, sub(y, z)))", False),
        (f"x * y + x * z => x * (y + z) if finite(x, y), {FACTORED}", False),
        ("x * y + x * z => x * (y + z) if finite(x, y, z)", False),
        (f"x * n + x => x * fill(shape=(), value=3.0, dtype=dtype(x)) if finite(x), is_all(n, 2.5), {TRIPLE}", False),
        (f"x / c + y / c => (x + y) * reciprocal(c) if finite(x, y, c), {DIVIDED}", False),
        ("x * y + x * z => x * (y + z) if finite(x, y, z), shape(x) == shape(x)", False),
        ("x * relu(y) => relu(y) * x if finite(x, y), shape(mul(x, relu(y))) == shape(mul(relu(y), x))", False),
        ("pow(x, y) => x * x if finite(x, y), shape(pow(x, y)) == shape(mul(x, x))", False),
        ("x / (y + y) => x / y if finite(x, y), invertible(y), shape(div(x, add(y, y))) == shape(div(x, y))", False),
    ],
)
def test_an_equation_is_an_identity_only_where_both_sides_are_one_polynomial(text: str, true: bool) -> None:
    rule = parsed(f"one: {text}")
    assert states_identity(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


PRODUCT = 'einsum(x, y, equation="ij,jk->ik")'
TURNED = "transpose(transpose(y, perm=(1, 0)) @ transpose(x, perm=(1, 0)), perm=(1, 0))"
SIZES = "rank(x) == 2, rank(y) == 2, dim(x, 1) == dim(y, 0)"


@pytest.mark.parametrize(
    ("text", "true"),
    [
        (f"{PRODUCT} => x @ y if {SIZES}, finite(x, y)", True),
        (f"{PRODUCT} => {TURNED} if {SIZES}, finite(x, y)", True),
        (f"{PRODUCT} => y @ x if {SIZES}, finite(x, y)", False),
        (f"{PRODUCT} => x @ transpose(y, perm=(1, 0)) if {SIZES}, finite(x, y)", False),
        (f"{PRODUCT} => x @ y if {SIZES}", False),
        (f"{PRODUCT} => x @ y if rank(x) == 2, rank(y) == 2, finite(x, y)", False),
        (f"{PRODUCT} => relu(x) @ y if {SIZES}, finite(x, y)", False),
        (f"{PRODUCT} => (x @ y) * x if {SIZES}, finite(x, y)", False),
        ('einsum(x, y, equation="ij,jk->i") => reduce_sum(x @ y, axes=(1,), keepdims=False) '
         f"if {SIZES}, finite(x, y)", True),
        ('einsum(x, y, equation="ij,jk->k") => reduce_sum(x @ y, axes=(1,), keepdims=False) '
         f"if {SIZES}, finite(x, y)", False),
        ('einsum(x, equation="ij->ji") => reshape(x, shape=(dim(x, 1), dim(x, 0))) if rank(x) == 2, finite(x)', False),
        ('einsum(x, y, equation="i,j->ij") => reshape(x, shape=(dim(x, 0), 1)) * y '
         "if rank(x) == 1, rank(y) == 1, finite(x, y)", True),
        ('einsum(x, y, equation="i,i->i") => reshape(x, shape=(dim(x, 0), 1)) * y '
         "if rank(x) == 1, rank(y) == 1, dim(x, 0) == dim(y, 0), finite(x, y)", False),
        ("(x @ y) * z => (x * z) @ y if rank(x) == 2, rank(y) == 2, rank(z) == 2, dim(x, 1) == dim(y, 0), "
         "dim(z, 0) == dim(x, 0), dim(z, 1) == 1, finite(x, y, z)", True),
        ("(x @ y) * z => (x * z) @ y if rank(x) == 2, rank(y) == 2, rank(z) == 2, dim(x, 1) == dim(y, 0), "
         "dim(z, 0) == dim(x, 0), finite(x, y, z)", False),
        ("reduce_mean(x @ y, axes=(0,), keepdims=True) => reduce_mean(x, axes=(0,), keepdims=True) @ y "
         "if rank(x) == 2, rank(y) == 2, dim(x, 1) == dim(y, 0), dim(x, 0) == 7, finite(x, y)", True),
        ("reduce_mean(x @ y, axes=(0,), keepdims=True) => reduce_sum(x, axes=(0,), keepdims=True) @ y "
         "if rank(x) == 2, rank(y) == 2, dim(x, 1) == dim(y, 0), dim(x, 0) == 7, finite(x, y)", False),
        ("reduce_mean(x, axes=(0,), keepdims=False) "
         "=> reduce_sum(x, axes=(0,), keepdims=False) / fill(shape=(), value=7.0, dtype=dtype(x)) "
         "if rank(x) == 2, dim(x, 0) == 7, finite(x)", True),
        ('einsum(reshape(x, shape=(2, 3, 4)), equation="ijk->ijk") => reshape(x, shape=(2, 3, 4)) '
         "if rank(x) == 2, dim(x, 0) == 6, dim(x, 1) == 4, finite(x)", False),
        ("reshape(x, shape=(6, 4)) @ y => reshape(x @ y, shape=(6, 5)) "
         "if rank(x) == 3, dim(x, 0) == 2, dim(x, 1) == 3, dim(x, 2) == 4, rank(y) == 2, dim(y, 0) == 4, "
         "dim(y, 1) == 5, finite(x, y)", True),
        ("c @ x => x * fill(shape=(), value=3.0, dtype=dtype(x)) if rank(x) == 2, rank(c) == 2, dim(x, 0) == 8, "
         "dim(c, 0) == 8, dim(c, 1) == 8, is_diagonal(c, 3.0), finite(x, c)", True),
        ("c @ x => x if rank(x) == 2, rank(c) == 2, dim(x, 0) == 8, dim(c, 0) == 8, dim(c, 1) == 8, "
         "is_diagonal(c, 3.0), finite(x, c)", False),
        ("reduce_sum((x @ y) * c, axes=(0, 1), keepdims=False) "
         "=> reduce_sum(x * transpose(y, perm=(1, 0)), axes=(0, 1), keepdims=False) if rank(x) == 2, rank(y) == 2, "
         "rank(c) == 2, dim(x, 1) == dim(y, 0), dim(x, 0) == dim(c, 0), dim(y, 1) == dim(c, 0), "
         "dim(c, 1) == dim(c, 0), is_diagonal(c, 1.0), finite(x, y, c)", True),
        ("(x @ y) * c => x * transpose(y, perm=(1, 0)) if rank(x) == 2, rank(y) == 2, "
         "rank(c) == 2, dim(x, 1) == dim(y, 0), dim(x, 0) == dim(c, 0), dim(y, 1) == dim(c, 0), "
         "dim(c, 1) == dim(c, 0), is_diagonal(c, 1.0), finite(x, y, c)", False),
        ("reduce_sum(x, axes=(0, 1), keepdims=False) * reduce_sum(c, axes=(0, 1), keepdims=False) "
         "=> reduce_sum(x, axes=(0, 1), keepdims=False) if rank(x) == 2, rank(c) == 2, dim(c, 0) == 8, dim(c, 1) == 8, "
         "is_diagonal(c, 1.0), finite(x, c)", False),
        ("x @ x => x @ transpose(x, perm=(1, 0)) if rank(x) == 2, dim(x, 0) == 8, dim(x, 1) == 8, finite(x)", False),
        ("x @ x => transpose(transpose(x, perm=(1, 0)) @ transpose(x, perm=(1, 0)), perm=(1, 0)) "
         "if rank(x) == 2, dim(x, 0) == 8, dim(x, 1) == 8, finite(x)", True),
    ],
)  # fmt: skip
def test_an_equation_is_a_contraction_only_where_every_index_is_summed_as_stated(text: str, true: bool) -> None:
    rule = parsed(f"one: {text}")
    assert states_contraction(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


@st.composite
def equations(draw: st.DrawFn) -> tuple[list[str], str]:
    terms = draw(
        st.lists(st.lists(st.sampled_from("abcde"), unique=True, min_size=1, max_size=3), min_size=1, max_size=4)
    )
    letters = sorted({letter for term in terms for letter in term})
    result = draw(st.lists(st.sampled_from(letters), unique=True, max_size=4))
    return ["".join(term) for term in terms], "".join(result)


def dear(applied: Application) -> float:
    return 1000.0 if applied.op == "einsum" else 1.0


@given(equations(), st.integers(0, 99))
@settings(max_examples=10, deadline=None)
def test_any_einsum_may_be_written_in_products_of_two(equation: tuple[list[str], str], seed: int) -> None:
    terms, result = equation
    sizes = dict(zip("abcde", (2, 3, 4, 5, 1), strict=True))
    g = eqsat.Graph("einsum")
    inputs = [g.input(f"x{n}", [sizes[letter] for letter in term]) for n, term in enumerate(terms)]
    text = f"{','.join(terms)}->{result}"
    g.output("y", eqsat.einsum(text, *inputs))
    found = eqsat.optimize(g, measure=False, cost=dear, cache=False)
    assert "einsum" not in [node.op for node in found.graph.nodes]
    rng = np.random.default_rng(seed)
    feeds = {f"x{n}": rng.standard_normal([sizes[i] for i in term]).astype(np.float32) for n, term in enumerate(terms)}
    wanted = np.einsum(text, *feeds.values())
    np.testing.assert_allclose(found.run(**feeds)["y"], wanted, rtol=1e-4, atol=1e-4)


ROW = "axes=(0,), starts=(2,), ends=(3,), steps=(1,)"
PLAIN = "alpha=1.0, beta=1.0, trans_a=False, trans_b=False"
SIZES_OF_SLICED = "rank(p) == 2, rank(b) == 1, shape(add(p, b)) == shape(p)"
RANKS, OF_PRODUCT = f"wide(p, y, b), {SIZES_OF_SLICED}", f"wide(p, x, w, b), {SIZES_OF_SLICED}"


@pytest.mark.parametrize(
    ("left", "right", "asked", "true"),
    [
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW}), y)", RANKS, True),
        (f"add(gemm(x, w, slice(p, {ROW}), {PLAIN}), b)", f"gemm(x, w, slice(add(p, b), {ROW}), {PLAIN})",
         OF_PRODUCT, True),
        (f"add(gemm(x, w, slice(p, {ROW}), {PLAIN}), b)", f"add(slice(add(p, b), {ROW}), matmul(x, w))",
         OF_PRODUCT, True),
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW}), y)",
         RANKS.replace(", shape(add(p, b)) == shape(p)", ""), False),
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW}), y)",
         RANKS.replace("rank(b) == 1", "rank(b) == 2"), False),
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW}), y)",
         RANKS.replace("rank(b) == 1", "rank(b) == 2, dim(b, 0) == 1"), True),
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW}), add(y, b))", RANKS, False),
        (f"add(add(slice(p, {ROW}), y), b)", f"add(slice(add(p, b), {ROW.replace('2', '1')}), y)", RANKS, False),
        (f"add(gemm(x, w, slice(p, {ROW}), {PLAIN}), b)",
         f"gemm(w, x, slice(add(p, b), {ROW}), {PLAIN})", OF_PRODUCT, False),
        (f"add(gemm(x, w, slice(p, {ROW}), {PLAIN.replace('beta=1.0', 'beta=2.0')}), b)",
         f"gemm(x, w, slice(add(p, b), {ROW}), {PLAIN})", OF_PRODUCT, False),
    ],
)  # fmt: skip
def test_constants_go_before_a_slice_only_where_they_do_not_vary_along_it(
    left: str, right: str, asked: str, true: bool
) -> None:
    rule = parsed(f"one: {left} => {right} if {asked}, shape({left}) == shape({right})")
    assert states_sliced_sum(rule) is true
    assert theory_evidence(rule).verdict == ("proved" if true else "undecided")


def multiplications(sizes: list[int]) -> int:
    """The fewest multiplications of a chain of matrices."""
    count = len(sizes) - 1
    best = {(n, n + 1): 0 for n in range(count)}
    for width in range(2, count + 1):
        for first in range(count - width + 1):
            last = first + width
            best[first, last] = min(
                best[first, cut] + best[cut, last] + sizes[first] * sizes[cut] * sizes[last]
                for cut in range(first + 1, last)
            )
    return best[0, count]


@given(st.lists(st.sampled_from([2, 3, 8, 40, 300]), min_size=10, max_size=13))
@settings(max_examples=20, deadline=None)
def test_long_chains_are_multiplied_with_the_fewest_multiplications(sizes: list[int]) -> None:
    steps = PairwiseSteps({n: str(size) for n, size in enumerate(sizes)})
    parts = [steps.leaf(f"x{n}", [(n,), (n + 1,)], False) for n in range(len(sizes) - 1)]
    ends = [0, len(sizes) - 1]
    whole = least_work(parts, ends, steps)[0]
    found = steps.ordered(whole, ends)
    # Beside the multiplications each product has a price of its own, and a result may have to be turned.
    assert found.work <= multiplications(sizes) + (len(parts) + 1) * steps.step + sizes[0] * sizes[-1]
