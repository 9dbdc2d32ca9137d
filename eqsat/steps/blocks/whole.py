"""A choice for a graph of three blocks of each run, made one for the whole: its second block stands for all inner ones.

Nothing of this is taken on trust: the certificate compares the whole with the model as it was given.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from eqsat.costs.model.cost import Cost
from eqsat.egraph.decode import Decoded
from eqsat.egraph.derived import DerivedConstants, fold_derived
from eqsat.errors import ExtractionError, GraphError
from eqsat.extract.tensors.assembly import Assembled
from eqsat.language.graphs.repeats import Condensed, Repeat
from eqsat.language.terms import Conversion, Graph, Held, Kernel, Node, Plan, Step, ValueType
from eqsat.steps.blocks.counterparts import Counterparts
from eqsat.system.deadline import check

#: The parts of a choice: what is computed without the second block, by it, and from it.
_BEFORE, _SECOND, _AFTER = 0, 1, 2


class BlocksError(ExtractionError):
    """A choice that cannot be made one for the whole model: its blocks are not computed alike."""


@dataclass(frozen=True)
class WholeChoice:
    """A choice for the whole graph, and for each block that another stands for the names its values have there."""

    assembled: Assembled
    copies: tuple[Mapping[str, str], ...]


def whole_choice(assembled: Assembled, condensed: Condensed, known: DerivedConstants | None = None) -> WholeChoice:
    """A choice for the whole graph; `known` carries folded constants from one to the next.

    `snapshot` and `choice` stay those of the smaller graph. BlocksError where the blocks of a run are not computed
    alike.
    """
    copies: list[Mapping[str, str]] = []
    chosen = _Chosen(
        assembled.decoded.graph,
        dict(assembled.decoded.shared),
        tuple(zip(assembled.plan.steps, assembled.costs, strict=True)),
    )
    for repeat in condensed.repeats:
        repetition = _Repetition(repeat, chosen, Counterparts(assembled, repeat))
        try:
            chosen = repetition.whole()
        except GraphError as error:  # one value is computed by two blocks
            raise BlocksError(f"equal blocks compute values of each other: {error.what}") from error
        copies += (copy.names for copy in repetition.copies[1:])
    original = condensed.whole
    lost = [name for name in original.outputs if name not in chosen.graph.outputs]
    if lost:
        raise BlocksError(f"no block computes output {lost[0]!r} as another does its own", where=original.name)
    outputs = {name: chosen.graph.outputs[name] for name in original.outputs}
    graph = replace(chosen.graph, inputs=original.inputs, outputs=outputs)
    folded = replace(fold_derived(graph, known), origin=assembled.plan.graph.origin)
    # What the last block alone reads of the second is read of no other.
    alive = {*folded.inputs, *(o for node in folded.nodes for o in node.outputs)}
    kept = [(step, cost) for step, cost in chosen.steps if _result(step) in alive]
    steps = tuple(step for step, _ in kept)
    try:
        plan = Plan(folded, steps, assembled.plan.boundary, assembled.plan.scales)
    except GraphError as error:  # the last block takes what it needs in another way than the second
        raise BlocksError(f"equal blocks take what they need in different ways: {error.what}") from error
    whole = replace(
        assembled,
        decoded=Decoded(graph, chosen.shared, assembled.decoded.names),
        plan=plan,
        costs=tuple(cost for _, cost in kept),
    )
    return WholeChoice(whole, tuple(copies))


@dataclass(frozen=True)
class _Chosen:
    """A graph, the original values that its values are claimed to equal, and its steps with their costs."""

    graph: Graph
    shared: dict[str, tuple[str, ...]]
    steps: tuple[tuple[Step, Cost], ...]


class _Repetition:
    """One run of blocks of a graph that has its first, second and last one, given back the others.

    To a block belongs what needs its own constants and inputs, or what it hands on from such, and none of the next.
    """

    def __init__(self, repeat: Repeat, chosen: _Chosen, counterparts: Counterparts) -> None:
        self.repeat, self.chosen, self.graph = repeat, chosen, chosen.graph
        self.holder = {value: name for name, values in chosen.shared.items() for value in values}
        self.taken = set(repeat.graph.types) | set(repeat.graph.constants) | set(self.graph.types)
        self.part: dict[str, int] = {}
        for part, block in ((_BEFORE, 0), (_SECOND, 1), (_AFTER, repeat.count - 1)):
            self.part |= {self.holder[v]: part for v in repeat.leaves[block] if v in self.holder}
        first = set(self.part)
        for node in self.graph.nodes:
            check()
            part = max((self.part.get(v, -1) for v in node.inputs if v is not None), default=-1)
            self.part |= {o: part for o in node.outputs if o}
        self.leaves = {self.holder[v]: place for place, v in enumerate(repeat.leaves[1]) if v in self.holder}
        self.ahead = self._ahead()
        self.nodes = [n for n in self.graph.nodes if self._part(n) == _SECOND]
        self.made = [o for node in self.nodes for o in node.outputs if o]
        self.given = self._given(counterparts, first)
        self.copies = [_Copy(self, 1, self.given.keys())]
        for index in repeat.inner:
            self.copies.append(_Copy(self, index, [self.copies[-1].names[name] for name in self.given.values()]))

    def _ahead(self) -> frozenset[str]:
        """The values of the first block that the second computes, where the last computes those of the second."""
        parts = {value: self.part.get(name, -1) for value, name in self.holder.items()}
        pairs = zip(self.repeat.values(0), self.repeat.values(1), strict=True)
        return frozenset(a for a, b in pairs if (parts.get(a), parts.get(b)) == (_SECOND, _AFTER))

    def _part(self, node: Node) -> int:
        return max(self.part[o] for o in node.outputs if o)

    def _given(self, counterparts: Counterparts, leaves: set[str]) -> dict[str, str]:
        """The values that the second block reads of the first, with those of its own that the next reads for them."""
        following = dict(zip(self.repeat.leaves[0], self.repeat.leaves[1], strict=True))
        found: dict[str, str] = {}
        for value in dict.fromkeys(self._read()):
            if value in self.leaves or self.part.get(value, -1) > _BEFORE:
                continue
            later = [name for name in counterparts.next(value) if self.part.get(name, -1) == _SECOND]
            if value in leaves and following.get(value) in self.holder:
                later = [self.holder[following[value]]]
            if later:
                found[value] = later[0]
            elif self.part.get(value, -1) == _BEFORE:
                raise BlocksError(f"{value!r} has no counterpart in the next of equal blocks", where=self.graph.name)
        if not found:
            raise BlocksError("equal blocks are computed apart from each other", where=self.graph.name)
        return found

    def _read(self) -> Iterator[str]:
        """The values that the second block reads, and those that its kernels compute anew."""
        yield from (value for node in self.nodes for value in node.inputs if value is not None)
        for step, _ in self.chosen.steps:
            if isinstance(step, Kernel) and self._place(step) == _SECOND:
                yield from (*(held.value for held in step.operands), *step.nodes)

    def _place(self, step: Step) -> int:
        """The part that a step belongs to: the last whose values it makes, or converts."""
        values = [step.value] if isinstance(step, Conversion) else step.nodes
        return max(_BEFORE, *(self.part.get(value, -1) for value in values))

    def whole(self) -> _Chosen:
        """The graph with a copy of the second block for each inner one."""
        repeat = self.repeat
        known = repeat.graph
        # What the last block computes of the one before it is of the last of those that the second stands for.
        before_last = repeat.counterparts(1, repeat.count - 2)
        late = {v: before_last[v] for v in before_last if self.part.get(v) == _AFTER and v not in self.leaves}
        last = self.copies[-1].names | {name: name for name in self.given} | late
        before, after = (
            [n for n in self.graph.nodes if (self._part(n) == _AFTER) == late_part and self._part(n) != _SECOND]
            for late_part in (False, True)
        )
        second = set(self.made)
        types = {late.get(v, v): t for v, t in self.graph.types.items() if v not in second}
        shared = {
            late.get(v, v): tuple(before_last.get(o, o) for o in s) if self.part.get(v) == _AFTER else s
            for v, s in self.chosen.shared.items()
            if v not in second
        }
        constants = dict(self.graph.constants)
        inputs = dict.fromkeys(self.graph.inputs)
        outputs = {name: value for name, value in self.graph.outputs.items() if last.get(value, value) == value}
        held = {value: name for name, values in shared.items() for value in values}
        for copy in self.copies:
            types |= copy.types
            shared |= copy.shared
            held |= copy.holder
            constants |= {v: known.constants[v] for v in copy.leaves if v in known.constants}
            inputs |= dict.fromkeys(v for v in copy.leaves if v in known.inputs)
        outputs = {name: held[value] for name, value in known.outputs.items() if value in held} | outputs
        titles = repeat.titles(1, repeat.count - 2)
        nodes = (
            *before,
            *(node for copy in self.copies for node in copy.nodes),
            *(_renamed_node(node, last, titles.get(node.name, node.name)) for node in after),
        )
        graph = replace(
            self.graph, nodes=nodes, constants=constants, types=types, outputs=outputs, inputs=tuple(inputs)
        )
        return _Chosen(graph, shared, tuple(self._steps(last)))

    def _steps(self, last: Mapping[str, str]) -> Iterator[tuple[Step, Cost]]:
        """The steps of all blocks; a conversion belongs to the block that makes what it converts."""
        parts: dict[int, list[tuple[Step, Cost]]] = {_BEFORE: [], _SECOND: [], _AFTER: []}
        for step, cost in self.chosen.steps:
            parts[self._place(step)].append((step, cost))
        yield from parts[_BEFORE]
        for copy in self.copies:
            yield from ((_renamed(step, copy.names), cost) for step, cost in parts[_SECOND])
        yield from ((_renamed(step, last), cost) for step, cost in parts[_AFTER])


class _Copy:
    """The second block as it is computed for itself, or for one that it stands for, from what it is given."""

    def __init__(self, repetition: _Repetition, index: int, given: Iterable[str]) -> None:
        repeat, graph, last = repetition.repeat, repetition.graph, repetition.repeat.count - 1
        # What needs no constants of the last block is computed after the second, and so after each; what is computed
        # together with what the next block needs is computed there.
        earlier = repeat.counterparts(0, index - 1)
        self._originals = {v: earlier[v] for v in repetition.ahead}
        self._originals |= repeat.counterparts(1, index) | repeat.counterparts(last, index + 1)
        titles = repeat.titles(0, index - 1) | repeat.titles(1, index) | repeat.titles(last, index + 1)
        self.names = dict(zip(repetition.given, given, strict=True))
        self.names |= {name: repeat.leaves[index][place] for name, place in repetition.leaves.items()}
        self.leaves = [self.names[name] for name in repetition.leaves]
        self.types: dict[str, ValueType] = {v: repeat.graph.type(v) for v in self.leaves}
        self.shared: dict[str, tuple[str, ...]] = {v: (v,) for v in self.leaves}
        self.holder = {v: v for v in self.leaves}
        for name in repetition.made:
            new = self._originals.get(name, "")
            if not new:
                new = name if index == 1 else _unused(f"{name}_{index}", repetition.taken)
                repetition.taken.add(new)
            values = tuple(o for v in repetition.chosen.shared.get(name, ()) if (o := self._originals.get(v, "")))
            self.names[name], self.types[new] = new, graph.type(name)
            self.holder |= dict.fromkeys(values, new)
            if values:
                self.shared[new] = values
        self.nodes = [_renamed_node(node, self.names, titles.get(node.name, "")) for node in repetition.nodes]


def _result(step: Step) -> str:
    """The value that a step makes, or converts."""
    return step.value if isinstance(step, Conversion) else step.nodes[-1]


def _unused(base: str, taken: set[str]) -> str:
    tries = itertools.chain([base], (f"{base}_{number}" for number in itertools.count()))
    return next(name for name in tries if name not in taken)


def _renamed_node(node: Node, names: Mapping[str, str], name: str) -> Node:
    """A node of other values, and of another name."""
    inputs = tuple(v and names.get(v, v) for v in node.inputs)
    return replace(node, inputs=inputs, outputs=tuple(o and names.get(o, o) for o in node.outputs), name=name)


def _renamed(step: Step, names: Mapping[str, str]) -> Step:
    """A step of other values."""
    if isinstance(step, Conversion):
        return replace(step, value=names.get(step.value, step.value))
    operands, results = (
        tuple(Held(names.get(held.value, held.value), held.state) for held in group)
        for group in (step.operands, step.results)
    )
    return Kernel(tuple(names.get(v, v) for v in step.nodes), operands, results, step.arithmetic)
