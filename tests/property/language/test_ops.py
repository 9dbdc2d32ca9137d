"""Every operator: its types are those of what it computes, and all interpretations compute the same thing."""

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eqsat.errors import ShapeError
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.arithmetic.reals import Reals
from eqsat.language.arithmetic.residues import PRIME, Residues
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS, sampling
from eqsat.language.terms import Attrs, Sym, TensorType

NAMES = sorted(OPS)
FIXED = {"cast": {"to": "float32"}}
#: Operators made of sums, products and quotients, whose residues are those of the rational result.
FIELD = """
    add sub mul div neg reciprocal where identity matmul gemm conv conv_transpose einsum reshape transpose concat split
    slice pad tile expand gather gather_elements gather_nd scatter_elements scatter_nd depth_to_space space_to_depth
    trilu reduce_sum reduce_mean reduce_prod reduce_sum_square cumsum avg_pool global_avg_pool fill eye identity_kernel
    pool_kernel enlarge cast
"""
RESIDUES = Residues()
#: Operators that order elements, or find places between them, which terms do not allow.
SORTING = {"topk", "grid_sample"}


class Rationals:
    """Exact arithmetic on object arrays of fractions: an oracle that shares no code with the residues."""

    exact = True

    def __getattr__(self, name: str) -> Any:
        if name in ("add", "subtract", "multiply", "negative", "matmul", "sum", "prod"):
            return getattr(np, name)
        raise AttributeError(f"a field has no {name}")

    def divide(self, a: Any, b: Any) -> Any:
        return np.asarray(np.true_divide(a, b))

    def einsum(self, equation: str, *operands: Any) -> Any:
        return np.einsum(equation, *operands)

    def where(self, condition: Any, a: Any, b: Any) -> Any:
        return np.where(condition, a, b)

    def number(self, value: float, like: Any) -> Any:
        return np.array(Fraction(value), object)

    def cast(self, x: Any, dtype: Any) -> Any:
        return x


def drawn(name: str, seed: int) -> tuple[OpSpec, list[TensorType], Attrs]:
    declared, rng = OPS[name], random.Random(f"{name}:{seed}")
    for _ in range(50):
        found = sampling.draw(declared, rng, FIXED.get(name))
        if found is not None:
            return declared, *found
    raise AssertionError(f"the sample rule of {name} draws nothing that fits")


def elements(rng: np.random.Generator, t: TensorType) -> Any:
    """Whole numbers other than 0; indices that fit any axis."""
    if t.dtype.value == "bool":
        return np.asarray(rng.random(t.static) < 0.5)
    if t.dtype.is_integer:
        return np.asarray(rng.integers(-1, 1, t.static), t.dtype.numpy)
    return np.asarray(rng.choice([-3, -2, -1, 1, 2, 3], t.static), t.dtype.numpy)


def outputs(made: Any) -> list[Any]:
    return list(made) if isinstance(made, tuple) else [made]


@pytest.mark.parametrize("name", NAMES)
def test_inferred_types_are_those_computed(name: str) -> None:
    for seed in range(8):
        declared, types, attrs = drawn(name, seed)
        arrays = [elements(np.random.default_rng(seed), t) for t in types]
        results = declared.result_types(types, attrs)
        made = outputs(declared.reference(FloatNamespace(), *arrays, **attrs))
        assert [np.shape(m) for m in made] == [t.static for t in results]
        if name not in {"pow", "mod"}:
            assert [np.asarray(m).dtype for m in made] == [t.dtype.numpy for t in results]


@pytest.mark.parametrize("name", NAMES)
def test_sample_rules_complete_what_is_known(name: str) -> None:
    """Given some operands and attributes of an instance, what is drawn keeps them and fits in most cases."""
    fitting = 0
    for seed in range(20):
        declared, types, attrs = drawn(name, seed)
        rng = random.Random(seed)
        shapes = [t.shape if rng.random() < 0.5 else None for t in types]
        some = {k: v for k, v in attrs.items() if rng.random() < 0.5 or k in FIXED.get(name, {})}
        assert declared.sample is not None
        found = declared.sample(rng, shapes, some)
        if found is None:
            continue
        full = declared.complete(found[1])
        assert {k: full[k] for k in some} == some
        assert all(s is None or s == f for s, f in zip(shapes, found[0], strict=True))
        completed = [TensorType.of(t.dtype, f) for t, f in zip(types, found[0], strict=True)]
        try:
            declared.result_types(completed, full)
        except ShapeError:
            continue
        fitting += 1
    assert fitting >= 10


