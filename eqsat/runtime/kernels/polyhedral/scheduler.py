"""Schedules of chains that isl computes from the dependences between their elements."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from eqsat.errors import UsageError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.computed import (
    ComputedBand,
    ComputedLeaf,
    ComputedLoop,
    ComputedPlan,
    ComputedSequence,
    ElementTime,
    chains_in,
    is_solvable,
)
from eqsat.runtime.kernels.polyhedral.child import ScheduleRequest
from eqsat.runtime.kernels.polyhedral.dependences import Dependences
from eqsat.runtime.kernels.polyhedral.faults import UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.relations import tuple_text, union_of

_OUT = isl.dim_type.out
#: Parallel indices that "preserve3" keeps.
_KEPT = 3


def compute_plan(computation: Computation, chains: Sequence[StatementChain], request: ScheduleRequest) -> ComputedPlan:
    """The schedule of chains by what may share loops; UsageError for constraints that no schedule keeps.

    Chains are scheduled element by element, each with all that it reduces. Where isl has the chains of a run share
    loops as a request does not allow, as many of them do, in their order, as may.
    """
    return _Scheduler(computation, chains, request).plan()


class _Refused(Exception):  # noqa: N818 - no error: another schedule is computed
    """A schedule that loops cannot follow, or that a request does not allow."""


class _Scheduler:
    def __init__(self, computation: Computation, chains: Sequence[StatementChain], request: ScheduleRequest) -> None:
        self.chains, self.request = chains, request
        self.is_free = bool(computation.sizes)
        members = [(number, one) for number, chain in enumerate(chains) for one in (chain.first, *chain.following)]
        dependences = Dependences(computation.with_statements([one for _, one in members]))
        self.domains: list[isl.Set] = []
        elements: list[isl.Map] = []
        for (number, one), found in zip(members, dependences.statements, strict=True):
            kept = [dim for dim, axis in zip(found.dims, one.axes, strict=True) if not axis.is_reduced]
            text = f"{{ {found.at} -> {tuple_text(f'S{number}', kept)} }}"
            # In a space of its own, as chains are numbered as statements are.
            elements.append(found.parameters.map(text).intersect_domain(found.domain))
            if len(self.domains) == number:
                self.domains.append(elements[-1].range())
        to_elements = union_of(elements)
        self.flow = self._between(dependences.flow, to_elements)
        self.validity = self._between(dependences.every, to_elements)
        self.constraints = {kind: self._constraint(kind, text) for kind, text in request.constraints}

    @staticmethod
    def _between(pairs: isl.UnionMap, elements: isl.UnionMap) -> isl.UnionMap:
        """Pairs of instances as pairs of elements of different chains."""
        found = elements.reverse().apply_range(pairs).apply_range(elements)
        kept = isl.UnionMap("{ }")
        for one in _maps(found):
            if one.get_tuple_name(isl.dim_type.in_) != one.get_tuple_name(isl.dim_type.out):
                kept = kept.union(isl.UnionMap.from_map(one))
            elif not one.subtract(isl.Map.identity(one.get_space())).is_empty():
                raise UndecidedScheduleError("elements of one statement are computed in an order")
        return kept

    def _constraint(self, kind: str, text: str) -> isl.UnionMap:
        """A relation of a caller's; UsageError for what names no elements of statements."""
        try:
            given = isl.UnionMap(text)
        except isl.Error:
            raise UsageError(f"the constraint of {kind}, {text!r}, which isl does not read") from None
        own = {domain.get_tuple_name(): domain.dim(isl.dim_type.set) for domain in self.domains}
        places = self.request.places or tuple(range(len(own)))
        known = {f"S{place}": f"S{number}" for number, place in enumerate(places)}
        empty = {f"S{place}" for place in range(self.request.count)} - known.keys()
        kept = isl.UnionMap("{ }")
        for one in _maps(given):
            names = [one.get_tuple_name(side) for side in (isl.dim_type.in_, isl.dim_type.out)]
            if names[0] == names[1]:
                raise UsageError(
                    f"the constraint of {kind} is between elements of one statement, which are computed in any order"
                )
            if not empty.isdisjoint(names):
                continue  # it has no elements
            for name, side in zip(names, (isl.dim_type.in_, isl.dim_type.out), strict=True):
                count = one.dim(side)
                if own.get(known.get(name or "", "")) != count:
                    there = ", ".join(f"{said} of {own[mine]} indices" for said, mine in known.items())
                    what = f"{name} with {count} indices" if name else "a tuple without a name"
                    raise UsageError(f"the constraint of {kind} speaks of {what}", remedy=f"there are {there}")
                one = one.set_tuple_name(side, known[name])
            kept = kept.union(isl.UnionMap.from_map(one))
        given = kept
        domain = self._domain(range(len(self.chains)))
        return given.intersect_domain(domain).intersect_range(domain)

    def plan(self) -> ComputedPlan:
        """The parts of all runs, one after the other."""
        parts: list[tuple[list[int], ComputedPlan]] = []
        orders: list[isl.UnionMap] = []
        for run in self.request.runs:
            for chains, plan, order in self._parts(list(run)):
                parts.append((chains, plan))
                orders.append(order)
        self._check([chains for chains, _ in parts], orders)
        return parts[0][1] if len(parts) == 1 else ComputedSequence(tuple(plan for _, plan in parts))

    def _parts(self, run: list[int]) -> Iterator[tuple[list[int], ComputedPlan, isl.UnionMap]]:
        """The schedules of a run: one of all its chains, or of as many as may share loops, and of those behind them."""
        left = run
        whole = self._schedule(left)
        if whole is not None:
            yield left, *whole
            return
        while left:
            count, found = 1, self._alone(left[0])
            while count < len(left) and (more := self._schedule(left[: count + 1])) is not None:
                count, found = count + 1, more
            yield left[:count], *found
            left = left[count:]

    def _schedule(self, chains: list[int]) -> tuple[ComputedPlan, isl.UnionMap] | None:
        """A schedule by isl, and the times of its elements; None where the request does not allow it."""
        if len(chains) == 1:
            return self._alone(chains[0])
        domain = self._domain(chains)
        kinds = {"validity": self.validity, "coincidence": self.validity, "proximity": self.flow}
        wanted = {
            kind: self._with_asked(pairs, kind).intersect_domain(domain).intersect_range(domain)
            for kind, pairs in kinds.items()
        }
        isl.DEFAULT_CONTEXT.set_schedule_serialize_sccs(int(self.request.fusion == "min"))
        given = isl.ScheduleConstraints.on_domain(domain).set_validity(wanted["validity"])
        given = given.set_coincidence(wanted["coincidence"]).set_proximity(wanted["proximity"])
        try:
            made = given.compute_schedule()
        except isl.Error:
            return None
        try:
            plan = self._plan(made.get_root(), frozenset(chains))
            self._judge(plan, {chain: [] for chain in chains}, True)
        except _Refused:
            return None
        return plan, made.get_map()

    def _with_asked(self, pairs: isl.UnionMap, kind: str) -> isl.UnionMap:
        """Pairs of a kind with those that the caller asks for; loops over what has an order are not coincident."""
        asked = ("validity", "coincidence") if kind == "coincidence" else (kind,)
        for one in asked:
            pairs = pairs.union(self.constraints[one]) if one in self.constraints else pairs
        return pairs

    def _alone(self, chain: int) -> tuple[ComputedPlan, isl.UnionMap]:
        """A chain that shares no loops."""
        return ComputedLeaf((chain,)), isl.UnionMap.from_map(self.domains[chain].identity().reset_tuple_id(_OUT))

    def _domain(self, chains: Iterable[int]) -> isl.UnionSet:
        total = isl.UnionSet("{ }")
        for chain in chains:
            total = total.union(isl.UnionSet.from_set(self.domains[chain]))
        return total

    def _plan(self, node: isl.ScheduleNode, chains: frozenset[int]) -> ComputedPlan:
        """A tree of isl as a plan of the chains that reach it."""
        types = isl.schedule_node_type
        match node.get_type():
            case types.leaf:
                return ComputedLeaf(tuple(sorted(chains)))
            case types.domain:
                return self._plan(node.get_child(0), chains)
            case types.sequence | types.set:
                parts = []
                for number in range(node.n_children()):
                    child = node.get_child(number)
                    names = {one.get_tuple_name() for one in _sets(child.filter_get_filter())}
                    some = frozenset(chain for chain in chains if f"S{chain}" in names)
                    if some:
                        parts.append(self._plan(child.get_child(0), some))
                return parts[0] if len(parts) == 1 else ComputedSequence(tuple(parts))
            case types.band:
                return ComputedBand(tuple(self._loops(node, chains)), self._plan(node.get_child(0), chains))
        raise _Refused

    def _loops(self, band: isl.ScheduleNode, chains: frozenset[int]) -> Iterator[ComputedLoop]:
        times = band.band_get_partial_schedule()
        for number in range(band.band_n_member()):
            member = times.get_union_pw_aff(number)
            yield ComputedLoop(
                {chain: self._time(member, chain) for chain in sorted(chains)}, band.band_member_get_coincident(number)
            )

    def _time(self, member: isl.UnionPwAff, chain: int) -> ElementTime:
        """The time of an element of a chain, as a sum of its indices."""
        found = [aff for name, aff in _affs(member) if name == f"S{chain}"]
        if len(found) != 1 or found[0].dim(isl.dim_type.div):
            raise _Refused
        aff = found[0]
        if any(not aff.get_coefficient_val(isl.dim_type.param, place).is_zero()
               for place in range(aff.dim(isl.dim_type.param))):  # fmt: skip
            raise _Refused
        values = [aff.get_coefficient_val(isl.dim_type.in_, place) for place in range(aff.dim(isl.dim_type.in_))]
        values.append(aff.get_constant_val())
        if not all(value.is_int() for value in values):
            raise _Refused
        *factors, constant = (value.to_python() for value in values)
        return ElementTime(tuple(factors), constant)

    def _judge(self, plan: ComputedPlan, known: Mapping[int, list[ElementTime]], is_outer: bool) -> None:
        """Raise for a plan that loops cannot follow, or that a request does not allow."""
        match plan:
            case ComputedLeaf():
                if not all(is_solvable(known[chain]) for chain in plan.chains):
                    raise _Refused
            case ComputedSequence():
                for part in plan.parts:
                    self._judge(part, known, is_outer)
            case ComputedBand():
                chains = chains_in(plan)
                if len(chains) > 1:
                    self._judge_shared(plan, chains, is_outer)
                times = {chain: [*known[chain], *(loop.times[chain] for loop in plan.loops)] for chain in chains}
                self._judge(plan.body, times, False)

    def _judge_shared(self, band: ComputedBand, chains: Sequence[int], is_outer: bool) -> None:
        times = [(loop.times[chain], chain) for loop in band.loops for chain in chains]
        if not self.request.skewing and any(time.is_skewed for time, _ in times):
            raise _Refused
        if self.is_free and not all(self._is_whole(loop, chains) for loop in band.loops):
            raise _Refused  # extents that no number tells apart
        most = max(len(self.chains[chain].first.kept) for chain in chains)
        parallel = sum(loop.is_coincident for loop in band.loops)
        if self.request.fusion == "preserve3" and is_outer and parallel < min(_KEPT, most):
            raise _Refused

    def _is_whole(self, loop: ComputedLoop, chains: Sequence[int]) -> bool:
        """True of a loop in which each chain has an index of its own, all of one extent."""
        extents = set()
        for chain in chains:
            time = loop.times[chain]
            places = [place for place, factor in enumerate(time.factors) if factor]
            if len(places) != 1 or time.factors[places[0]] != 1 or time.constant:
                return False
            extents.add(self.chains[chain].first.kept[places[0]].extent)
        return len(extents) == 1

    def _check(self, parts: Sequence[Sequence[int]], orders: Sequence[isl.UnionMap]) -> None:
        """Prove that all parts together keep the dependences, and the constraints of a caller's."""
        wanted = self.validity
        if "validity" in self.constraints:
            wanted = wanted.union(self.constraints["validity"])
        late = isl.UnionMap("{ }")
        domains = [self._domain(chains) for chains in parts]
        for number, (domain, order) in enumerate(zip(domains, orders, strict=True)):
            inside = wanted.intersect_domain(domain).intersect_range(domain)
            late = late.union(inside.intersect(order.lex_ge_union_map(order)))
            for earlier in domains[:number]:
                late = late.union(wanted.intersect_domain(domain).intersect_range(earlier))
        if not late.is_empty():
            raise UsageError("constraints that no schedule of statements in these clusters keeps")


def _maps(given: isl.UnionMap) -> list[isl.Map]:
    found: list[isl.Map] = []
    given.foreach_map(found.append)
    return found


def _sets(given: isl.UnionSet) -> list[isl.Set]:
    found: list[isl.Set] = []
    given.foreach_set(found.append)
    return found


def _affs(given: isl.UnionPwAff) -> list[tuple[str, isl.Aff]]:
    """The pieces of a function, each with the name of what it is of."""
    found: list[isl.PwAff] = []
    given.foreach_pw_aff(found.append)
    return [(one.domain().get_tuple_name(), aff) for one in found for _, aff in one.get_pieces()]
