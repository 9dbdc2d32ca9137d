"""Why two e-nodes are equal: a chain of rule applications and congruences between them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from eqsat.egraph.egraph import EGraph

#: The name of a step between e-nodes of one operator over equal operands.
CONGRUENCE = "congruence"


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a chain: the rule, the e-nodes it leads from and to, and whether it was used right to left."""

    rule: str
    source: int
    target: int
    backwards: bool = False


class Explainer:
    """Finds chains in the record of rule applications; these are annotations, the certificate is the proof."""

    def __init__(self, egraph: EGraph) -> None:
        self.egraph = egraph
        self._edges: dict[int, list[Step]] = {}
        for applied in egraph.applications:
            self._link(Step(applied.rule, applied.left, applied.right))
        self._link_congruent()

    def chain(self, source: int, target: int) -> tuple[Step, ...] | None:
        """The shortest chain from one e-node to another of its class; None where the record has none."""
        reached: dict[int, Step | None] = {source: None}
        queue = deque([source])
        while queue and target not in reached:
            for step in self._edges.get(queue.popleft(), ()):
                if step.target not in reached:
                    reached[step.target] = step
                    queue.append(step.target)
        if target not in reached:
            return None
        steps: list[Step] = []
        last = reached[target]
        while last is not None:
            steps.append(last)
            last = reached[last.source]
        return tuple(reversed(steps))

    def _link(self, step: Step) -> None:
        self._edges.setdefault(step.source, []).append(step)
        back = Step(step.rule, step.target, step.source, not step.backwards)
        self._edges.setdefault(step.target, []).append(back)

    def _link_congruent(self) -> None:
        first: dict[tuple[object, ...], int] = {}
        for number, node in enumerate(self.egraph.nodes):
            key = (node.op, node.attrs, tuple(self.egraph.find(k) for k in node.operands))
            known = first.setdefault(key, number)
            if known != number:
                self._link(Step(CONGRUENCE, known, number))
