"""Functions of one operand, spelled out by several operators, as the one operator that they are.

Frameworks spell an activation in many ways, of which rules state a few. Here the region between a value and a chosen
e-node that is a function of it, element by element, is read by the references of its operators, and compared with every
operator of one operand: at a few places first, then as functions in a normal form, piece by piece of the real line.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.arithmetic.elementary import UndecidedError, exact_number, pieces_of
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.rewrites.instances.grid import words
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.identities import numbers_of
from eqsat.rewrites.theories.spelled import IN_FLOAT32, SpelledReader, agree_beyond, evaluated, in_float64, real_numbers
from eqsat.rewrites.theories.stating import stated, term_of
from eqsat.system.deadline import check

#: The first part of the names of such equations.
FUNCTION = "function"
#: Places at which functions are compared before they are proved to be equal, and the relative distance that they may
#: have there.
_PLACES = np.array([-7.3, -2.9, -1.1, -0.37, 0.0, 0.23, 0.81, 1.7, 3.6, 8.2])
_CLOSE = 1e-5
_BEYOND = np.array([np.inf, -np.inf, np.nan])
#: The most settings of one operator that are tried.
_MOST_SETTINGS = 400
_FLOATS = FloatNamespace()


def function_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the operators that they spell out."""
    nodes = ChosenNodes(egraph, chosen, spelling())
    reader = SpelledReader(nodes)
    for root in list(nodes.made):
        check()
        for text, region in reader.regions(root):
            rule = _named_rule(text, tuple(region.numbers.values()))
            if rule is not None:
                yield nodes.match(rule, root, region.classes(), region.uses)
                break


@lru_cache(1024)
def _named_rule(left: str, numbers: tuple[tuple[str, float], ...]) -> Rule | None:
    """The equation of a region with an operator; None where none is proved."""
    conditions = [IN_FLOAT32, *(f"is_all({name}, {value!r})" for name, value in numbers)]
    conditions.append(f"shape({left}) == shape(x)")
    for right, asked in itertools.product(_named(left, dict(numbers)), ([], ["finite(x)"])):
        rule = stated(FUNCTION, f"{left} => {right} if {', '.join([*asked, *conditions])}", states_function)
        if rule is not None:
            return rule
    return None


def _named(text: str, numbers: Mapping[str, float]) -> Iterator[str]:
    """The operators, as terms, that agree with a term at a few places."""
    term = term_of(text)
    wanted = None if term is None else in_float64(term[0], {"x": _PLACES, **real_numbers(numbers)})
    if wanted is None:
        return
    if wanted.shape != _PLACES.shape or wanted.dtype.kind != "f":
        return
    known = np.isfinite(wanted)
    if not known[_PLACES != 0].all():
        return  # no operator makes numbers where there are none, but for a quotient of zeros
    for op, fields, found in _offered(tuple(sorted({*numbers.values()}))):
        if np.allclose(found[known], wanted[known], rtol=_CLOSE, atol=_CLOSE * np.abs(wanted[known]).max()):
            yield f"{op}({', '.join(['x', *(f'{name}={value!r}' for name, value in fields.items())])})"


@cache
def spelling() -> frozenset[str]:
    """The operators that regions are made of: those on single elements."""
    return frozenset(name for name, spec in OPS.items() if spec.pointwise and not spec.random and not spec.movement)


@cache
def _offered(numbers: tuple[float, ...]) -> list[tuple[str, dict[str, Any], Any]]:
    """Operators on one operand, with attributes made of these numbers, and what they are at a few places."""
    found = []
    values = [float(exact_number(value)) for value in numbers if value]
    ratios = [a / b for a, b in itertools.product(values, repeat=2)]
    tried = list(dict.fromkeys(round(v, 12) for v in (0.5, 1.0, *values, *(1 / v for v in values), *ratios)))
    for op, spec in OPS.items():
        unary = spec.pointwise and spec.min_operands == spec.max_operands == 1
        if not unary or spec.asks_finite or any(isinstance(v, bool) or v is None for v in spec.attrs.values()):
            continue
        settings = [_settings(name, value, tried) for name, value in spec.attrs.items()]
        for chosen in itertools.islice(itertools.product(*settings), _MOST_SETTINGS):
            fields = dict(zip(spec.attrs, chosen, strict=True))
            try:
                with np.errstate(all="ignore"):
                    at = np.asarray(spec.reference(_FLOATS, _PLACES, **fields))
            except Exception:  # noqa: BLE001 - an operator that needs what these are not, such as a type
                break
            if at.shape == _PLACES.shape and at.dtype.kind == "f":
                found.append((op, {n: v for n, v in fields.items() if v != spec.attrs[n]}, at))
    return found


def _settings(name: str, value: Any, numbers: list[float]) -> list[Any]:
    """The settings of an attribute that are tried, its default first."""
    others = words(name) if isinstance(value, str) else numbers
    return list(dict.fromkeys([value, *others]))


def states_function(rule: Rule) -> bool:
    """True if both sides of a rule are one function of one operand, element by element, by the operators' references.

    Constants count as the numbers that they stand for in float32, which the operand has to be in. It has to be finite
    where the sides are not the same of infinities and NaN, and no constant may spread it.
    """
    sides = rule.sides
    if sides is None:
        return False
    conditions = {condition.text for condition in rule.conditions}
    numbers = {name: float(value) for name, value in numbers_of(rule).items()}
    has_shape = any(c.startswith("shape(") and c.endswith(" == shape(x)") for c in conditions)
    if rule.tensors - numbers.keys() != {"x"} or IN_FLOAT32 not in conditions or not has_shape:
        return False
    left, right = sides
    if "finite(x)" not in conditions and not agree_beyond((left, right), {"x": _BEYOND, **real_numbers(numbers)}):
        return False

    def read(xp: Any) -> tuple[Any, Any]:
        values = {"x": xp.variable, **{name: xp.number(value) for name, value in numbers.items()}}
        return evaluated(left, xp, values), evaluated(right, xp, values)

    try:
        return all(xp.subtract(*sides) == 0 for xp, sides in pieces_of(read))
    except (UndecidedError, ValueError, TypeError, KeyError, AttributeError):  # such as an operator on several elements
        return False
