"""Which operators of a plan that names none are run as one kernel."""

from __future__ import annotations

from dataclasses import replace

from eqsat.language.graph import Node
from eqsat.language.plan import Conversion, Held, Kernel, Plan
from eqsat.language.spec import OPS
from eqsat.language.types import TensorType

#: Operators in one generated kernel, at most: longer ones take registers that others lack.
MOST_GROUPED = 12
#: Operators along rows, in whose kernels those element by element before and after them are computed.
ROWS = frozenset(
    {"softmax", "log_softmax", "layer_norm", "rms_norm", "lp_norm", "hardmax"}
    | {f"reduce_{r}" for r in ("sum", "mean", "max", "min", "prod", "l1", "l2", "sum_square", "log_sum_exp")}
)
#: Operators at whose end what is element by element is computed.
PRODUCTS = frozenset({"matmul", "gemm", "conv", "conv_transpose"})


def grouped(plan: Plan) -> Plan:
    """The plan with operators element by element in the kernels of those that make, or read, what they work on.

    Only what one kernel alone reads moves into it, so that nothing is computed twice; all values of such a kernel are
    held in one state.
    """
    return _Grouping(plan).grouped()


class _Grouping:
    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.producers = {next(o for o in n.outputs if o): n for n in plan.graph.nodes}
        self.wanted = set(plan.graph.outputs.values())
        self.readers: dict[Held, list[int]] = {}
        for index, step in enumerate(plan.steps):
            for held in [Held(step.value, step.source)] if isinstance(step, Conversion) else step.operands:
                self.readers.setdefault(held, []).append(index)

    def grouped(self) -> Plan:
        steps: list[Kernel | Conversion | None] = list(self.plan.steps)
        place: dict[Held, int] = {}
        for index, step in enumerate(self.plan.steps):
            if isinstance(step, Conversion):
                continue
            current = steps[index]
            if not isinstance(current, Kernel):
                continue
            for held in step.operands:
                before = place.get(held)
                earlier = None if before is None else steps[before]
                now = steps[index]
                if isinstance(earlier, Kernel) and isinstance(now, Kernel) and self._joins(earlier, now, held):
                    steps[index] = _joined(earlier, now, held, ahead=self.producers[now.nodes[0]].op in PRODUCTS)
                    steps[before or 0] = None
                    for made, at in place.items():
                        if at == before:
                            place[made] = index
            final = steps[index]
            if isinstance(final, Kernel):
                place |= dict.fromkeys(final.results, index)
        return replace(self.plan, steps=tuple(s for s in steps if s is not None))

    def _joins(self, earlier: Kernel, now: Kernel, held: Held) -> bool:
        """Whether a kernel that makes an operand is to be computed within the one that reads it, its only reader."""
        if held.value in self.wanted or len(self.readers.get(held, ())) != 1 or earlier.results != (held,):
            return False
        if len(earlier.nodes) + len(now.nodes) > MOST_GROUPED or earlier.arithmetic != now.arithmetic:
            return False
        if any(h.state.layout != held.state.layout for h in now.results):
            return False
        nodes = [self.producers[v] for v in (*earlier.nodes, *now.nodes)]
        cores = [n for n in nodes if n.op in ROWS | PRODUCTS]
        reader = next(n for n in nodes[len(earlier.nodes) :] if held.value in n.inputs)
        if any(not _is_pointwise(n) and n.op not in ROWS | PRODUCTS for n in nodes) or len(cores) > 1:
            return False
        core = next((n for n in cores if n in nodes[: len(earlier.nodes)]), None)
        if core is not None:
            # What follows a row or a product must be as large: it is computed where each element is made.
            return _is_pointwise(reader) and self._elements(reader) == self._elements(nodes[len(earlier.nodes) - 1])
        # What comes before a row is computed as the row is read; products read from memory alone.
        return reader.op in ROWS or _is_pointwise(reader)

    def _elements(self, node: Node) -> object:
        type = self.graph.type(next(o for o in node.outputs if o))
        return type.shape if isinstance(type, TensorType) else None


def _is_pointwise(node: Node) -> bool:
    declared = OPS[node.op]
    return declared.pointwise and not declared.view


def _joined(earlier: Kernel, now: Kernel, held: Held, *, ahead: bool) -> Kernel:
    """The nodes of both; those of `now` begin with a product where `ahead`, which stays in front."""
    operands = dict.fromkeys((*earlier.operands, *(h for h in now.operands if h != held)))
    first = now.nodes[: 1 if ahead else 0]
    return replace(now, nodes=(*first, *earlier.nodes, *now.nodes[len(first) :]), operands=tuple(operands))
