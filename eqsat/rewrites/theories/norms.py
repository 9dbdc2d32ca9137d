"""Normalisations and reductions of rows, spelled out by several operators, as the one operator that they are.

A region of operators on single elements, and of sums, means and maxima over the same axes, is one function of the
elements of rows. It is compared with every operator that works along rows: in float64 first, then as functions in a
normal form in which means are linear.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.arithmetic.elementary import UndecidedError
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.arithmetic.rows import RowNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import App, Pattern, Spread
from eqsat.language.terms.types import DType, TensorType
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.functions import spelling
from eqsat.rewrites.theories.identities import numbers_of, operands_of, ranks_of
from eqsat.rewrites.theories.spelled import IN_FLOAT32, SpelledReader, agree_beyond, evaluated, in_float64, real_numbers
from eqsat.rewrites.theories.stating import stated, term_of
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
    nodes = ChosenNodes(egraph, chosen, _spelling())
    if not any(nodes.op(leader) in _REDUCING for leader in nodes.made):
        return
    reader = SpelledReader(nodes, others=True)
    for root in list(nodes.made):
        check()
        for text, region in reader.regions(root):
            reduced = {axes for enode in region.uses if (axes := _axes(egraph, enode)) is not None}
            shapes = {name: _shape(egraph, k) for name, k in region.classes().items()}
            given = tuple((name, shape) for name, shape in shapes.items() if shape is not None)
            if len(region.others) > _MOST_OTHERS or len(reduced) != 1 or () in reduced or len(given) < len(shapes):
                continue
            rules = _named_rules(text, tuple(region.numbers.values()), given, *reduced)
            for rule in rules:
                yield nodes.match(rule, root, region.classes(), region.uses)
            if rules:
                break


@cache
def _spelling() -> frozenset[str]:
    """The operators that regions are made of."""
    return spelling().union(_REDUCING)


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
def _named_rules(
    left: str,
    numbers: tuple[tuple[str, float], ...],
    given: tuple[tuple[str, tuple[int, ...]], ...],
    axes: tuple[int, ...],
) -> list[Rule]:
    """The proved equations of a region with operators along rows, one for each of these."""
    shapes, uniform = dict(given), dict(numbers)
    conditions = [f"rank({name}) == {len(shape)}" for name, shape in given]
    conditions += [f"dim({name}, {axis}) == {d}" for name, shape in given for axis, d in enumerate(shape)]
    conditions += [f"is_all({name}, {value!r})" for name, value in numbers]
    conditions.append(IN_FLOAT32)
    term, drawn = term_of(left), _drawn(_cut(shapes, axes), uniform)
    wanted = None if term is None else in_float64(term[0], drawn)
    if wanted is None or wanted.size > _MOST_ELEMENTS:
        return []
    # Constants are known to be finite.
    others = [name for name in shapes if name not in uniform and name != "x"]
    finite = [", ".join(some) for some in (others, ["x", *others])]
    agreeing = (right for right, made in _candidates(uniform, shapes, drawn, axes) if _is_close(made, wanted))
    found: dict[str, Rule] = {}
    for right, some in itertools.product(agreeing, finite):
        op = right.partition("(")[0]
        asked = [*conditions, *([f"finite({some})"] if some else []), f"shape({left}) == shape({right})"]
        rule = None if op in found else stated(NORM, f"{left} => {right} if {', '.join(asked)}", states_norm)
        if rule is not None:
            found[op] = rule
    return list(found.values())


def _candidates(
    numbers: Mapping[str, float],
    shapes: Mapping[str, tuple[int, ...]],
    drawn: Mapping[str, Any],
    axes: tuple[int, ...],
) -> Iterator[tuple[str, Any]]:
    """Operators along rows, on the operand and the constants of a region, as terms, and what they make of tensors."""
    small = [value for value in real_numbers(numbers).values() if 0 < abs(value) < 0.1]
    others = {name: drawn[name] for name in shapes if name not in numbers and name != "x"}
    ones = f"fill(shape={shapes['x'][axes[0] :]!r}, value=1.0, dtype=dtype(x))", np.ones(drawn["x"].shape[axes[0] :])
    settings: dict[str, list[Any]] = {"axis": [axes[0]], "axes": [axes], "keepdims": [True], "epsilon": small}
    for op, spec in OPS.items():
        if not (spec.rowwise or "epsilon" in spec.attrs) or not set(spec.attrs) <= {*_TRIED, "p"} or spec.pointwise:
            continue
        named = [name for name in spec.attrs if settings.get(name)]
        for values in itertools.product(*(settings[name] for name in named)):
            fields = dict(zip(named, values, strict=True))
            for given in _operands(others, ones):
                if not spec.min_operands <= len(given) + 1 <= (spec.max_operands or spec.min_operands):
                    continue
                try:
                    types = [TensorType(DType.FLOAT32, np.shape(one)) for one in (drawn["x"], *given.values())]
                    spec.result_types(types, spec.complete(fields))
                    with np.errstate(all="ignore"):
                        made = spec.reference(_FLOATS, drawn["x"], *given.values(), **fields)
                except Exception:  # noqa: BLE001 - references say in many ways that operands do not fit
                    continue
                terms = ["x", *given, *(f"{name}={value!r}" for name, value in fields.items())]
                yield f"{op}({', '.join(terms)})", np.asarray(made)


def _operands(others: Mapping[str, Any], ones: tuple[str, Any]) -> Iterator[dict[str, Any]]:
    """The operands beside the first, by their terms: all other constants, flat or not, after a scale of 1 or none."""
    for order in itertools.permutations(others):
        flat = {f"reshape({name}, shape=({others[name].size},))": others[name].reshape(-1) for name in order}
        for given in ({name: others[name] for name in order}, flat):
            yield given
            yield {ones[0]: ones[1], **given}
            if all(array.ndim == 1 for array in given.values()):
                break  # flat already


def states_norm(rule: Rule) -> bool:
    """True if both sides of a rule are one function of the elements of rows, by the references of their operators.

    The operand has to be finite where the sides are not the same of rows with infinities and NaN, others always.
    Conditions have to state all sizes. Beside the normal form both sides are compared in float64 on tensors of these
    sizes: a normal form does not tell along which axes a constant varies.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    numbers = {name: float(value) for name, value in numbers_of(rule).items()}
    shapes = _stated_shapes(conditions)
    finite = operands_of("finite", conditions)
    if not shapes.get("x"):
        return False
    axes = {one for side in sides for one in _reduced(side, len(shapes["x"]))}
    if len(axes) != 1:
        return False
    (along,) = axes
    shapes = _cut(shapes, along)
    known = rule.tensors <= shapes.keys() and rule.tensors - numbers.keys() - {"x"} <= finite
    has_shape = any(c.startswith("shape(") and " == shape(" in c for c in conditions)
    if not known or not has_shape or IN_FLOAT32 not in conditions:
        return False
    drawn = _drawn(shapes, numbers)
    if not _agree(sides, drawn) or ("x" not in finite and not _agree_beyond(sides, drawn, along)):
        return False
    xp = RowNamespace(along, len(shapes["x"]))
    values = {name: xp.operand(name, shape) for name, shape in shapes.items() if name not in numbers}
    values |= {name: np.broadcast_to(xp.number(value), shapes[name]) for name, value in numbers.items()}
    try:
        left, right = (evaluated(side, xp, values) for side in sides)
        is_same = np.shape(left) == np.shape(right) and xp.subtract(left, right).flat[0] == 0
        # Where the left side divides by 0 anything may stand for it.
        return bool(is_same and not xp.is_defined(left))
    except (UndecidedError, ValueError, TypeError, KeyError, AttributeError, IndexError):
        return False


