"""Elements of tensors as trees: what is computed of each, below it what copies them, below that the operands."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

from eqsat.language.ops import spec
from eqsat.rewrites.proof.naturality.claims import is_monotone, keeps_type

#: A tree of tuples: operators on single elements, below them movements, below them variables. Each part of it is
#: spread to the shape of the whole, as NumPy broadcasts: "of" a variable, the one "number" of a variable, an "absent"
#: operand, "each" result of an operator, the elements after a "move", a "reduced" one.
Element: TypeAlias = "tuple[Any, ...]"
ABSENT: Element = ("absent",)


def inverse_of(perm: str) -> str:
    """The text of the permutation that undoes one."""
    return perm.removeprefix("inverse(").removesuffix(")") if perm.startswith("inverse(") else f"inverse({perm})"


def turned(perm: str, element: Element) -> Element:
    """The elements after a transpose, which takes back the one that it undoes."""
    match element:
        case ("each", name, attributes, parts):
            return ("each", name, attributes, tuple(turned(perm, part) for part in parts))
        case ("number", _) | ("absent",):
            return element
        case ("move", ("transpose", other), (below,)) if other == inverse_of(perm):
            return tuple(below)
    return ("move", ("transpose", perm), (element,))


def moved_below(move: Hashable, elements: Sequence[Element], steady: frozenset[str]) -> Element:
    """The elements after a movement: the same operators of moved ones, where all of them are of one operator."""
    first = elements[0]
    if first[0] == "each" and all(one[:3] == first[:3] and len(one[3]) == len(first[3]) for one in elements):
        parts = zip(*(one[3] for one in elements), strict=True)
        return (*first[:3], tuple(moved_below(move, part, steady) for part in parts))
    alike = len(set(elements)) == 1
    if alike and (first[0] in ("number", "absent") or (first[0] == "of" and first[1] in steady)):
        return first
    return ("move", move, tuple(elements))


def unmoved(move: Hashable, element: Element) -> Element | None:
    """The elements before a movement that all have been through, but for single numbers; None where some have not."""
    match element:
        case ("each", name, attributes, parts):
            before = [unmoved(move, part) for part in parts]
            return None if None in before else ("each", name, attributes, tuple(before))
        case ("move", other, (below,)) if other == move:
            return tuple(below)
        case ("number", _) | ("absent",):
            return element
    return None


def in_order(element: Element) -> Element:
    """The element with operands of commutative operators in an order that does not depend on how they are given."""
    match element:
        case ("each", name, attributes, parts):
            placed = [in_order(part) for part in parts]
            return ("each", name, attributes, tuple(sorted(placed, key=_text) if spec(name).commutative else placed))
        case ("move" | "result" as kind, key, parts):
            return (kind, key, tuple(in_order(part) for part in parts))
        case ("reduced", key, part):
            return ("reduced", key, in_order(part))
    return element


def has_type_of_all(element: Element) -> bool:
    """True for the result of an operator that takes operands of one type, in any order, and keeps it."""
    return element[0] == "each" and spec(element[1]).commutative and keeps_type(spec(element[1]))


def _text(thing: Any) -> str:
    """A text of a key, the same in every process."""
    if isinstance(thing, frozenset):
        return "{" + ",".join(sorted(map(_text, thing))) + "}"
    return "(" + ",".join(map(_text, thing)) + ")" if isinstance(thing, tuple) else repr(thing)


def outside(reduction: Hashable, element: Element) -> Element:
    """The largest or least element, of what is below functions that keep order."""
    if element[0] == "each" and len(element[3]) == 1 and is_monotone(spec(element[1])):
        return (*element[:3], (outside(reduction, element[3][0]),))
    return ("reduced", reduction, element)
