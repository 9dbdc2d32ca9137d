"""Normalisations and reductions of rows, spelled out by several operators, as the one operator that they are.

A region of operators on single elements, and of sums, means and maxima over the same axes, is one function of the
elements of rows. It is compared with every operator that works along rows: in float64 first, then as functions in a
normal form in which means are linear.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match, bindings_of
from eqsat.language.arithmetic.elementary import UndecidedError, exact_number
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.arithmetic.rows import RowNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import App, Pattern, Siblings, Spread
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.identities import argument_of
from eqsat.rewrites.theories.spelled import SpelledReader, SpelledRegion, UnspelledError, agree_beyond, evaluated
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check

#: The first part of the names of such equations.
NORM = "norm"
#: The operators that reduce: over axes that they name.
_REDUCING = ("reduce_sum", "reduce_mean", "reduce_max", "reduce_sum_square", "reduce_l2", "reduce_log_sum_exp")
#: The attributes that operators along rows are tried with, others having their defaults.
_TRIED = ("axis", "axes", "keepdims", "epsilon")
#: The other constants of a region, and the elements on which both sides are compared in float64.
_MOST_OTHERS, _MOST_ELEMENTS = 2, 2**20
#: The relative distance that both sides may have in float64: their constants are those of float32.
_CLOSE = 1e-5
_FLOATS = FloatNamespace()
#: The kinds of elements that are not finite.
_KINDS = (np.inf, -np.inf, np.nan)


def norm_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the operators along rows that they spell out."""
    made: dict[int, int] = {}
    for number in sorted(chosen):
        leader = egraph.find(number)
        if egraph.nodes[number].op in _spelling() and not egraph.eclass(leader).constant:
            made.setdefault(leader, number)
    if not any(egraph.nodes[number].op in _REDUCING for number in made.values()):
        return
    reader = SpelledReader(egraph, made, _spelling(), others=True)
    for root in list(made):
        check()
        yield from _matches(reader, root)


def _matches(reader: SpelledReader, root: int) -> Iterator[Match]:
    egraph = reader.egraph
    for leaf in reversed(reader.leaves(root)):
        region = SpelledRegion(leaf)
        try:
            text = reader.read(root, region)
        except UnspelledError:
            continue
        type = egraph.type(leaf)
        reduced = {axes for number in region.uses if (axes := _axes(egraph, number)) is not None}
        ends = len(region.uses) > 1 and len(region.others) <= _MOST_OTHERS and len(reduced) == 1
        if not ends or not isinstance(type, TensorType) or type.dtype.value not in ("float32", "float64"):
            continue
        shapes = {name: _shape(egraph, k) for name, k in region.classes().items()}
        (axes,) = reduced
        if any(shape is None for shape in shapes.values()) or not axes:
            continue
        given = tuple((name, shape) for name, shape in shapes.items() if shape is not None)
        rule = _named_rule(text, tuple(region.numbers.values()), given, axes)
        if rule is not None:
            classes: dict[str, Any] = {n: k for n, k in region.classes().items() if n in rule.tensors}
            bindings = bindings_of(egraph, classes, {})
            yield Match(rule, (root,), (reader.made[root],), bindings, classes, tuple(region.uses))
            return


@cache
def _spelling() -> frozenset[str]:
    """The operators that regions are made of."""
    pointwise = (name for name, spec in OPS.items() if spec.pointwise and not spec.random and not spec.movement)
    return frozenset((*pointwise, *_REDUCING))


def _axes(egraph: EGraph, number: int) -> tuple[int, ...] | None:
    """The axes that an e-node reduces, from the first; () where it drops them, None for another operator."""
    node = egraph.nodes[number]
    if node.op not in _REDUCING:
        return None
    type, attrs = egraph.type(node.operands[0]), OPS[node.op].complete(node.attrs)
    if not isinstance(type, TensorType) or type.shape is None or not attrs["keepdims"] or attrs["axes"] is None:
        return ()
    return tuple(sorted(a % type.rank for a in attrs["axes"]))


def _shape(egraph: EGraph, leader: int) -> tuple[int, ...] | None:
    type = egraph.type(leader)
    return type.static if isinstance(type, TensorType) and type.is_static else None


