"""Chains of e-nodes that one kernel may run, in a tensor e-graph."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from eqsat.costs.kernels.fusion import MOST_FUSED, FusedOperator, fuses
from eqsat.costs.model.cost import Cost
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.problem.problem import ProblemNode
from eqsat.extract.problem.program import ExtractionProgram
from eqsat.extract.solvers.greedy import GreedyDags
from eqsat.extract.tensors.pricing import Pricing
from eqsat.language.terms import Implementation, State
from eqsat.system.deadline import check, watched

#: The cost of computing some classes together.
Together: TypeAlias = Callable[[Sequence[int]], float]
#: Chains of each length that are all offered, where there are no more.
ALL_CHAINS = 4_000
#: Else those of one kind that end in one class in one state: as many of those that cost least with what they read.
_MOST_CHAINS = 6


@dataclass(frozen=True, slots=True)
class FusedChain:
    """E-nodes run as one kernel, operands first, each by an implementation, with the operands read from memory.

    One that is `stated` is written as these, and made a kernel by the runtime.
    """

    eclass: int
    positions: tuple[int, ...]
    implementations: tuple[Implementation, ...]
    links: tuple[tuple[int | None, ...], ...]
    operands: tuple[tuple[int, State], ...]
    cost: Cost
    price: float
    stated: bool = False

    @property
    def kind(self) -> tuple[bool, bool, bool]:
        """Three flags: a state is not row-major, a value is held in a lower precision, a product is computed in one."""
        states = [state for one in self.implementations for state in (*one.operands, one.result)]
        return (
            any(state.layout != "row" for state in states),
            any(state.precision for state in states),
            any(one.arithmetic for one in self.implementations),
        )


def chains(
    snapshot: Snapshot,
    pricing: Pricing,
    implementations: Mapping[int, Sequence[Implementation]],
    before: Callable[[], Together],
    kept: Collection[tuple[int, ...]] = (),
) -> Iterator[FusedChain]:
    """The chains of two e-nodes or more whose times are known, or estimated where the device's backend fuses.

    Of a few all are offered, of many those that cost least with what is computed `before`, and those of the e-nodes
    `kept`, by their numbers: kernels of an earlier choice.

    `implementations` are those of each e-node that may be in one, by its position. Each e-node but the last is read by
    the next; other readers get its result from another kernel, so no value that is needed disappears. There are none
    under a user's own cost of operators, which knows no fused ones.
    """
    if pricing.model.cost is not None or not pricing.model.knows_fused:
        return
    wanted = {numbers[:count] for numbers in kept for count in range(2, len(numbers) + 1)}
    singles = _singles(snapshot, implementations)
    tails = _by_state(singles)
    together: Together | None = None
    for _ in range(MOST_FUSED - 1):
        longer: dict[tuple[int, State], list[FusedChain]] = {}
        for head in singles:
            check()
            node, result = snapshot.nodes[head.positions[0]], head.implementations[0].result
            for operand in dict.fromkeys(node.operands):
                for tail in tails.get((operand, result), ()):
                    chain = _joined(snapshot, pricing, tail, head)
                    if chain is not None:
                        longer.setdefault((node.eclass, result), []).append(chain)
        are_many = sum(map(len, longer.values())) > ALL_CHAINS
        if are_many and together is None:
            together = before()
        rank = together if are_many else None
        tails = {end: _offered(joined, snapshot, wanted, rank) for end, joined in longer.items()}
        for cheapest in tails.values():
            yield from cheapest


def _offered(
    chains: Sequence[FusedChain], snapshot: Snapshot, wanted: Collection[tuple[int, ...]], together: Together | None
) -> list[FusedChain]:
    """The cheapest chain of each kind for the same operands, and those of e-nodes that are `wanted`.

    Where `together` tells the cost of computing classes, these are the few of each kind that cost least with all that
    has to be computed before: by themselves, kernels of a sum cost the same in whatever order its terms are added. Each
    kind has room of its own: whoever allows more layouts and precisions is offered all that others are.
    """
    more: list[FusedChain] = []
    kinds: dict[tuple[bool, bool, bool], dict[frozenset[tuple[int, State]], FusedChain]] = {}
    for chain in sorted(chains, key=lambda chain: (chain.price, chain.positions)):
        if wanted and tuple(snapshot.nodes[p].number for p in chain.positions) in wanted:
            more.append(chain)
        else:
            kinds.setdefault(chain.kind, {}).setdefault(frozenset(chain.operands), chain)
    for distinct in kinds.values():
        if together is None:
            more += distinct.values()
            continue
        known: dict[frozenset[int], float] = {}

        def whole(
            chain: FusedChain, known: dict[frozenset[int], float] = known, together: Together = together
        ) -> float:
            classes = frozenset(eclass for eclass, _ in chain.operands)
            if classes not in known:
                known[classes] = together(sorted(classes))
            return chain.price + known[classes]

        more += sorted(distinct.values(), key=whole)[:_MOST_CHAINS]
    return more


def least_before(nodes: Sequence[ProblemNode], index: Mapping[int, int]) -> Together:
    """The least that greedy extraction pays for some classes together, in whatever states, by these nodes alone.

    `index` has the numbers of classes in the nodes. A class that none of them makes is a constant, and is free.
    """
    made = {node.eclass for node in nodes}
    needs = [tuple(sorted({eclass for eclass, _ in node.operands} & made)) for node in watched(nodes)]
    provides, costs = [node.eclass for node in nodes], [node.cost for node in nodes]
    goals = max(made, default=-1) + 1
    dags = GreedyDags(ExtractionProgram(goals, [], provides, needs, costs, list(range(goals)), len(nodes)))

    def together(classes: Sequence[int]) -> float:
        return dags.together([number for number in (index[eclass] for eclass in classes) if number in made])

    return together


def _by_state(singles: Sequence[FusedChain]) -> dict[tuple[int, State], list[FusedChain]]:
    """The beginnings by the class and state of their results."""
    beginnings: dict[tuple[int, State], list[FusedChain]] = {}
    for single in singles:
        beginnings.setdefault((single.eclass, single.implementations[-1].result), []).append(single)
    return beginnings


def _singles(snapshot: Snapshot, implementations: Mapping[int, Sequence[Implementation]]) -> list[FusedChain]:
    """Every e-node alone, in each way, as the beginning of chains."""
    singles: list[FusedChain] = []
    for position, choices in implementations.items():
        node = snapshot.nodes[position]
        for implementation in choices:
            operands = tuple(zip(node.operands, implementation.operands, strict=True))
            singles.append(
                FusedChain(
                    node.eclass, (position,), (implementation,), ((None,) * len(operands),), operands, Cost(), 0.0
                )
            )
    return singles


def _joined(snapshot: Snapshot, pricing: Pricing, tail: FusedChain, head: FusedChain) -> FusedChain | None:
    """A chain and the e-node that reads its result, as one kernel; None where that is not to be."""
    last, (position,), (implementation,) = snapshot.nodes[tail.positions[-1]], head.positions, head.implementations
    node = snapshot.nodes[position]
    inside = {snapshot.nodes[p].eclass for p in tail.positions}
    state = tail.implementations[-1].result
    if not fuses(last.op, node.op) or node.eclass in inside or implementation.result != state:
        return None
    links: list[int | None] = []
    outside: list[tuple[int, State]] = list(tail.operands)
    for operand, taken in zip(node.operands, implementation.operands, strict=True):
        if operand == last.eclass and taken == state:
            links.append(len(tail.positions) - 1)
        elif operand in inside or operand == node.eclass:
            return None
        else:
            links.append(None)
            outside.append((operand, taken))
    if all(link is None for link in links) or any(k == node.eclass for k, _ in outside):
        return None
    positions, implementations = (*tail.positions, position), (*tail.implementations, implementation)
    every = (*tail.links, tuple(links))
    cost = pricing.model.fused(
        [member(snapshot, pricing, *one) for one in zip(positions, implementations, every, strict=True)]
    )
    if cost is None:
        return None
    return FusedChain(
        node.eclass, positions, implementations, every, tuple(dict.fromkeys(outside)), cost, pricing.model.weigh(cost)
    )


def member(
    snapshot: Snapshot,
    pricing: Pricing,
    position: int,
    implementation: Implementation,
    links: tuple[int | None, ...],
    same: tuple[int | None, ...] = (),
) -> FusedOperator:
    """An e-node as a part of a kernel."""
    node = snapshot.nodes[position]
    return FusedOperator(
        node.op,
        node.attrs,
        tuple(pricing.types(node)),
        tuple(pricing.results(node)),
        tuple(pricing.constants(node)),
        implementation,
        links,
        same,
    )
