"""Instances of a left side, and whether right sides are equal there: in residues, or in float64 on several draws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from eqsat.errors import GraphError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.arithmetic.residues import PRIME, Residues
from eqsat.language.terms import App, Bindings, Expression, Left, Pattern, Siblings, Spread, TensorType, Var
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.rewrites.conditions.expression import Undefined, evaluate
from eqsat.rewrites.discovery.equations.sides import expression, left_written
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.extremes import replaced
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import Terms, left_terms, output_types, values

#: Draws of the elements that must all agree where residues, to which order and size mean nothing, do not.
DRAWS = 4
TOLERANCE = 1e-9
#: Attempts at one instance that count as one miss.
_TRIES = 10


class LeftSideInstance:
    """One instance of a left side."""

    def __init__(self, rule: Rule, bindings: Bindings, seed: int) -> None:
        self.rule, self.bindings = rule, bindings
        self.left = left_terms(rule, bindings)
        self.types = output_types(self.left)
        self.operands = operands(bindings)
        self._seed = seed
        self._exact: tuple[dict[int, Any], list[Any]] | None = None
        self._floats: list[tuple[dict[int, Any], list[Any]]] = []

    def degenerate(self, own: Bindings) -> bool:
        """Return whether much is equal by accident: a tensor has mostly axes of one, where that of `own` has not.

        An empty one, and one of a lower rank than two, count as well.
        """
        for name, thing in self.bindings.tensors.items():
            typical = own.tensors[name]
            first = typical[0] if isinstance(typical, tuple) else typical
            if _thin(first.type):
                continue
            if any(_thin(o.type) for o in (thing if isinstance(thing, tuple) else (thing,))):
                return True
        return False

    def right(self, right: Sequence[Pattern]) -> list[Any] | None:
        """The terms of a right side; None where its types are not those of the left one.

        Undefined where an attribute has no value: a rule does not fire there.
        """
        try:
            terms = instantiate_all(right, self.bindings, Terms(self.rule))
        except Undefined:
            raise
        except (GraphError, IndexError):  # a type that is none, or a sequence with fewer elements than another
            return None
        return terms if output_types(terms) == self.types else None

    def agrees(self, right: Sequence[Pattern], known: dict[tuple[Any, ...], bool] | None = None) -> bool | None:
        """Return whether a right side equals the left one; None where it has no value.

        `known` holds what is known of right sides that come to the same terms here.
        """
        try:
            terms = self.right(right)
        except Undefined:
            return None
        if terms is None:
            return False
        key = tuple(terms)
        if known is None:
            return self._equal(terms)
        if key not in known:
            known[key] = self._equal(terms)
        return known[key]

    def _equal(self, terms: list[Any]) -> bool:
        arrays, left = self._residues()
        if all(np.array_equal(a, b) for a, b in zip(left, values(terms, Residues(), arrays), strict=True)):
            return True
        return all(self._close(terms, draw) for draw in range(DRAWS))

    def _residues(self) -> tuple[dict[int, Any], list[Any]]:
        if self._exact is None:
            arrays = self.residues(self._seed)
            self._exact = arrays, values(self.left, Residues(), arrays)
        return self._exact

    def residues(self, seed: int) -> dict[int, Any]:
        """Random residues for float operands, by identity; of others, the elements drawn with them."""
        rng = np.random.default_rng(seed)
        return {id(o): elements(o, rng.integers(0, PRIME, o.type.static)) for o in self.operands}

    def _close(self, terms: list[Any], draw: int) -> bool:
        interpretation = Floats(wide=True)
        with np.errstate(all="ignore"):
            if draw == len(self._floats):
                rng = np.random.default_rng((self._seed, draw))
                arrays = {id(o): elements(o, rng.normal(0.0, 1.0, o.type.static)) for o in self.operands}
                self._floats.append((arrays, values(self.left, interpretation, arrays)))
            arrays, left = self._floats[draw]
            right = values(terms, interpretation, arrays)
        return all(_alike(a, b) for a, b in zip(left, right, strict=True))


def _thin(type: TensorType) -> bool:
    dims = type.static
    return len(dims) < 2 or 0 in dims or 2 * sum(d == 1 for d in dims) > len(dims)


def elements(operand: Drawn, floats: Any) -> Any:
    """The array of a float operand; of others, the elements drawn with it."""
    return floats if operand.type.dtype.is_float else operand.array


def _alike(a: Any, b: Any) -> bool:
    if a.shape != b.shape:
        return False
    if a.dtype.kind != "f":
        return bool((a == b).all())
    known = np.isfinite(a) & np.isfinite(b)
    if (~known & ~((a == b) | (np.isnan(a) & np.isnan(b)))).any():
        return False
    if not known.any():
        return True
    scale = max(1.0, float(np.abs(a[known]).max()))
    return float(np.abs(a[known] - b[known]).max()) <= TOLERANCE * scale


def drawing_rule(left: Left) -> Rule:
    """A rule with this left side whose instances are all those of the left side."""
    right: tuple[Pattern, ...]
    if isinstance(left, Siblings):
        # A right side that no instance types, which Sampler takes for a question to the check.
        joined = App("concat", (Spread(Var(left.over[0][1]), ()),), {"axis": expression("0")})
        right = (App("split", (joined,), {"axis": expression("0"), "sizes": expression("()")}),)
    else:
        right = left
    return Rule("draw", "expand", left, right, text=left_written(left), origin="candidate")


def drawn(rule: Rule, count: int, misses: int, seed: int = 0) -> Iterator[LeftSideInstance]:
    """So many instances of a rule's left side that meet its conditions; fewer where drawing misses too often."""
    sampler = Sampler(rule, seed)
    for index in range(count):
        while (bindings := sampler.draw(_TRIES)) is None:
            misses -= 1
            if misses < 0:
                return
        yield LeftSideInstance(rule, bindings, seed * 1000 + index + 1)


def with_dtype(bindings: Bindings, dtype: str) -> Bindings:
    """The same instance with another element type for all floats, attributes included."""
    floats = [o for o in operands(bindings) if o.type.dtype.is_float]
    typed = replaced(bindings, {id(o): Drawn(o.name, TensorType.of(dtype, o.type.dims)) for o in floats})
    attrs = {name: dtype if attr in ("float32", "float64") else attr for name, attr in bindings.attrs.items()}
    return Bindings(typed.tensors, attrs)


def holds(condition: Expression, bindings: Bindings) -> bool:
    """Return whether a condition holds; it does not if it has no value."""
    try:
        return bool(evaluate(condition, bindings))
    except Undefined:
        return False
