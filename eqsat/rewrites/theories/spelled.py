"""Regions between a value and what is computed from it, read as terms of rules."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.language.arithmetic.elementary import UndecidedError, exact_number
from eqsat.language.arithmetic.floats import FloatNamespace
from eqsat.language.ops import OPS
from eqsat.language.terms.pattern import App, Pattern, Spread, Var
from eqsat.language.terms.types import DType, TensorType
from eqsat.rewrites.theories.chosen import ChosenNodes
from eqsat.rewrites.theories.stating import literal_fields

#: The most operators of a region, and the most values that one is read from.
_MOST_STEPS, _MOST_LEAVES = 24, 16
#: What equations ask whose constants count as the numbers that they stand for: in float64 these are others.
IN_FLOAT32 = "dtype(x) == 'float32'"
_FLOATS = FloatNamespace()


class UnspelledError(Exception):
    """Leaves the reading of a region that is no function of a value."""


@dataclass
class SpelledRegion:
    """The region that is a function of a class: its uniform constants, other constants, and what it is made of."""

    leaf: int
    numbers: dict[int, tuple[str, float]] = field(default_factory=dict)
    others: dict[int, str] = field(default_factory=dict)
    uses: list[int] = field(default_factory=list)

    def classes(self) -> dict[str, int]:
        """The class of each name."""
        named = {name: leader for leader, (name, _) in self.numbers.items()}
        return {"x": self.leaf, **named, **{name: leader for leader, name in self.others.items()}}


class SpelledReader:
    """Reads regions of chosen e-nodes; with `others`, of constants whose elements differ too."""

    def __init__(self, nodes: ChosenNodes, *, others: bool = False) -> None:
        self.nodes, self.egraph, self._others = nodes, nodes.egraph, others

    def regions(self, root: int) -> Iterator[tuple[str, SpelledRegion]]:
        """A class in float32 as a term of each class that it is a function of, the farthest first, with its region."""
        for leaf in reversed(self._leaves(root)):
            types = [self.egraph.type(one) for one in (root, leaf)]
            region = SpelledRegion(leaf)
            if any(not isinstance(type, TensorType) or type.dtype is not DType.FLOAT32 for type in types):
                continue
            try:
                text = self._read(root, region)
            except UnspelledError:
                continue
            if len(region.uses) > 1:
                yield text, region

    def _leaves(self, root: int) -> list[int]:
        """The classes that a class is computed from by such operators, nearest first."""
        found: dict[int, None] = {}
        level = [root]
        while level and len(found) < _MOST_LEAVES:
            below = dict.fromkeys(
                self.egraph.find(k) for one in level for k in self.egraph.nodes[self.nodes.made[one]].operands
            )
            fresh = [k for k in below if k not in found and not self.egraph.eclass(k).constant]
            found.update(dict.fromkeys(fresh))
            level = [k for k in fresh if k in self.nodes.made]
        return list(found)

    def _read(self, leader: int, region: SpelledRegion) -> str:
        """The term that a class is computed by; UnspelledError where that is no function of the leaf of a region."""
        leader = self.egraph.find(leader)
        if leader == region.leaf:
            return "x"
        if self.egraph.eclass(leader).constant:
            return self._constant(leader, region)
        if leader not in self.nodes.made or len(region.uses) >= _MOST_STEPS:
            raise UnspelledError
        node = self.egraph.nodes[self.nodes.made[leader]]
        fields = literal_fields(node.op, node.attrs)
        if fields is None:
            raise UnspelledError
        region.uses.append(self.nodes.made[leader])
        operands = [self._read(k, region) for k in node.operands]
        return f"{node.op}({', '.join([*operands, *fields])})"

    def _constant(self, leader: int, region: SpelledRegion) -> str:
        uniform = self.nodes.uniform(leader)
        if uniform is not None:
            return region.numbers.setdefault(leader, (f"n{len(region.numbers)}", uniform))[0]
        type = self.egraph.type(leader)
        known = isinstance(type, TensorType) and type.is_static and self.egraph.eclass(leader).finite
        if not self._others or not known:
            raise UnspelledError
        return region.others.setdefault(leader, f"c{len(region.others)}")


def evaluated(pattern: Pattern | Spread, xp: Any, values: Mapping[str, Any]) -> Any:
    """A term on values, by the references of its operators; UndecidedError for one that has none here."""
    match pattern:
        case Var(name):
            return values[name]
        case App("fill", ()):
            shape, value = (ast.literal_eval(pattern.fields[name].text) for name in ("shape", "value"))
            number = xp.number(value) if xp.exact else np.float64(value)
            return np.broadcast_to(np.array(number, dtype=object if xp.exact else None), shape)
        case App(op, operands, fields) if op in OPS:
            attrs = {name: ast.literal_eval(expression.text) for name, expression in fields.items()}
            found = [evaluated(one, xp, values) for one in operands]
            if op == "cast":
                return _cast(found[0], str(attrs["to"]), xp)
            return OPS[op].reference(xp, *found, **attrs)
    raise UndecidedError


def in_float64(pattern: Pattern, values: Mapping[str, Any]) -> Any | None:
    """A term on tensors of float64; None for an operator that does not take them."""
    try:
        with np.errstate(all="ignore"):
            return np.asarray(evaluated(pattern, _FLOATS, values))
    except Exception:  # noqa: BLE001 - references say in many ways that operands do not fit
        return None


def agree_beyond(sides: Sequence[Pattern], values: Mapping[str, Any]) -> bool:
    """True if both sides are the same on values some of which are infinities or NaN, and these where they are not."""
    left, right = (in_float64(side, values) for side in sides)
    if left is None or right is None or left.shape != right.shape:
        return False
    finite = np.isfinite(left)
    same = np.array_equal(finite, np.isfinite(right))
    return bool(same and np.array_equal(left[~finite], right[~finite], equal_nan=True))


def real_numbers(numbers: Mapping[str, float]) -> dict[str, float]:
    """The numbers that constants in float32 stand for, in float64."""
    return {name: float(exact_number(value)) for name, value in numbers.items()}


def _cast(value: Any, to: str, xp: Any) -> Any:
    """A truth or a number as a float."""
    if to not in ("float32", "float64"):
        raise UndecidedError
    if xp.exact:
        return xp.number(float(value)) if isinstance(value, bool) else value
    return np.asarray(value).astype(np.float64)