@pytest.mark.parametrize("name", NAMES)
def test_types_over_named_dims_agree_with_those_over_sizes(name: str) -> None:
    """Replacing sizes by names, the same size by the same name, and putting the sizes back changes no type."""
    for seed in range(8):
        declared, types, attrs = drawn(name, seed)
        sizes = {f"d{n}": n for n in range(200)}
        kept = random.Random(seed).random() < 0.5
        named = [
            t.with_shape(tuple(d if kept and i % 2 else Sym.named(f"d{d}") for i, d in enumerate(t.dims)))
            for t in types
        ]
        static = declared.result_types(types, attrs)
        for symbolic, wanted in zip(declared.result_types(named, attrs), static, strict=True):
            assert symbolic.dtype is wanted.dtype
            if symbolic.shape is not None:
                assert symbolic.at(sizes) == wanted


@pytest.mark.parametrize("name", NAMES)
def test_operands_of_unknown_rank_are_accepted(name: str) -> None:
    declared, types, attrs = drawn(name, 0)
    results = declared.result_types([t.with_shape(None) for t in types], attrs)
    assert [t.dtype for t in results] == [t.dtype for t in declared.result_types(types, attrs)]


@pytest.mark.parametrize("name", FIELD.split())
def test_residues_are_those_of_the_exact_result(name: str) -> None:
    for seed in range(6):
        declared, types, attrs = drawn(name, seed)
        if attrs.get("activation") == "relu" or attrs.get("reduction") in ("max", "min"):
            attrs = attrs | {k: "none" for k in ("activation", "reduction") if k in attrs}
        arrays = [elements(np.random.default_rng(seed), t) for t in types]
        results = list(declared.result_types(types, attrs))
        operands = [RESIDUES.constant(a, t) for a, t in zip(arrays, types, strict=True)]
        found = outputs(declared.reference(RESIDUES.namespace(list(types), results), *operands, **attrs))
        exact = [_fractions(a) if t.dtype.is_float else a for a, t in zip(arrays, types, strict=True)]
        wanted = outputs(declared.reference(Rationals(), *exact, **attrs))
        for got, want in zip(found, wanted, strict=True):
            reduced = [f.numerator * pow(f.denominator, -1, PRIME) % PRIME for f in map(Fraction, np.ravel(want))]
            assert np.ravel(got).tolist() == reduced


def _fractions(array: Any) -> Any:
    result = np.empty(array.shape, object)
    for index in np.ndindex(array.shape):
        result[index] = Fraction(int(array[index]))
    return result


@pytest.mark.parametrize("name", sorted(set(NAMES) - SORTING))
def test_terms_have_the_shape_inferred(name: str) -> None:
    """The reference runs on arrays of symbols."""
    declared, types, attrs = drawn(name, 1)
    terms = Reals()
    operands = [
        elements(np.random.default_rng(0), t)
        if t.dtype.is_integer
        else terms.variable(f"x{i}", t.static, boolean=t.dtype.value == "bool")
        for i, t in enumerate(types)
    ]
    results = list(declared.result_types(types, attrs))
    made = outputs(declared.reference(terms.namespace(list(types), results), *operands, **attrs))
    assert [np.shape(terms.finish(m, t)) for m, t in zip(made, results, strict=True)] == [t.static for t in results]


@pytest.mark.parametrize("causal", [False, True])
def test_attention_by_booleans_is_softmax_of_what_is_kept(causal: bool) -> None:
    """The mask of truth values means the same to floats and to terms, an empty row included."""
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 2, 3, 2)) for _ in range(3))
    mask = np.array([[True, True, False], [False, False, False], [False, True, True]])
    kept = mask & np.tri(3, dtype=bool) if causal else mask
    weights = np.where(kept, np.exp(q @ k.swapaxes(-1, -2) * 0.5), 0.0)
    wanted = weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30) @ v
    attend = OPS["attention"].reference
    np.testing.assert_allclose(attend(FloatNamespace(), q, k, v, mask, scale=0.5, causal=causal), wanted, atol=1e-12)
    terms = Reals()
    symbols = [terms.variable(n, q.shape) for n in "qkv"]
    types = [TensorType.of("float32", q.shape)] * 3
    xp = terms.namespace(list(types), types[:1])
    known = attend(xp, *symbols, mask.astype(object), scale=0.5, causal=causal)
    plain = attend(xp, *symbols, mask, scale=0.5, causal=causal)
    assert {terms.settle(a, b, 1000) for a, b in zip(np.ravel(known), np.ravel(plain), strict=True)} == {"proved"}
    assert {terms.settle(a, xp.number(0.0, a)[()], 1000) for a in np.ravel(known[0, 0, 1])} == {"proved"}
    symbolic = attend(xp, *symbols, terms.variable("m", mask.shape, boolean=True), scale=0.5, causal=causal)
    assert symbolic.shape == q.shape


