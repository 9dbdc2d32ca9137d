"""Right sides of rules made into e-nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from eqsat.egraph.egraph import PROJECTION, EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.ops import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.instantiation import instantiate, instantiate_all
from eqsat.language.terms.pattern import App, Bindings, Spread, Var, element


class _BoundScope(NamedTuple):
    """The bindings and the classes of names at a place in a pattern."""

    bindings: Bindings
    classes: dict[str, Any]


class RightSideBuilder:
    """Makes the right side of one match, e-node by e-node; ShapeError where it does not type."""

    def __init__(self, egraph: EGraph, match: Match, generation: int, steps: int) -> None:
        self.egraph, self.match, self.rule = egraph, match, match.rule
        self.generation, self.steps = generation, steps
        self._scope = _BoundScope(match.bindings, match.classes)

    def equations(self) -> list[tuple[int, int, int]]:
        """The pairs that the match makes equal: which root or output it is, its e-node, and the one made for it.

        Outputs of a root that nothing reads have no e-nodes, and none are made for them.
        """
        match = self.match
        if not self.rule.parts:
            pairs = zip(match.enodes, self._results(len(match.roots)), strict=True)
            return [(i, e, r) for i, (e, r) in enumerate(pairs)]
        read = enumerate(_projections(self.egraph, match.roots[0], self.rule.parts))
        return [(i, e, instantiate(self.rule.right[i], self._scope, self)) for i, e in read if e is not None]

    def _results(self, roots: int) -> list[int]:
        """One e-node for each matched root; of a split, the slices that the e-graph holds instead."""
        right = self.rule.right
        if len(right) == 1 and isinstance(right[0], App) and right[0].op == "split":
            (whole,) = instantiate_all(right[0].operands, self._scope, self)
            attrs = spec("split").complete(self.rule.attributes(right[0], self._scope.bindings))
            return split_slices(self.egraph, whole, attrs, self.generation, self.steps)
        results = instantiate_all(right, self._scope, self)
        if len(right) < self.rule.results:
            return projections(self.egraph, results[0], self.generation, self.steps)
        return results * roots if len(results) == 1 else results

    def variable(self, name: str, scope: _BoundScope) -> int:
        """The class of a variable."""
        number: int = scope.classes[name]
        return number

    def members(self, spread: Spread, scope: _BoundScope) -> list[int]:
        """The classes of a sequence that a spread takes."""
        group = scope.classes[spread.item.name] if isinstance(spread.item, Var) else ()
        return [group[index] for index in self.rule.window(spread, scope.bindings)]

    def elements(self, spread: Spread, scope: _BoundScope) -> Iterator[_BoundScope]:
        """The scope inside a loop, element by element."""
        bindings, classes = scope
        for index in self.rule.window(spread, bindings):
            chosen = {variable: classes[s][index] for variable, s in spread.over if s in classes}
            yield _BoundScope(element(bindings, spread.over, index), {**classes, **chosen})

    def absent(self) -> int:
        """The e-node of an operand that is left out."""
        return self.egraph.absent()

    def apply(self, app: App, operands: Sequence[int], scope: _BoundScope) -> int:
        """The e-node of an operator."""
        is_whole = bool(app.fields) and scope is self._scope  # inside a loop, bindings are those of an element
        known = self.match.right_attrs if is_whole else {}
        attrs = known.get(id(app))
        if attrs is None:
            attrs = known[id(app)] = spec(app.op).complete(self.rule.attributes(app, scope.bindings))
        return self.egraph.add(app.op, attrs, operands, generation=self.generation, steps=self.steps)


def _projections(egraph: EGraph, root: int, count: int) -> Iterator[int | None]:
    """The e-nodes of the outputs of a class of several tensors, None for those that nothing reads."""
    for index in range(count):
        yield egraph.lookup(PROJECTION, egraph.attr_id(PROJECTION, Attrs(index=index)), [root])


def projections(egraph: EGraph, whole: int, generation: int = 0, steps: int = 0) -> list[int]:
    """The e-nodes of all outputs of one that makes several tensors."""
    types = egraph.nodes[whole].types
    return [
        egraph.add(PROJECTION, Attrs(index=index), [whole], types=(type,), generation=generation, steps=steps)
        for index, type in enumerate(types)
    ]


def split_slices(egraph: EGraph, whole: int, attrs: Attrs, generation: int = 0, steps: int = 0) -> list[int]:
    """The slices that are the outputs of a split."""
    return [egraph.add("slice", cut, [whole], generation=generation, steps=steps) for cut in cuts(attrs)]


def cuts(attrs: Attrs) -> list[Attrs]:
    """The attributes of the slices that the outputs of a split are."""
    axis, sizes = attrs["axis"], attrs["sizes"]
    slices, start = [], 0
    for size in sizes:
        slices.append(
            spec("slice").complete({"starts": (start,), "ends": (start + size,), "axes": (axis,), "steps": (1,)})
        )
        start = start + size
    return slices