@lru_cache(1024)
def _named_rule(
    left: str,
    numbers: tuple[tuple[str, float], ...],
    given: tuple[tuple[str, tuple[int, ...]], ...],
    axes: tuple[int, ...],
) -> Rule | None:
    """The equation of a region with an operator along rows; None where none is proved."""
    shapes, uniform = dict(given), dict(numbers)
    conditions = [f"rank({name}) == {len(shape)}" for name, shape in given]
    conditions += [f"dim({name}, {axis}) == {d}" for name, shape in given for axis, d in enumerate(shape)]
    conditions += [f"is_all({name}, {value!r})" for name, value in numbers]
    names = [name for name in shapes if name not in uniform]
    conditions.append(f"wide({', '.join(names)})")
    # Constants are known to be finite.
    finite = [", ".join(some) for some in (names[1:], names)]
    for right, some in itertools.product(_candidates(uniform, shapes, axes), finite):
        asked = [*conditions, *([f"finite({some})"] if some else []), f"shape({left}) == shape({right})"]
        rule = stated(NORM, f"{left} => {right} if {', '.join(asked)}", states_norm)
        if rule is not None:
            return rule
    return None


def _candidates(
    numbers: Mapping[str, float], shapes: Mapping[str, tuple[int, ...]], axes: tuple[int, ...]
) -> Iterator[str]:
    """Operators along rows, on the operand and the constants of a region, as terms."""
    small = [float(exact_number(value)) for value in numbers.values() if 0 < abs(value) < 0.1]
    first, others = axes[0], [name for name in shapes if name not in numbers and name != "x"]
    settings: dict[str, list[Any]] = {"axis": [first], "axes": [axes], "keepdims": [True], "epsilon": small or [None]}
    for op, spec in OPS.items():
        if not (spec.rowwise or "epsilon" in spec.attrs) or not set(spec.attrs) <= {*_TRIED, "p"} or spec.pointwise:
            continue
        counts = range(spec.min_operands - 1, (spec.max_operands or spec.min_operands))
        named = [name for name in spec.attrs if name in _TRIED]
        chosen = list(itertools.product(*(settings[name] for name in named)))
        for count, values in ((count, values) for count in counts for values in chosen):
            fields = [f"{name}={value!r}" for name, value in zip(named, values, strict=True) if value is not None]
            for given in _operands(count, others, shapes, axes):
                yield f"{op}({', '.join(['x', *given, *fields])})"


def _operands(
    count: int, others: Sequence[str], shapes: Mapping[str, tuple[int, ...]], axes: tuple[int, ...]
) -> Iterator[tuple[str, ...]]:
    """The operands beside the first: all other constants in an order, flat where that helps, and a scale of 1."""
    trailing = shapes["x"][axes[0] :]
    one = f"fill(shape={trailing!r}, value=1.0, dtype=dtype(x))"
    for order in itertools.permutations(others):
        for lead in ([], [one]):
            if len(lead) + len(order) == count:
                yield (*lead, *order)
                flat = tuple(f"reshape({n}, shape=({int(np.prod(shapes[n]))},))" for n in order)
                if any(len(shapes[n]) != 1 for n in order):
                    yield (*lead, *flat)


