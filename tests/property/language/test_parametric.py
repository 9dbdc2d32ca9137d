"""Arrays of unknown sizes: each path is one of NumPy's results, and paths together are all that there are."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import z3
from hypothesis import given
from hypothesis import strategies as st

from eqsat.language.ops import OPS
from eqsat.language.parametric.atoms import Fold, Read, SizeAtom
from eqsat.language.parametric.elements import Elements
from eqsat.language.parametric.integers import NotParametric, Unknown, integer
from eqsat.language.parametric.namespace import Parametric
from eqsat.language.parametric.paths import Path, SolverBudget, TooManyQuestions, current, explored
from eqsat.language.terms import TensorType
from eqsat.language.terms.dims import Sym, evaluate

#: No bound unknown of these tests reaches so far.
_BEYOND = 13


def _answered(path: Path, sizes: Mapping[str, int]) -> bool:
    return all(question.at(sizes) for question in path.facts)


# --- paths ---------------------------------------------------------------------------------------------------------


def _steps(n: Any) -> Any:
    """Code with many answers: of order, equality, quotients and remainders."""
    if n > 20:
        return n - 20
    if n % 3 == 0:
        return n // 3 if n // 3 > 2 else -n
    return min(n * 2, 15) + (1 if n == 7 else 0)


def test_each_number_is_on_one_path_whose_result_is_its_own() -> None:
    def run() -> Any:
        return _steps(Unknown(current().unknown("n", 0)))

    with SolverBudget(2000):
        paths = list(explored(run, {}))
    for n in range(40):
        # Where a remainder is 0, the quotient has a name of its own.
        sizes = {"n": n, "n/(3)": n // 3}
        here = [result for path, result in paths if _answered(path, sizes)]
        assert len(here) == 1
        (result,) = here
        formula = result.formula if type(result) is Unknown else result
        assert evaluate(formula, sizes) == _steps(n)


@given(st.integers(-30, 30), st.integers(1, 9), st.integers(-30, 30))
def test_arithmetic_is_that_of_integers(a: int, b: int, c: int) -> None:
    with SolverBudget(500), Path({"a": a, "b": b, "c": c}):
        x, y, z = (Unknown(Sym.named(name)) for name in "abc")
        made = [
            (x + y * z - 3, a + b * c - 3), (x // y, a // b), (x % y, a % b), (-x, -a), (abs(z), abs(c)),
            ((x * y + z) // y, (a * b + c) // b), ((x * y + z) % y, (a * b + c) % b), (7 - x, 7 - a),
            (x.smaller(z), min(a, c)), (x.larger(z), max(a, c)), (max(x, z, y), max(a, c, b)),
        ]  # fmt: skip
        for unknown, known in made:
            assert evaluate(unknown.formula if type(unknown) is Unknown else unknown, current().witness) == known
        assert (x < z, x == z, x >= y, x != z, bool(x)) == (a < c, a == c, a >= b, a != c, bool(a))


def test_numbers_that_code_needs_are_refused() -> None:
    with Path({"n": 3}):
        n = Unknown(Sym.named("n"))
        assert isinstance(n, int)
        for use in (
            lambda: range(n),
            lambda: [0][n],
            lambda: {n},
            lambda: (0,) * n,
            lambda: np.zeros(n),
            lambda: float(n),
        ):
            with pytest.raises(NotParametric):
                use()


def test_more_questions_than_are_allowed_end_an_exploration() -> None:
    def run() -> int:
        n = Unknown(current().unknown("n", 0))
        return next(place for place in itertools.count() if n == place)

    with pytest.raises(TooManyQuestions, match="more than 20 questions"), SolverBudget(20):
        list(explored(run, {}))


# --- arrays --------------------------------------------------------------------------------------------------------


def value(elements: Elements, term: Any, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Fraction:
    """The number that a term is, of elements that are known."""
    if isinstance(term, int):
        return Fraction(term)
    if z3.is_rational_value(term):
        return Fraction(term.numerator_as_long(), term.denominator_as_long())
    parts = [value(elements, part, arrays, sizes) for part in term.children()]
    kind = term.decl().kind()
    if kind == z3.Z3_OP_ADD:
        return sum(parts, start=Fraction(0))
    if kind == z3.Z3_OP_MUL:
        return math.prod(parts, start=Fraction(1))
    if kind == z3.Z3_OP_SUB:
        return parts[0] - sum(parts[1:], start=Fraction(0))
    if kind == z3.Z3_OP_UMINUS:
        return -parts[0]
    if kind == z3.Z3_OP_TO_REAL:
        return parts[0]
    name = term.decl().name()
    if name.startswith("max"):
        if name in elements.atoms:
            return _folded(elements, name, arrays, sizes)
        return max(parts)
    if name == "inverse":
        return 1 / parts[0]
    atom = elements.atoms[name]
    if isinstance(atom, Read):
        return Fraction(arrays[atom.operand][tuple(evaluate(i, sizes) for i in atom.indices)])
    if isinstance(atom, SizeAtom):
        return Fraction(evaluate(atom.atom, sizes))
    return _folded(elements, name, arrays, sizes)


def _folded(elements: Elements, name: str, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Fraction:
    fold = elements.atoms[name]
    assert isinstance(fold, Fold)
    found = []
    for numbers in itertools.product(range(_BEYOND), repeat=len(fold.bound)):
        here = {**sizes, **dict(zip(fold.bound, numbers, strict=True))}
        if all(question.at(here) for question in fold.domain):
            found.append(value(elements, fold.term, arrays, here))
    if fold.kind == "sum":
        return sum(found, start=Fraction(0))
    return max(found) if fold.kind == "max" else math.prod(found, start=Fraction(1))


SHAPES = st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple)


def _draws(shape: tuple[int, ...], data: st.DataObject) -> Iterator[tuple[str, dict[str, Any], tuple[int, ...]]]:
    """Operators on one operand, with attributes, and their second operand's shape, if they have one."""
    rank = len(shape)
    axis = data.draw(st.integers(0, rank - 1))
    start = data.draw(st.integers(0, shape[axis]))
    step = data.draw(st.sampled_from([1, 2, -1]))
    end = data.draw(st.integers(-1 if step < 0 else 0, shape[axis] + 2))
    flags = [data.draw(st.booleans()) for _ in range(2)]
    perm = tuple(data.draw(st.permutations(range(rank))))
    pads = tuple(data.draw(st.integers(-1 if size > 2 else 0, 2)) for size in shape * 2)
    other = tuple(data.draw(st.sampled_from([1, size])) for size in shape)
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, rank - 1), min_size=1))))
    yield "transpose", {"perm": perm}, ()
    yield (
        "slice",
        {"axes": (axis,), "starts": (start if step > 0 else shape[axis] - 1,), "ends": (end,), "steps": (step,)},
        (),
    )
    yield "pad", {"pads": pads, "value": 2.0}, ()
    yield "tile", {"repeats": tuple(data.draw(st.integers(1, 2)) for _ in shape)}, ()
    yield "expand", {"shape": (2, *shape)}, ()
    yield "reshape", {"shape": (int(np.prod(shape)),)}, ()
    yield "reshape", {"shape": (*shape[:axis], 1, *shape[axis:])}, ()
    yield "reduce_sum", {"axes": axes, "keepdims": flags[0]}, ()
    yield "reduce_mean", {"axes": axes, "keepdims": flags[0]}, ()
    yield "reduce_max", {"axes": axes, "keepdims": flags[0]}, ()
    yield "reduce_prod", {"axes": axes, "keepdims": flags[0]}, ()
    yield "cumsum", {"axis": axis, "exclusive": flags[0], "reverse": flags[1]}, ()
    yield "add", {}, other
    yield "mul", {}, other
    yield "relu", {}, ()
    yield "concat", {"axis": axis}, shape
    if rank > 1:
        yield "trilu", {"k": data.draw(st.integers(-1, 1)), "upper": flags[0]}, ()
        yield "matmul", {}, (*shape[:-2], shape[-1], 2)