def _drawn(shapes: Mapping[str, tuple[int, ...]], numbers: Mapping[str, float]) -> dict[str, Any]:
    """Random tensors of these shapes, and constants that are a number."""
    rng, known = np.random.default_rng(0), real_numbers(numbers)
    return {n: np.full(s, known[n]) if n in known else rng.standard_normal(s) for n, s in shapes.items()}


def _agree_beyond(sides: Sequence[Pattern], drawn: Mapping[str, Any], axes: tuple[int, ...]) -> bool:
    """True if both sides are the same of rows with elements that are not finite, of any kinds."""
    count = math.prod(drawn["x"].shape[axis] for axis in axes)
    if count <= len(_KINDS):
        return False
    for chosen in itertools.chain.from_iterable(itertools.combinations(_KINDS, n) for n in range(1, len(_KINDS) + 1)):
        rows = np.moveaxis(drawn["x"], axes, range(-len(axes), 0))
        flat = rows.reshape(-1, count).copy()
        flat[:, : len(chosen)] = chosen
        x = np.moveaxis(flat.reshape(rows.shape), range(-len(axes), 0), axes)
        if not agree_beyond(sides, {**drawn, "x": x}):
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
    dims = dict(text.split(" == ") for text in conditions if text.startswith("dim("))
    sizes = {n: [dims.get(f"dim({n}, {axis})", "") for axis in range(r)] for n, r in ranks_of(conditions).items()}
    return {name: tuple(map(int, every)) for name, every in sizes.items() if all(size.isdigit() for size in every)}


def _reduced(pattern: Pattern | Spread, rank: int) -> Iterator[tuple[int, ...]]:
    """The axes that the reductions in a term name."""
    if not isinstance(pattern, App):
        return
    for operand in pattern.operands:
        yield from _reduced(operand, rank)
    if pattern.op in _REDUCING and "axes" in pattern.fields:
        yield tuple(sorted(a % rank for a in ast.literal_eval(pattern.fields["axes"].text)))


def _agree(sides: Sequence[Pattern], drawn: Mapping[str, Any]) -> bool:
    """True if both sides are about the same on tensors."""
    if sum(array.size for array in drawn.values()) > _MOST_ELEMENTS:
        return False
    left, right = (in_float64(side, drawn) for side in sides)
    return left is not None and right is not None and _is_close(left, right)


def _is_close(left: Any, right: Any) -> bool:
    """True if two tensors are finite and about the same."""
    if left.shape != right.shape or not np.isfinite(left).all() or not np.isfinite(right).all():
        return False
    return bool(np.abs(left - right).max(initial=0.0) <= _CLOSE * np.abs(left).max(initial=0.0))
