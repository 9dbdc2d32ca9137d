"""Right sides of rules made into e-nodes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from eqsat.egraph.egraph import PROJECTION, EGraph
from eqsat.egraph.matching.match import Match
from eqsat.language.declaration.spec import spec
from eqsat.language.terms.graph import Attrs
from eqsat.language.terms.pattern import ABSENT, App, Bindings, Pattern, Spread, Var


class RightSideBuilder:
    """Makes the right side of one match, e-node by e-node; ShapeError where it does not type."""

    def __init__(self, egraph: EGraph, match: Match, generation: int, steps: int) -> None:
        self.egraph, self.match, self.rule = egraph, match, match.rule
        self.bindings, self.classes = match.bindings, dict(match.classes)
        self.generation, self.steps = generation, steps

    def equations(self) -> list[tuple[int, int, int]]:
        """The pairs that the match makes equal: which root or output it is, its e-node, and the one made for it.

        Outputs of a root that nothing reads have no e-nodes, and none are made for them.
        """
        match = self.match
        if not self.rule.parts:
            pairs = zip(match.enodes, self._results(len(match.roots)), strict=True)
            return [(i, e, r) for i, (e, r) in enumerate(pairs)]
        read = enumerate(_projections(self.egraph, match.roots[0], self.rule.parts))
        return [(i, e, self._pattern(self.rule.right[i])) for i, e in read if e is not None]

    def _results(self, roots: int) -> list[int]:
        """One e-node for each matched root."""
        right = self.rule.right
        if len(right) == 1 and isinstance(right[0], App) and right[0].op == "split":
            return self._split(right[0])
        made = [self._pattern(p) for p in right]
        return made * roots if len(made) == 1 else made

    def _pattern(self, pattern: Pattern) -> int:
        if isinstance(pattern, Var):
            number: int = self.classes[pattern.name]
            return number
        if pattern == ABSENT:
            return self.egraph.absent()
        operands = self._operands(pattern.operands)
        attrs = spec(pattern.op).complete(self.rule.attributes(pattern, self.bindings))
        return self.egraph.add(pattern.op, attrs, operands, generation=self.generation, steps=self.steps)

    def _operands(self, patterns: Sequence[Pattern | Spread]) -> list[int]:
        operands: list[int] = []
        for pattern in patterns:
            if isinstance(pattern, Spread):
                operands += self._spread(pattern)
            else:
                operands.append(self._pattern(pattern))
        return operands

    def _spread(self, spread: Spread) -> list[int]:
        elements = self.rule.window(spread, self.bindings)
        if not spread.over:
            name = spread.item.name if isinstance(spread.item, Var) else ""
            return [self.classes[name][index] for index in elements]
        outer = Bindings(dict(self.bindings.tensors), dict(self.bindings.attrs)), dict(self.classes)
        made = []
        for index in elements:
            for element, sequence in spread.over:
                if sequence in self.classes:
                    self.classes[element] = self.classes[sequence][index]
                    views: Any = self.bindings.tensors[sequence]
                    self.bindings.tensors[element] = views[index]
                else:
                    self.bindings.attrs[element] = self.bindings.attrs[sequence][index]
            made.append(self._pattern(spread.item))
        self.bindings, self.classes = outer
        return made

    def _split(self, app: App) -> list[int]:
        """The pieces of a split, as the slices that the e-graph holds instead."""
        (whole,) = self._operands(app.operands)
        attrs = spec("split").complete(self.rule.attributes(app, self.bindings))
        return split_slices(self.egraph, whole, attrs, self.generation, self.steps)


def _projections(egraph: EGraph, root: int, count: int) -> Iterator[int | None]:
    """The e-nodes of the outputs of a class of several tensors, None for those that nothing reads."""
    for index in range(count):
        yield egraph.lookup(PROJECTION, egraph.attr_id(PROJECTION, Attrs(index=index)), [root])


def split_slices(egraph: EGraph, whole: int, attrs: Attrs, generation: int = 0, steps: int = 0) -> list[int]:
    """The slices that are the outputs of a split."""
    return [egraph.add("slice", cut, [whole], generation=generation, steps=steps) for cut in cuts(attrs)]


def cuts(attrs: Attrs) -> list[Attrs]:
    """The attributes of the slices that the outputs of a split are."""
    axis, sizes = attrs["axis"], attrs["sizes"]
    found, start = [], 0
    for size in sizes:
        found.append(
            spec("slice").complete({"starts": (start,), "ends": (start + size,), "axes": (axis,), "steps": (1,)})
        )
        start = start + size
    return found
