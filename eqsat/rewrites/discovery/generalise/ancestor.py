"""Ancestors of candidates: the most general equation at the same shapes of which one is a case."""

from __future__ import annotations

import ast
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import numpy as np

from eqsat.language.arithmetic.residues import PRIME, Residues
from eqsat.language.terms import Bindings, TensorType
from eqsat.rewrites.conditions.syntax import with_name
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.equations.equation import equations
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.term import both_sides, left_terms, values

#: Largest number of namings of the right side's variables that are tried for one variable of the left side.
_WAYS = 128
#: Draws on which both sides are compared: a maximum of few elements may be one of them by chance.
_DRAWS = 3
_NAMES = "xyzwvutsrqponml"


def ancestor(candidate: CandidateEquation) -> CandidateEquation:
    """The candidate with variables for terms and apart where it stays true at its shapes, modulo a prime.

    A variable stands for a term wherever it occurs, if nothing else reads the term's variables; the places of one
    variable are told apart, all of the left side's or none. Operators are counted anew.

    >>> left, right = "concat(relu(exp(x)), relu(exp(x)), axis=0)", "relu(concat(exp(x), exp(x), axis=0))"
    >>> one = CandidateEquation("c", (left,), (right,), {"x": (2, 2)}, 3, 3)
    >>> ancestor(one).text
    'c: concat(relu(x), relu(y), axis=0) => relu(concat(x, y, axis=0))'
    """
    general, before = candidate, None
    while general is not before:
        before = general
        while (lifted := next(filter(_holds, _lifted(general)), None)) is not None:
            general = lifted
        seen = Counter(name for side in general.left for name in _read(side))
        for name in sorted(n for n, times in seen.items() if times > 1):
            general = next(filter(_holds, _separated(general, name)), general)
    return general if general is candidate else _renamed(general)


def _lifted(candidate: CandidateEquation) -> Iterator[CandidateEquation]:
    """The candidate with a variable for a term of its left side, in every place, the largest terms first."""
    trees = [ast.parse(side, mode="eval").body for side in candidate.left]
    inner = {ast.unparse(n) for tree in trees for n in ast.walk(tree) if isinstance(n, ast.Call) and n is not tree}
    for text in sorted(inner, key=lambda t: (-len(t), t)):
        inside = set(_read(text))
        shape = _shape(candidate, text) if inside else None
        if shape is None:
            continue
        fresh = next(n for n in map("t{}".format, itertools.count()) if n not in candidate.shapes)
        left, right = (
            tuple(ast.unparse(with_name(ast.parse(side, mode="eval").body, text, fresh)) for side in sides)
            for sides in (candidate.left, candidate.right)
        )
        if any(inside & set(_read(side)) for side in (*left, *right)) or any(side == fresh for side in left):
            continue
        shapes = {n: s for n, s in candidate.shapes.items() if n not in inside} | {fresh: shape}
        kinds = {n: d for n, d in candidate.dtypes.items() if n not in inside}
        yield replace(candidate, left=left, right=right, shapes=shapes, dtypes=kinds)


def _shape(candidate: CandidateEquation, text: str) -> tuple[int, ...] | None:
    """The shape of a term at the candidate's shapes; None where it is of no floats."""
    type = _type(replace(candidate, left=(text,), right=(text,)))
    return type.static if type is not None and type.dtype.is_float else None


def _type(candidate: CandidateEquation) -> TensorType | None:
    for equation in equations(candidate):
        rule = equation.rule("term", "simplify")
        (term,) = left_terms(rule, Bindings(dict(equation.operands)))
        return TensorType(term.types[0].dtype, term.types[0].shape)
    return None


def _separated(candidate: CandidateEquation, name: str) -> Iterator[CandidateEquation]:
    """The candidate with another variable for each place of one on its left side, in every way on its right side."""
    places = sum(n == name for side in candidate.left for n in _read(side))
    used = sum(n == name for side in candidate.right for n in _read(side))
    if places**used > _WAYS:
        return
    copies = [f"{name}_{i}" for i in range(places)]
    shapes = {n: s for n, s in candidate.shapes.items() if n != name} | dict.fromkeys(copies, candidate.shapes[name])
    kinds = {n: d for n, d in candidate.dtypes.items() if n != name}
    if name in candidate.dtypes:
        kinds |= dict.fromkeys(copies, candidate.dtypes[name])
    left = _replaced(candidate.left, name, copies)
    # Places in their order come first: most operators keep it.
    for chosen in sorted(itertools.product(copies, repeat=used), key=lambda c: (-len(set(c)), c)):
        right = _replaced(candidate.right, name, chosen)
        yield replace(candidate, left=left, right=right, shapes=shapes, dtypes=kinds)


def _holds(candidate: CandidateEquation) -> bool:
    """Return whether both sides are equal modulo a prime on random operands."""
    for equation in equations(candidate):
        rule = equation.rule("candidate", "simplify")
        bindings = Bindings(dict(equation.operands))
        sides = both_sides(rule, bindings)
        if sides is None:
            return False
        rng, interpretation = np.random.default_rng(0), Residues()
        for _ in range(_DRAWS):
            arrays = {
                id(o): rng.integers(0, PRIME, o.type.static)
                if o.type.dtype.is_float
                else interpretation.constant(o.array, o.type)
                for o in operands(bindings)
            }
            ours, theirs = (values(side, interpretation, arrays) for side in sides)
            if not all(np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True)):
                return False
        return True
    return False


def _renamed(candidate: CandidateEquation) -> CandidateEquation:
    """The candidate with its variables named in reading order, and its operators counted."""
    read = dict.fromkeys(name for side in candidate.left for name in _read(side))
    names = dict(zip(read, _NAMES if len(read) <= len(_NAMES) else read, strict=False))
    left = tuple(_rewritten(side, names.__getitem__) for side in candidate.left)
    right = tuple(_rewritten(side, names.__getitem__) for side in candidate.right)
    return replace(
        candidate,
        left=left,
        right=right,
        shapes={names[n]: candidate.shapes[n] for n in read},
        dtypes={names[n]: candidate.dtypes[n] for n in read if n in candidate.dtypes},
        left_ops=_operators(left),
        right_ops=_operators(right),
    )


def _replaced(sides: tuple[str, ...], name: str, copies: Iterable[str]) -> tuple[str, ...]:
    """The sides with the places of a variable, in reading order, named anew."""
    pending = iter(copies)
    return tuple(_rewritten(side, lambda old: next(pending) if old == name else old) for side in sides)


def _rewritten(side: str, rename: Callable[[str], str]) -> str:
    tree = ast.parse(side, mode="eval")
    for node in _variables(tree.body):
        node.id = rename(node.id)
    return ast.unparse(tree)


def _read(side: str) -> list[str]:
    """The variables of a side, each as often as it is read."""
    return [node.id for node in _variables(ast.parse(side, mode="eval").body)]


def _variables(node: ast.expr) -> Iterator[ast.Name]:
    if isinstance(node, ast.Name):
        yield node
    elif isinstance(node, ast.Call):
        for operand in node.args:
            yield from _variables(operand)


def _operators(sides: tuple[str, ...]) -> int:
    """Distinct operators with operands; parts of one split are one."""
    calls = (n for side in sides for n in ast.walk(ast.parse(side, mode="eval")) if isinstance(n, ast.Call) and n.args)
    keys = {ast.dump(n.args[0]) + "split" if ast.unparse(n.func) in ("slice", "split") else ast.dump(n) for n in calls}
    return len(keys)
