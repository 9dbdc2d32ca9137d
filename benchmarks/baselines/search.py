"""The backtracking search of MetaFlow and TASO over whole graphs, with eqsat's rules and costs.

Algorithm 1 of Jia et al., "Optimizing DNN Computation with Relaxed Graph Substitutions" (MLSys 2019), which TASO took
over: graphs wait in a queue, the cheapest first; each substitution in the graph taken out gives a neighbour, which
enters if it costs less than alpha times the best so far and was not met before. Substitutions are matched in the graph
itself: it is written into an e-graph of its own, in which every rule fires once (directed simplifications as often as
they can, which is to the search's advantage), and a neighbour has one operator replaced by what a rule made, with all
siblings that can read it. So the search pays for its matching, and is not confined to what one e-graph has grown.
"""

from __future__ import annotations

import heapq
import itertools
import math
import time
from array import array
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from eqsat.costs.model.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.extract.problem.solution import decode
from eqsat.extract.solvers.backtracking import ROUNDING, BacktrackingSearch, Changes, ChoiceGraph
from eqsat.extract.solvers.highs import Clock
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import Available, TensorProblem, tensor_problem
from eqsat.language.graphs.partition import partition
from eqsat.language.terms import Constant, Graph, Node
from eqsat.rewrites.rules.crossings import crossings
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.system.deadline import Deadline

#: Graphs in the queue, above which its dearer half is dropped.
_MOST_QUEUED = 100_000
#: E-nodes and rounds of the e-graph of one graph, in which each rule fires once from the graph.
_ONCE = Limits(nodes=50_000, rounds=1, seconds=math.inf, radius=1, generations=1)


@dataclass(frozen=True)
class Question:
    """The rules and the costs that a search goes by; values that are `doubted` do not count as finite."""

    rules: RuleSet
    costs: CostModel
    available: Available
    doubted: frozenset[str] = frozenset()


@dataclass
class Found:
    """The cheapest graph of a search and its cost, that of the graph it began with, and how far it came.

    `visited` are the graphs taken out of the queue and matched, `met` those that entered it; `ended` is "empty" where
    no graph was left in the queue, else "time limit". `seconds` are those of the processor.
    """

    graph: Graph
    cost: float
    begin: float
    visited: int = 0
    met: int = 0
    seconds: float = 0.0
    ended: str = "empty"


@dataclass
class _Expansion:
    """A graph in its own e-graph: the problem of choosing there, and the search that makes neighbours of it."""

    graph: Graph
    extraction: TensorProblem
    search: BacktrackingSearch
    begin: ChoiceGraph