def test_attention_types_what_its_reference_computes_and_nothing_else() -> None:
    batches = ((1, 1, 1), (2, 2, 2), (1, 2, 2), (2, 1, 1), (2, 2, 1), (2, 3, 3))
    heads = ((2, 2, 2), (2, 1, 1), (1, 2, 2), (2, 2, 1), (2, 0, 0), (0, 0, 0))
    masks = ((), ((2, 2),), ((1, 1, 2, 1),), ((2, 1, 1, 1),), ((1, 2, 1, 1),), ((1, 1, 1, 2, 2),), ((3, 2),))
    attend = OPS["attention"]
    attrs = attend.complete({"scale": 0.5})
    typed = 0
    for batch, head, mask in itertools.product(batches, heads, masks):
        q, k, v = ((b, h, 2, width) for b, h, width in zip(batch, head, (3, 3, 1), strict=True))
        shapes = (q, k, v, *mask)
        try:
            promised = attend.result_types([TensorType.of("float64", s) for s in shapes], attrs)[0].static
        except ShapeError:
            promised = None
        try:
            made = attend.reference(FloatNamespace(), *map(np.ones, shapes), **attrs).shape
        except ValueError:
            made = None
        assert promised in (made, None), shapes
        broadcast = len({*batch}) > 1 or head[1] != head[2] or made != (*q[:3], 1)
        assert promised == (None if broadcast else made), shapes
        typed += promised is not None
    assert typed == 25


@pytest.mark.parametrize("name", sorted(n for n, s in OPS.items() if s.multilinear))
def test_multilinear_operators_are_linear_in_each_operand(name: str) -> None:
    for seed in range(3):
        declared, types, attrs = drawn(name, seed)
        if "activation" in attrs:
            attrs = attrs | {"activation": "none"}
        types = types[:2] if name in ("conv", "gemm", "conv_transpose") else types  # a bias is a sum, and not linear
        rng = np.random.default_rng(seed)
        arrays = [np.asarray(elements(rng, t), np.int64 if t.dtype.is_integer else np.float64) for t in types]
        for place in sorted(declared.multilinear & set(range(len(types)))):
            x, y = arrays[place], np.asarray(elements(rng, types[place]), np.float64)
            at_x, at_y, together = (
                [*arrays[:place], operand, *arrays[place + 1 :]] for operand in (x, y, 2.0 * x + 3.0 * y)
            )
            made = [outputs(declared.reference(FloatNamespace(), *o, **attrs)) for o in (at_x, at_y, together)]
            for of_x, of_y, of_both in zip(*made, strict=True):
                np.testing.assert_allclose(of_both, 2.0 * of_x + 3.0 * of_y, atol=1e-9)


@pytest.mark.parametrize("name", sorted(n for n, s in OPS.items() if s.commutative))
def test_commutative_operators_commute(name: str) -> None:
    declared, types, attrs = drawn(name, 0)
    arrays = [elements(np.random.default_rng(0), t) for t in types]
    xp = FloatNamespace()
    np.testing.assert_array_equal(
        declared.reference(xp, *arrays, **attrs), declared.reference(xp, *arrays[::-1], **attrs)
    )


@pytest.mark.parametrize("name", sorted(n for n, s in OPS.items() if s.movement))
def test_movement_copies_elements(name: str) -> None:
    """Every element of the result is one of the operand's, or the padding."""
    declared, types, attrs = drawn(name, 2)
    arrays = [elements(np.random.default_rng(0), t) for t in types]
    values = {v for a in arrays for v in np.ravel(a).tolist()} | {attrs.get("value")}
    for made in outputs(declared.reference(FloatNamespace(), *arrays, **attrs)):
        assert set(np.ravel(made).tolist()) <= values


@settings(max_examples=150, deadline=None)
@given(st.lists(st.integers(0, 5), min_size=1, max_size=3), st.data())
def test_slices_are_those_of_numpy(shape: list[int], data: st.DataObject) -> None:
    index = tuple(data.draw(st.slices(n)) for n in shape)
    bounds = [s.indices(n) for s, n in zip(index, shape, strict=True)]
    attrs = {
        "starts": tuple(b[0] for b in bounds),
        "ends": tuple(b[1] for b in bounds),
        "steps": tuple(b[2] for b in bounds),
        "axes": tuple(range(len(shape))),
    }
    x = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    (inferred,) = OPS["slice"].result_types([TensorType.of("float32", shape)], OPS["slice"].complete(attrs))
    made = OPS["slice"].reference(FloatNamespace(), x, **attrs)
    np.testing.assert_array_equal(made, x[index])
    assert inferred.static == made.shape