@given(SHAPES, st.data())
def test_references_on_unknown_sizes_compute_what_they_compute_on_numbers(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    """Each operator of a chain of two: its elements on the path of some sizes are those that NumPy has."""
    first = data.draw(st.sampled_from(list(_draws(shape, data))), label="first")
    _compare(shape, first, data)


def _compare(shape: tuple[int, ...], step: tuple[str, dict[str, Any], tuple[int, ...]], data: st.DataObject) -> None:
    op, attrs, other = step
    given_shapes = {"x": shape} | ({"y": other} if other else {})
    rng = np.random.default_rng(len(op) + sum(shape))
    arrays = {name: rng.integers(-4, 5, size).astype(np.float64) for name, size in given_shapes.items()}
    declared = OPS[op]
    full = declared.complete(attrs)
    types = [TensorType.of("float64", size) for size in given_shapes.values()]
    (result,) = declared.result_types(types, full)
    from eqsat.language.arithmetic.floats import FloatNamespace

    expected = np.asarray(declared.reference(FloatNamespace(), *arrays.values(), **full))
    known = {f"{name}.{axis}": size for name, dims in given_shapes.items() for axis, size in enumerate(dims)}
    parametric = Parametric()
    with SolverBudget(5000), Path(known) as path:
        operands = []
        for name, dims in given_shapes.items():
            unknown = tuple(integer(path.unknown(f"{name}.{axis}", 1)) for axis in range(len(dims)))
            operands.append((parametric.variable, name, TensorType(types[0].dtype, unknown)))
        made = [make(name, type_) for make, name, type_ in operands]
        inferred = declared.result_types([type_ for _, _, type_ in operands], full)
        array = declared.reference(parametric.namespace([], []), *made, **full)
        assert [_number(dim, path.witness) for dim in array.shape] == list(expected.shape)
        assert [_number(dim, path.witness) for dim in inferred[0].dims] == list(result.static)
        if not expected.size:
            return
        place = tuple(data.draw(st.integers(0, size - 1)) for size in expected.shape)
        indices = []
        for axis, at in enumerate(place):
            path.witness[f"index.{axis}"] = at
            indices.append(integer(path.unknown(f"index.{axis}", 0, _formula(inferred[0].dims[axis]))))
        term = array.at(tuple(indices))
        sizes = dict(path.witness)
    computed = value(parametric.elements, term, arrays, sizes)
    assert float(computed) == pytest.approx(float(expected[place]))


def _formula(dim: Any) -> Any:
    return dim.formula if type(dim) is Unknown else dim


def _number(dim: Any, sizes: Mapping[str, int]) -> int:
    return evaluate(_formula(dim), sizes)
