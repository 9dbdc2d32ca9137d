"""The equal graph whose channels are scaled so that they round alike, where data say that this moves outputs less."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.egraph.encode import Encoding
from eqsat.egraph.focus import grow_at
from eqsat.egraph.saturation import Saturation
from eqsat.egraph.snapshot import SnapshotNode, snapshot
from eqsat.errors import ExtractionError
from eqsat.extract import Solution, solve
from eqsat.extract.problem.problem import Problem
from eqsat.extract.tensors.assembly import Assembled
from eqsat.extract.tensors.integers import IntegerKernel
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Constant, DType
from eqsat.quantisation.comparison import best_factors
from eqsat.quantisation.equalisation import chains
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.steps.choosing import Chooser

Array = np.ndarray[Any, np.dtype[Any]]
Batch = Mapping[str, Any]

#: The rules by which factors of channels go into the weights before and after a value.
MOVING = frozenset(
    {
        "mul-over-add-of-constants",
        *("relu-of-scale-inv", "leaky_relu-of-scale-inv", "max_pool-of-scale-inv", "avg_pool-of-scaled-along-c-inv"),
        *("conv-relu-apart", "conv-bias-relu-apart", "conv-bias-apart", "conv-bias", "conv-relu", "conv-bias-relu"),
        *("conv-scaled-along-o", "conv-scaled-along-o-with-bias", "conv-of-scaled-along-c", "conv-of-scaled-in-groups"),
        *("gemm-to-matmul", "gemm-to-matmul-and-add", "gemm-to-matmul-and-add-inv", "gemm-turn-right"),
        *("gemm-turn-right-bias", "gemm-of-scaled-along-k", "gemm-scaled-along-n"),
        *("matmul-of-scaled-along-k", "matmul-scaled-along-n"),
    }
)
#: The rules by which a quotient by factors, times these, is what it was.
INVERSE = frozenset({"muls-merge", "mul-one"})
#: Seconds that the choice among the few e-nodes of the equal graph may take.
_SOLVE_SECONDS = 5.0
#: Rounds in which rules move scales, and e-nodes that may come of each chain.
_ROUNDS, _ENODES = 8, 200


@dataclass(frozen=True)
class Equal:
    """The choice of a graph with scaled channels: `quotients` are the classes that stand for values there, and e-nodes
    from `first` on were made for it."""

    extraction: TensorProblem
    solution: Solution
    first: int
    quotients: frozenset[int]

    def paying(
        self, kernels: Sequence[IntegerKernel], known: Sequence[IntegerKernel], before: Sequence[SnapshotNode]
    ) -> list[IntegerKernel]:
        """The kernels that pay here: those `known` to, of e-nodes `before`, and one of a kind with scaled weights."""
        nodes = self.extraction.snapshot.nodes
        old = {before[position].number for kernel in known for position in kernel.positions}
        forms = {_form(before, kernel) for kernel in known}
        found: dict[object, IntegerKernel] = {}
        for kernel in kernels:
            form, numbers = _form(nodes, kernel), [nodes[position].number for position in kernel.positions]
            if old.issuperset(numbers):
                found[kernel] = kernel
            elif form in forms and max(numbers) >= self.first:
                # Rules make scaled weights, and biases, in several ways.
                found.setdefault((form, kernel.reads, kernel.eclass), kernel)
        return list(found.values())


@dataclass(frozen=True)
class Equaliser:
    """Scales channels in the e-graph of a run, by those of its rules that are proved to allow it."""

    encoding: Encoding
    saturation: Saturation
    rules: Sequence[Rule]

    def equalised(
        self,
        chooser: Chooser,
        assembled: Assembled,
        products: Collection[str],
        batches: tuple[Sequence[Batch], Sequence[Batch]],
        say: Callable[[str], None],
    ) -> Equal | None:
        """The choice of a graph equal to the assembled one, with channels scaled where that pays; None where nowhere.

        `products` are the values whose products would run on integers. The first batches give ranges of channels, the
        others decide, value by value, whether and how it is scaled.
        """
        leaders = {name: leader for leader, name in assembled.decoded.names.items() if leader >= 0}
        usable = [
            chain
            for chain in chains(assembled.graph)
            if chain.reader.outputs[0] in products and {chain.value, chain.reader.outputs[0]} <= leaders.keys()
        ]
        best = best_factors(assembled.graph, usable, *batches, say) if usable else {}
        if not best:
            return None
        first = len(self.encoding.egraph.nodes)
        wanted = [(leaders[c.value], leaders[c.reader.outputs[0]], found) for c, found in best.items()]
        made = self._made(wanted)
        grown = replace(chooser.grown, snapshot=snapshot(self.encoding), known=())
        extraction = replace(chooser, grown=grown).problem()
        known = {assembled.snapshot.nodes[position].number for position in assembled.choice.values()}
        known |= set(range(first, len(self.encoding.egraph.nodes)))
        made = {value: quotient for value, quotient in made.items() if _kept(extraction, {value}, known) is not None}
        solution = _solved(extraction, made, known) if made else None
        return None if solution is None else Equal(extraction, solution, first, frozenset(made.values()))

    def _made(self, wanted: Sequence[tuple[int, int, Array]]) -> dict[int, int]:
        """The classes of quotients of values by factors for which rules found another form, by those of the values.

        Each of those wanted is an e-node of a value, one of what reads it, and the factors. That the quotient times the
        factors is the value again is for the rules to find: nothing becomes equal here on any other word.
        """
        egraph = self.encoding.egraph
        mul = Attrs(spec("mul").complete({}))
        quotients: list[int] = []
        enodes: list[int] = []
        for value, result, found in wanted:
            down, up = (egraph.constant(Constant.of(one, DType.FLOAT32)) for one in (1 / found, found))
            quotients.append(egraph.add("mul", mul, (value, down)))
            enodes += [value, result, quotients[-1], egraph.add("mul", mul, (quotients[-1], up))]
        most = _ENODES * len(wanted)
        inverse, moving = (RuleSet.of(self.rules).named(names) for names in (INVERSE, MOVING))
        grow_at(egraph, inverse, enodes[3::4], self.saturation, rounds=2, most=most)
        # Values are their quotients times factors now. Those move into what reads the values, not back into them.
        members = [n for value, _, _ in wanted for n in egraph.eclass(value).members]
        spared = frozenset(n for n in members if egraph.nodes[n].op == "mul")
        grow_at(egraph, moving, enodes, self.saturation, rounds=_ROUNDS, most=most, spared=spared)
        pairs = ((egraph.find(one[0]), egraph.find(k)) for one, k in zip(wanted, quotients, strict=True))
        return {value: quotient for value, quotient in pairs if len(egraph.eclass(quotient).members) > 1}


def _form(nodes: Sequence[SnapshotNode], kernel: IntegerKernel) -> tuple[object, ...]:
    """A key that is equal for kernels that run alike, on other values and weights."""
    operators = (nodes[position] for position in kernel.positions)
    return *((one.op, one.attrs, one.types) for one in operators), kernel.online, kernel.floats, kernel.packing


def _kept(extraction: TensorProblem, left_out: Collection[int], known: Collection[int]) -> list[int] | None:
    """The nodes of a problem over known e-nodes that make none of some classes; None where they deliver no output."""
    whole, nodes = extraction.problem, extraction.snapshot.nodes
    index = {leader: place for place, leader in enumerate(extraction.leaders)}
    gone = {index[value] for value in left_out}
    kept = [
        place
        for place, (node, option) in enumerate(zip(whole.nodes, extraction.options, strict=True))
        if node.eclass not in gone
        and (option.fetch or not node.operands or all(nodes[p].number in known for p in option.positions))
    ]
    while True:
        provided = {whole.nodes[place].eclass for place in kept}
        possible = [p for p in kept if all(eclass in provided for eclass, _ in whole.nodes[p].operands)]
        if len(possible) == len(kept):
            return kept if all(eclass in provided for eclass, _ in whole.roots) else None
        kept = possible


def _solved(extraction: TensorProblem, left_out: Collection[int], known: Collection[int]) -> Solution | None:
    """The solution that computes none of some classes, by known e-nodes alone; None where there is none."""
    kept, whole = _kept(extraction, left_out, known), extraction.problem
    if kept is None:
        return None
    provided = {whole.nodes[place].eclass for place in kept}
    conversions = [place for place, one in enumerate(whole.conversions) if one.eclass in provided]
    nodes, converted = [whole.nodes[p] for p in kept], [whole.conversions[p] for p in conversions]
    try:
        found = solve(Problem(nodes, whole.roots, converted, whole.states), time_limit=_SOLVE_SECONDS)
    except ExtractionError:
        return None
    return replace(
        found,
        chosen={goal: kept[place] for goal, place in found.chosen.items()},
        conversions=frozenset(conversions[place] for place in found.conversions),
    )
