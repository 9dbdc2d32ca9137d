"""Values in a tree of loops traced to the statements that demand them, through registers and copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from eqsat.language.comprehension.evaluation import neutral
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import Coordinate, ElementRead
from eqsat.runtime.kernels.polyhedral.dependences import Dependences, PolyhedralStatement, ReadAccess, instance_text
from eqsat.runtime.kernels.polyhedral.events import TreeEvent
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError, UndecidedScheduleError
from eqsat.runtime.kernels.polyhedral.library import isl
from eqsat.runtime.kernels.polyhedral.locals import LocalFlows
from eqsat.runtime.kernels.polyhedral.relations import index_text, joined_maps, only, point_values
from eqsat.runtime.kernels.polyhedral.traced import EarlierPart, TracedRead, TracedValue, ValuePart, fault_of


@dataclass
class _ValueMatch:
    """Conditions that make a value that of a statement."""

    equations: list[str] = field(default_factory=list)
    relations: list[isl.Map] = field(default_factory=list)
    reads: list[tuple[TreeEvent, isl.Map, ReadAccess]] = field(default_factory=list)
    inner: list[TracedValue] = field(default_factory=list)
    known: set[tuple[int, int]] = field(default_factory=set)


class Tracer:
    """Values of a tree as those of the statements of a computation."""

    def __init__(self, dependences: Dependences, flows: LocalFlows) -> None:
        self.dependences, self.flows = dependences, flows
        #: Reasons for which values are not those of statements, to be told where no other statement fits.
        self.failures: list[IllegalScheduleError] = []
        self._matches: dict[tuple[int, int, int], ValuePart | None] = {}
        self._denoted: dict[tuple[int, int, int], TracedValue | None] = {}
        self._pending: set[tuple[int, int, int]] = set()

    def stored(self, event: TreeEvent, one: PolyhedralStatement) -> TracedValue | None:
        """A value that is written to memory as one of a statement; None if it is none."""
        elements = event.elements(event.target)
        for earlier_first in (False, True):
            parts = self._parts(event, event.value, one, earlier_first)
            if parts is None:
                return None
            values, earlier = parts
            if event.reduction:
                if event.reduction != one.statement.reduction:
                    return None
                earlier = [*earlier, EarlierPart(event, event.identity, None)]
            made = TracedValue(one, event, elements, tuple(values), tuple(earlier))
            failure = fault_of(made, whole=False)
            if failure is None:
                return made
            self.failures.append(failure)
        return None

    def _denoting(self, event: TreeEvent, value: Expr, one: PolyhedralStatement) -> TracedValue | None:
        """A value in registers as all of an element that a statement makes."""
        key = event.number, id(value), one.number
        if key in self._pending:
            return None
        if key not in self._denoted:
            self._pending.add(key)
            self._denoted[key] = self._denotation(event, value, one)
            self._pending.discard(key)
        return self._denoted[key]

    def _denotation(self, event: TreeEvent, value: Expr, one: PolyhedralStatement) -> TracedValue | None:
        for earlier_first in (False, True):
            parts = self._parts(event, value, one, earlier_first)
            if parts is None or not parts[0]:
                return None
            made = TracedValue(one, event, event.identity, tuple(parts[0]), tuple(parts[1]))
            made = replace(made, elements=made.contributions.apply_range(one.writes))
            if not made.elements.is_single_valued() or not event.domain.is_subset(made.elements.domain()):
                return None
            failure = fault_of(made, whole=True)
            if failure is None:
                return made
            self.failures.append(failure)
        return None

    def _parts(
        self, event: TreeEvent, value: Expr, one: PolyhedralStatement, earlier_first: bool
    ) -> tuple[list[ValuePart], list[EarlierPart]] | None:
        """The parts of a value that accumulates instances of a statement; None if it is something else."""
        statement = one.statement
        if statement.reduced and value.value is not None and not value.operands:
            start = neutral(statement.reduction, value.dtype)
            if value.value == start:
                return [], []
        if earlier_first and not statement.is_fresh:
            earlier = self._earlier(event, value, one)
            if earlier is not None:
                return [], [earlier]
        matched = self._matched(event, value, one)
        if matched is not None:
            return [matched], []
        if not isinstance(value, ElementRead):
            return None
        if event.local(value) is None:
            own = value.buffer == statement.target and statement.reduction
            return ([], [EarlierPart(event, event.identity, None)]) if own else None
        followed = self._followed(event, value, one, earlier_first)
        if followed is None and not statement.is_fresh:
            earlier = self._earlier(event, value, one)
            return None if earlier is None else ([], [earlier])
        return followed

    def _earlier(self, event: TreeEvent, value: Expr, one: PolyhedralStatement) -> EarlierPart | None:
        """A value as that of an earlier statement with the same target."""
        if not isinstance(value, ElementRead) or event.local(value) is None:
            return None
        own = next(access for access in one.reads if access.is_own)
        for number, flow in reversed(self.dependences.flow_of(own).items()):
            made = self._denoting(event, value, self.dependences.statements[number])
            if made is not None:
                current = own.elements.intersect_domain(flow.range()).range()
                return EarlierPart(event, event.identity, made) if made.elements.range().is_subset(current) else None
        return None

    def _followed(
        self, event: TreeEvent, value: ElementRead, one: PolyhedralStatement, earlier_first: bool
    ) -> tuple[list[ValuePart], list[EarlierPart]] | None:
        reaching = self.flows.reaching(event, value)
        if any(writer.reduction != one.statement.reduction for writer, _ in reaching.updated):
            return None
        reached = joined_maps([link.domain().identity() for _, link in reaching.begun])
        if reached is None or not event.domain.is_subset(reached.domain()):
            what = f"{value.buffer} is read for {event.target.buffer} where nothing has been written to it"
            self.failures.append(IllegalScheduleError(what, statements=(one.number,), buffer=one.statement.target))
            return None
        values: list[ValuePart] = []
        earlier: list[EarlierPart] = []
        for writer, link in (*reaching.begun, *reaching.updated):
            parts = self._parts(writer, writer.value, one, earlier_first)
            if parts is None:
                return None
            for inside in [part.link for part in parts[0]] + [part.link for part in parts[1]]:
                # The same sum that several rounds add is in the value several times.
                if not link.reverse().range_product(inside).reverse().is_single_valued():
                    self.failures.append(_repeated(writer, one))
                    return None
            values += [replace(part, link=link.apply_range(part.link)) for part in parts[0]]
            earlier += [replace(part, link=link.apply_range(part.link)) for part in parts[1]]
        return values, earlier

    def _matched(self, event: TreeEvent, value: Expr, one: PolyhedralStatement) -> ValuePart | None:
        key = event.number, id(value), one.number
        if key not in self._matches:
            match = _ValueMatch()
            made = None
            if self._same(event, value, one.statement.value, one, match):
                made = self._part_of(event, one, match)
            self._matches[key] = made
        return self._matches[key]

    def _part_of(self, event: TreeEvent, one: PolyhedralStatement, match: _ValueMatch) -> ValuePart | None:
        """The instances whose value is computed, from the conditions of a match."""
        relation = self._relation(event, one, match.equations)
        for other in match.relations:
            relation = relation.intersect(other)
        if not relation.is_single_valued():
            relation = relation.intersect(self._relation(event, one, self._by_name(event, one)))
            if not relation.is_single_valued():
                raise UndecidedScheduleError(
                    f"an assignment to {event.target.buffer} may be for several instances of statement {one.number}"
                )
        missing = event.domain.subtract(relation.domain())
        if not missing.is_empty():
            self.failures.append(
                IllegalScheduleError(
                    f"an assignment to {event.target.buffer} in round {point_values(missing)} of its loops computes "
                    f"the value of no instance of statement {one.number}, of {one.statement.target}",
                    statements=(one.number,),
                    buffer=one.statement.target,
                )
            )
            return None
        reads = tuple(
            TracedRead(reader, link.reverse().apply_range(relation), access) for reader, link, access in match.reads
        )
        return ValuePart(event, event.identity, relation, reads, tuple(match.inner))

    @staticmethod
    def _relation(event: TreeEvent, one: PolyhedralStatement, equations: Sequence[str]) -> isl.Map:
        text = f"{{ {event.at} -> {one.at} : {' and '.join(equations) or 'true'} }}"
        return event.parameters.map(text).intersect_domain(event.domain).intersect_range(one.domain)

    @staticmethod
    def _by_name(event: TreeEvent, one: PolyhedralStatement) -> list[str]:
        """The indices of a statement that an assignment has by their names."""
        found = []
        for axis in one.statement.axes:
            if axis.name in event.environment or axis.name in event.names:
                found.append(f"{one.names[axis.name]} = {event.index(AffineIndex.variable(axis.name, 1 << 40))}")
        return found

    def _same(self, event: TreeEvent, value: Expr, wanted: Expr, one: PolyhedralStatement, match: _ValueMatch) -> bool:
        """True where a value is built like that of a statement; conditions on indices are collected."""
        key = id(value), id(wanted)
        if key in match.known:
            return True
        match.known.add(key)
        if isinstance(wanted, ElementRead):
            return isinstance(value, ElementRead) and self._same_read(event, value, wanted, one, match)
        if isinstance(wanted, Coordinate):
            if not isinstance(value, Coordinate):
                return False
            match.equations.append(f"{index_text(wanted.index, one.terms)} = {event.index(value.index)}")
            return True
        if isinstance(value, ElementRead | Coordinate) or len(value.operands) != len(wanted.operands):
            return False
        if (value.template, value.dtype) != (wanted.template, wanted.dtype):
            return False
        return all(
            self._same(event, mine, theirs, one, match)
            for mine, theirs in zip(value.operands, wanted.operands, strict=True)
        )

    def _same_read(
        self, event: TreeEvent, value: ElementRead, wanted: ElementRead, one: PolyhedralStatement, match: _ValueMatch
    ) -> bool:
        access = next(access for access in one.reads if access.read is wanted)
        if event.local(value) is not None:
            return self._same_local(event, value, access, one, match)
        if value.buffer != wanted.buffer or len(value.subscripts) != len(wanted.subscripts):
            return False
        for mine, theirs in zip(value.subscripts, wanted.subscripts, strict=True):
            if isinstance(theirs, AffineIndex):
                if not isinstance(mine, AffineIndex):
                    return False
                match.equations.append(f"{index_text(theirs, one.terms)} = {event.index(mine)}")
            elif isinstance(mine, AffineIndex) or not self._same(event, mine, theirs, one, match):
                return False
        match.reads.append((event, event.identity, access))
        return True

    def _same_local(
        self, event: TreeEvent, value: ElementRead, access: ReadAccess, one: PolyhedralStatement, match: _ValueMatch
    ) -> bool:
        """True where a local element is a copy of that in memory, or the value that was computed for it."""
        reaching = self.flows.reaching(event, value)
        wanted = access.read
        assert wanted is not None
        copies = [] if reaching.updated else reaching.begun
        made: list[isl.Map] = []
        reads: list[tuple[TreeEvent, isl.Map, ReadAccess]] = []
        inner: list[TracedValue] = []
        for writer, link in copies:
            below = _ValueMatch()
            if not self._same(writer, writer.value, wanted, one, below):
                continue
            relation = self._relation(writer, one, below.equations)
            for other in below.relations:
                relation = relation.intersect(other)
            made.append(link.apply_range(relation))
            reads += [(reader, link.apply_range(further), access) for reader, further, access in below.reads]
            inner += below.inner
        joined = joined_maps(made)
        if joined is not None and event.domain.is_subset(joined.domain()):
            match.relations.append(joined)
            match.reads += reads
            match.inner += inner
            return True
        return self._same_computed(event, value, access, one, match)

    def _same_computed(
        self, event: TreeEvent, value: ElementRead, access: ReadAccess, one: PolyhedralStatement, match: _ValueMatch
    ) -> bool:
        """True where a local element is what the last writers before a read in the order of statements compute."""
        if access.read is None or not access.read.is_affine:
            return False
        for number, flow in reversed(self.dependences.flow_of(access).items()):
            if number == one.number and not one.writes.is_injective():
                continue  # of its own sums a statement may read a part
            known = len(self.failures)
            made = self._denoting(event, value, self.dependences.statements[number])
            if made is not None:
                current = access.elements.intersect_domain(flow.range())
                match.relations.append(made.elements.apply_range(current.reverse()))
                match.inner.append(made)
                return True
            self.failures += [self._read_early(failure, access, one) for failure in self.failures[known:]]
        return False

    def _read_early(
        self, failure: IllegalScheduleError, access: ReadAccess, one: PolyhedralStatement
    ) -> IllegalScheduleError:
        """The fault of a value in registers, as one of the statement that reads it."""
        if len(failure.instances) != 1 or failure.buffer != access.buffer:
            return failure
        writer = self.dependences.statements[failure.statements[0]]
        first = only(list(failure.instances[0].values()), writer.domain)
        readers = first.apply(writer.writes).apply(access.elements.reverse())
        if readers.is_empty():
            return failure
        second = one.indices(point_values(readers))
        return IllegalScheduleError(
            f"{access.buffer} is read before it is computed: {failure.what}, has to come before "
            f"statement {one.number}, {instance_text(one.statement, second)}",
            statements=(writer.number, one.number),
            buffer=access.buffer,
            instances=(failure.instances[0], second),
        )


def _repeated(event: TreeEvent, one: PolyhedralStatement) -> IllegalScheduleError:
    return IllegalScheduleError(
        f"rounds of loops add one value to {event.target.buffer} several times, of statement {one.number}, "
        f"of {one.statement.target}",
        statements=(one.number,),
        buffer=one.statement.target,
    )
