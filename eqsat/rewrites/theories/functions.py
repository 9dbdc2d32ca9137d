"""Functions of one operand, spelled out by several operators, as the one operator that they are.

Frameworks spell an activation in many ways, of which rules state a few. Here the region between a value and a chosen
e-node that is a function of it, element by element, is read by the references of its operators, and compared with every
operator of one operand: at a few places first, then as functions in a normal form, piece by piece of the real line.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Collection, Iterator, Mapping
from functools import cache, lru_cache
from typing import Any

import numpy as np

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.match import Match, bindings_of
from eqsat.language.arithmetic.elementary import UndecidedError, exact_number, pieces_of
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import Siblings
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.theories.identities import argument_of
from eqsat.rewrites.theories.spelled import SpelledReader, SpelledRegion, UnspelledError, agree_beyond, evaluated
from eqsat.rewrites.theories.stating import stated
from eqsat.system.deadline import check

#: The first part of the names of such equations.
FUNCTION = "function"
#: Places at which functions are compared before they are proved to be equal, and the relative distance that they may
#: have there.
_PLACES = np.array([-7.3, -2.9, -1.1, -0.37, 0.0, 0.23, 0.81, 1.7, 3.6, 8.2])
_CLOSE = 1e-5
_BEYOND = np.array([np.inf, -np.inf, np.nan])
#: The settings of attributes that are words, and the most settings of one operator that are tried.
_WORDS: Mapping[str, tuple[str, ...]] = {"approximate": ("none", "tanh")}
_MOST_SETTINGS = 400
_FLOATS = FloatNamespace()


def function_matches(egraph: EGraph, chosen: Collection[int]) -> Iterator[Match]:
    """Matches of equations between regions of chosen e-nodes and the operators that they spell out."""
    made: dict[int, int] = {}
    for number in sorted(chosen):
        leader = egraph.find(number)
        if egraph.nodes[number].op in _spelling() and not egraph.eclass(leader).constant:
            made.setdefault(leader, number)
    reader = SpelledReader(egraph, made, _spelling())
    for root in list(made):
        check()
        yield from _matches(reader, root)


def _matches(reader: SpelledReader, root: int) -> Iterator[Match]:
    """The equation of a class with an operator on a value that it is a function of: the farthest such value."""
    egraph = reader.egraph
    type = egraph.type(root)
    if not isinstance(type, TensorType) or type.dtype.value not in ("float32", "float64"):
        return
    for leaf in reversed(reader.leaves(root)):
        region = SpelledRegion(leaf)
        try:
            text = reader.read(root, region)
        except UnspelledError:
            continue
        if len(region.uses) < 2:
            continue
        rule = _named_rule(text, tuple(region.numbers.values()))
        if rule is not None:
            classes: dict[str, Any] = {n: k for n, k in region.classes().items() if n in rule.tensors}
            bindings = bindings_of(egraph, classes, {})
            yield Match(rule, (root,), (reader.made[root],), bindings, classes, tuple(region.uses))
            return


@lru_cache(1024)
def _named_rule(left: str, numbers: tuple[tuple[str, float], ...]) -> Rule | None:
    """The equation of a region with an operator; None where none is proved."""
    conditions = ["wide(x)", *(f"is_all({name}, {value!r})" for name, value in numbers)]
    conditions.append(f"shape({left}) == shape(x)")
    for right, asked in itertools.product(_named(left, dict(numbers)), ([], ["finite(x)"])):
        rule = stated(FUNCTION, f"{left} => {right} if {', '.join([*asked, *conditions])}", states_function)
        if rule is not None:
            return rule
    return None


def _named(text: str, numbers: Mapping[str, float]) -> Iterator[str]:
    """The operators, as terms, that agree with a term at a few places."""
    (rule,) = parse_rules(f"%phase expand\nspelled: {text} => x", "a spelled out function", origin="candidate")
    if isinstance(rule.left, Siblings):
        return
    try:
        with np.errstate(all="ignore"):
            wanted = np.asarray(evaluated(rule.left[0], _FLOATS, {"x": _PLACES, **_arrays(numbers)}))
    except (UndecidedError, ValueError, TypeError):
        return
    if wanted.shape != _PLACES.shape or wanted.dtype.kind != "f":
        return
    known = np.isfinite(wanted)
    if known.sum() < len(_PLACES) // 2:
        return
    for op, fields, found in _offered(tuple(sorted({*numbers.values()}))):
        if np.allclose(found[known], wanted[known], rtol=_CLOSE, atol=_CLOSE * np.abs(wanted[known]).max()):
            yield f"{op}({', '.join(['x', *(f'{name}={value!r}' for name, value in fields.items())])})"


def _arrays(numbers: Mapping[str, float]) -> dict[str, Any]:
    return {name: np.float64(float(exact_number(value))) for name, value in numbers.items()}


@cache
def _spelling() -> frozenset[str]:
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
    others = _WORDS.get(name, ()) if isinstance(value, str) else numbers
    return list(dict.fromkeys([value, *others]))


def states_function(rule: Rule) -> bool:
    """True if both sides of a rule are one function of one operand, element by element, by the operators' references.

    Constants count as the numbers that they stand for in float32. The operand has to be finite where the sides are not
    the same of infinities and NaN, and no constant may spread it.
    """
    if isinstance(rule.left, Siblings) or len(rule.left) != 1 or len(rule.right) != 1:
        return False
    conditions = {condition.text for condition in rule.conditions}
    pairs = [text.split(", ") for text in (argument_of(c, "is_all") for c in conditions) if text]
    numbers = {name: float(ast.literal_eval(value)) for name, value in pairs}
    has_shape = any(c.startswith("shape(") and c.endswith(" == shape(x)") for c in conditions)
    if rule.tensors - numbers.keys() != {"x"} or "wide(x)" not in conditions or not has_shape:
        return False
    left, right = rule.left[0], rule.right[0]
    if "finite(x)" not in conditions and not agree_beyond((left, right), {"x": _BEYOND, **_arrays(numbers)}):
        return False

    def read(xp: Any) -> tuple[Any, Any]:
        values = {"x": xp.variable, **{name: xp.number(value) for name, value in numbers.items()}}
        return evaluated(left, xp, values), evaluated(right, xp, values)

    try:
        return all(xp.subtract(*sides) == 0 for xp, sides in pieces_of(read))
    except (UndecidedError, ValueError, TypeError, KeyError, AttributeError):  # such as an operator on several elements
        return False