@dataclass
class GraphSearch:
    """One search from one graph, for so many `seconds` of the processor."""

    question: Question
    alpha: float
    seconds: float
    seed: int = 0
    _keys: dict[object, int] = field(default_factory=dict)
    _met: set[object] = field(default_factory=set)

    def run(self, graph: Graph) -> Found:
        """The cheapest graph that is found in the time; the one given where none is cheaper."""
        start = time.process_time()
        deadline = Deadline(self.seconds, now=time.process_time)
        self._met = {self._key(graph)}
        first = self._expanded(graph, deadline)
        found = Found(graph, first.begin.cost, first.begin.cost, visited=1)
        queue: list[tuple[float, int, _Expansion, array[int], Changes]] = []
        self._enter(queue, first, found)
        while queue and not deadline.over:
            cost, _, parent, packed, changes = heapq.heappop(queue)
            if cost > found.cost * max(self.alpha, 1.0) * (1 + ROUNDING):
                continue
            graph = self._made(parent, packed, changes)
            key = self._key(graph)
            if key in self._met:
                continue
            self._met.add(key)
            one = self._expanded(graph, deadline)
            found.visited += 1
            if one.begin.cost < found.cost * (1 - ROUNDING):
                found.graph, found.cost = graph, one.begin.cost
            self._enter(queue, one, found)
        # The last graph may not have been matched to its end.
        found.ended = "time limit" if deadline.over else "empty"
        found.seconds = time.process_time() - start
        return found

    def _expanded(self, graph: Graph, deadline: Deadline) -> _Expansion:
        """A graph with what each rule makes of it."""
        question = self.question
        encoding = encode(graph, doubted=question.doubted & graph.types.keys())
        Saturator(encoding.egraph, question.rules, _ONCE, deadline=deadline).run()
        extraction = tensor_problem(snapshot(encoding), question.costs, question.available)
        search = BacktrackingSearch(extraction.problem, self.alpha, extraction.original(), self.seed, Clock(deadline))
        natives = len(extraction.options)
        # Kernels of several operators are not substitutions: they are chosen for the graph that is found.
        search.options = [
            [o for o in options if o >= natives or _is_substitution(extraction, o)] for options in search.options
        ]
        return _Expansion(graph, extraction, search, search.graph_of({}))

    def _enter(
        self, queue: list[tuple[float, int, _Expansion, array[int], Changes]], one: _Expansion, found: Found
    ) -> None:
        """Queue the neighbours of a graph that cost less than alpha times the best so far."""
        search = one.search
        search.queue.clear()
        search.reached = found.cost
        search.expand(one.begin)
        for cost, _, packed, changes in search.queue:
            found.met += 1
            heapq.heappush(queue, (cost, found.met, one, packed, changes))
        search.queue.clear()
        if len(queue) > _MOST_QUEUED:
            queue.sort()
            del queue[_MOST_QUEUED // 2 :]

    def _made(self, parent: _Expansion, packed: array[int], changes: Changes) -> Graph:
        """The graph of a neighbour; constants that rules derived stay expressions, which the next e-graph reads."""
        choice = parent.search.graph_of(parent.search.unpacked(packed, changes)).choice
        problem = parent.extraction.problem
        solution = decode(problem, choice, lower_bound=0.0, status="heuristic", seconds=0.0)
        return assemble(parent.extraction, solution, parent.graph).decoded.graph

    def _key(self, graph: Graph) -> object:
        """Equal for graphs that compute their outputs by the same operators, whatever their values are called."""
        keys = self._keys

        def number(question: object) -> int:
            return keys.setdefault(question, len(keys))

        of: dict[str | None, int] = {None: number("absent")}
        of |= {name: number(("input", name)) for name in graph.inputs}
        of |= {name: number(constant.digest) for name, constant in graph.constants.items()}
        for node in graph.nodes:
            made = number((node.op, node.attrs, tuple(of[value] for value in node.inputs), len(node.outputs)))
            of |= {name: number((made, index)) for index, name in enumerate(node.outputs) if name}
        return tuple(sorted((name, of[value]) for name, value in graph.outputs.items()))


def _is_substitution(extraction: TensorProblem, option: int) -> bool:
    one = extraction.options[option]
    return one.fetch or one.stated or one.split is not None or len(one.positions) == 1


def joined(parts: Sequence[Graph], whole: Graph) -> Graph:
    """A graph put together from parts that were changed, each with the inputs and outputs of a part of the whole."""
    renamed: dict[str, str] = {value: value for value in (*whole.inputs, *whole.constants)}
    nodes: list[Node] = []
    constants, types = dict(whole.constants), {v: whole.type(v) for v in whole.inputs}
    taken = {*whole.inputs, *whole.constants}

    def fresh(value: str) -> str:
        """A name for a value of a part, as long as it was where that is free."""
        numbered = (f"{value}_{index}" for index in itertools.count(1))
        name = value if value not in taken else next(name for name in numbered if name not in taken)
        taken.add(name)
        return name

    for part in parts:
        names: dict[str | None, str | None] = {None: None, "": ""}
        names |= {value: renamed[value] for value in part.inputs}
        for value, constant in part.constants.items():
            is_same = value in whole.constants and whole.constants[value].digest == constant.digest
            names[value] = name = value if is_same else fresh(value)
            constants[name] = constant
        for node in part.nodes:
            for value in node.outputs:
                if value:
                    names[value] = name = fresh(value)
                    types[name] = part.type(value)
            inputs = tuple(names[value] for value in node.inputs)
            outputs = tuple(names[value] or "" for value in node.outputs)
            nodes.append(Node(node.op, inputs, outputs, node.attrs, ""))
        for output, value in part.outputs.items():
            renamed[output] = str(names[value])
    outputs_ = {name: renamed[value] for name, value in whole.outputs.items()}
    used = {v for node in nodes for v in node.inputs} | set(outputs_.values())
    held: Mapping[str, Constant] = {v: c for v, c in constants.items() if v in used}
    return Graph(whole.name, whole.inputs, outputs_, tuple(nodes), held, types, whole.origin)


def part_of(graph: Graph, begin: int, end: int) -> Graph:
    """The nodes from one place to another as a graph; its outputs are the values that are read elsewhere, by name."""
    nodes = graph.nodes[begin:end]
    made = {value for node in nodes for value in node.outputs if value}
    read = dict.fromkeys(value for node in nodes for value in node.inputs if value)
    elsewhere = {v for n in (*graph.nodes[:begin], *graph.nodes[end:]) for v in n.inputs} | set(graph.outputs.values())
    inputs = tuple(value for value in read if value not in made and value not in graph.constants)
    outputs = [value for node in nodes for value in node.outputs if value and value in elsewhere]
    held = {value: graph.constants[value] for value in read if value in graph.constants}
    types = {value: graph.type(value) for value in (*inputs, *made)}
    return Graph(graph.name, inputs, {v: v for v in outputs}, nodes, held, types, graph.origin)


def in_parts(question: Question, graph: Graph, most: int, method: str) -> tuple[Graph, list[int]]:
    """A graph with its nodes in the order of its parts, and the places where parts after the first one begin.

    Parts have at most `most` nodes, and are cut where the fewest substitutions are lost, by one of the partitioners.
    """
    found = partition(graph, crossings(graph, question.rules), most, method)
    ordered = replace(graph, nodes=tuple(graph.nodes[number] for part in found.parts for number in part))
    return ordered, list(itertools.accumulate(len(part) for part in found.parts))[:-1]


def split_search(question: Question, graph: Graph, alpha: float, seconds: float, most: int, method: str) -> Found:
    """The search in each part of a graph by itself, put together, and then around each cut.

    Parts have two thirds of the time, by their nodes, and the places around cuts the rest. A part's inputs are values
    of the graph, of which nothing is known, so they do not count as finite unless the graph's own do.
    """
    start, total = time.process_time(), Found(graph, math.nan, math.nan)
    ordered, cuts = in_parts(question, graph, most, method)
    if not cuts:
        return GraphSearch(question, alpha, seconds).run(graph)
    total.graph = _searched(question, ordered, [0, *cuts, len(ordered.nodes)], alpha, seconds * 2 / 3, total)
    # The parts have other lengths now; windows reach half a part to both sides of where they meet.
    total.graph, begins = in_parts(question, total.graph, most, method)
    middles = [0, *((a + b) // 2 for a, b in zip([0, *begins], [*begins, len(total.graph.nodes)], strict=True))]
    ends = sorted({*middles, len(total.graph.nodes)})
    total.graph = _searched(question, total.graph, ends, alpha, seconds / 3, total)
    total.seconds = time.process_time() - start
    total.begin, total.cost = (_cost(question, one) for one in (graph, total.graph))
    return total


def _searched(
    question: Question, graph: Graph, places: Sequence[int], alpha: float, seconds: float, total: Found
) -> Graph:
    """A graph whose parts between places were searched one by one."""
    parts = []
    for begin, end in itertools.pairwise(places):
        part = part_of(graph, begin, end)
        unknown: Collection[str] = set(part.inputs) - set(graph.inputs)
        own = Question(question.rules, question.costs, question.available, frozenset(unknown) | question.doubted)
        if not part.outputs:  # nothing of it is read
            continue
        found = GraphSearch(own, alpha, seconds * (end - begin) / len(graph.nodes)).run(part)
        total.visited, total.met = total.visited + found.visited, total.met + found.met
        total.ended = "time limit" if found.ended == "time limit" else total.ended
        parts.append(found.graph)
    return joined(parts, graph)


def _cost(question: Question, graph: Graph) -> float:
    """The cost of a graph as searches count it."""
    return GraphSearch(question, 1.0, 0.0)._expanded(graph, Deadline(0.0)).begin.cost