def states_norm(rule: Rule) -> bool:
    """True if both sides of a rule are one function of the elements of rows, by the references of their operators.

    The operand has to be finite where the sides are not the same of rows with infinities and NaN, others always.
    Conditions have to state all sizes. Beside the normal form both sides are compared in float64 on tensors of these
    sizes: a normal form does not tell along which axes a constant varies.
    """
    if isinstance(rule.left, Siblings) or len(rule.left) != 1 or len(rule.right) != 1:
        return False
    conditions = {condition.text for condition in rule.conditions}
    pairs = [text.split(", ") for text in (argument_of(c, "is_all") for c in conditions) if text]
    numbers = {name: float(ast.literal_eval(value)) for name, value in pairs}
    shapes = _stated_shapes(conditions)
    finite = {name for text in conditions for name in argument_of(text, "finite").split(", ")}
    sides = (rule.left[0], rule.right[0])
    if not shapes.get("x"):
        return False
    axes = {one for side in sides for one in _reduced(side, len(shapes["x"]))}
    if len(axes) == 1:
        shapes = _cut(shapes, next(iter(axes)))
    known = rule.tensors <= shapes.keys() and rule.tensors - numbers.keys() - {"x"} <= finite
    same_shape = any(c.startswith("shape(") and " == shape(" in c for c in conditions)
    if not known or not same_shape or len(axes) != 1 or not _agree(sides, shapes, numbers):
        return False
    if "x" not in finite and not _agree_beyond(sides, shapes, numbers, next(iter(axes))):
        return False
    xp = RowNamespace(next(iter(axes)), len(shapes["x"]))
    values = {name: xp.operand(name, shape) for name, shape in shapes.items() if name not in numbers}
    values |= {name: np.broadcast_to(xp.number(value), shapes[name]) for name, value in numbers.items()}
    try:
        left, right = (evaluated(side, xp, values) for side in sides)
        is_same = np.shape(left) == np.shape(right) and xp.subtract(left, right).flat[0] == 0
        # Where the left side divides by 0 anything may stand for it.
        return bool(is_same and not xp.is_defined(left))
    except (UndecidedError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return False


def _agree_beyond(
    sides: Sequence[Pattern],
    shapes: Mapping[str, tuple[int, ...]],
    numbers: Mapping[str, float],
    axes: tuple[int, ...],
) -> bool:
    """True if both sides are the same of rows with elements that are not finite, of any kinds."""
    rng = np.random.default_rng(0)
    values: dict[str, Any] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    values |= {name: np.full(shapes[name], float(exact_number(value))) for name, value in numbers.items()}
    count = int(np.prod([shapes["x"][axis] for axis in axes]))
    if count <= len(_KINDS):
        return False
    for chosen in itertools.chain.from_iterable(itertools.combinations(_KINDS, n) for n in range(1, len(_KINDS) + 1)):
        rows = np.moveaxis(rng.standard_normal(shapes["x"]), axes, range(-len(axes), 0))
        flat = rows.reshape(-1, count)
        flat[:, : len(chosen)] = chosen
        x = np.moveaxis(flat.reshape(rows.shape), range(-len(axes), 0), axes)
        if not agree_beyond(sides, values | {"x": x}):
            return False
    return True


def _cut(shapes: Mapping[str, tuple[int, ...]], axes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
    """Shapes with but two rows along the axes that are neither reduced, nor those of a constant: all rows are alike."""
    rank = len(shapes["x"])
    held = {rank - 1 - n for name, s in shapes.items() if name != "x" for n, d in enumerate(reversed(s)) if d != 1}
    cut = tuple(d if axis in axes or axis in held else min(d, 2) for axis, d in enumerate(shapes["x"]))
    return {**shapes, "x": cut}


def _stated_shapes(conditions: Collection[str]) -> dict[str, tuple[int, ...]]:
    """The shapes that conditions state in full."""
    ranks = dict(text.removeprefix("rank(").split(") == ") for text in conditions if text.startswith("rank("))
    dims = dict(text.split(" == ") for text in conditions if text.startswith("dim("))
    found = {}
    for name, rank in ranks.items():
        sizes = [dims.get(f"dim({name}, {axis})", "") for axis in range(int(rank))]
        if all(size.isdigit() for size in sizes):
            found[name] = tuple(map(int, sizes))
    return found


def _reduced(pattern: Pattern | Spread, rank: int) -> Iterator[tuple[int, ...]]:
    """The axes that the reductions in a term name."""
    if not isinstance(pattern, App):
        return
    for operand in pattern.operands:
        yield from _reduced(operand, rank)
    if pattern.op in _REDUCING and "axes" in pattern.fields:
        yield tuple(sorted(a % rank for a in ast.literal_eval(pattern.fields["axes"].text)))


def _agree(sides: Sequence[Pattern], shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, float]) -> bool:
    """True if both sides are about the same on random tensors."""
    if sum(int(np.prod(shape)) for shape in shapes.values()) > _MOST_ELEMENTS:
        return False
    rng = np.random.default_rng(0)
    values: dict[str, Any] = {name: rng.standard_normal(shape) for name, shape in shapes.items()}
    values |= {name: np.full(shapes[name], float(exact_number(value))) for name, value in numbers.items()}
    try:
        with np.errstate(all="ignore"):
            left, right = (np.asarray(evaluated(side, _FLOATS, values)) for side in sides)
    except Exception:  # noqa: BLE001 - an operator on tensors that it does not take
        return False
    if left.shape != right.shape or not np.isfinite(left).all() or not np.isfinite(right).all():
        return False
    return bool(np.abs(left - right).max(initial=0.0) <= _CLOSE * np.abs(left).max(initial=0.0))
