"""Equality saturation in phases, bounded by e-nodes, steps and time."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from eqsat.egraph.build import Builder
from eqsat.egraph.egraph import EGraph
from eqsat.egraph.match import Binder, Match
from eqsat.egraph.query import Query, Rewrite, compile_query
from eqsat.egraph.siblings import groups
from eqsat.errors import ShapeError
from eqsat.language.pattern import Siblings

#: Why a match is refused whose right side would lie beyond the radius.
FAR = "too many firings from the original"
#: The order of the phases within one round.
PHASES = ("simplify", "expand", "fuse", "merge")


@dataclass(frozen=True)
class Limits:
    """What bounds saturation: e-nodes, rounds, seconds; how many merges may have made a tensor that is merged again;
    how many firings, simplifications apart, may lie between an e-node and the original graph (`radius`); how many
    matches a query may have in one step before it is skipped in that step."""

    nodes: int = 20_000
    rounds: int = 12
    seconds: float = 15.0
    generations: int = 2
    radius: int = 3
    matches: int = 50_000


@dataclass
class Saturation:
    """What happened: why it stopped, how often each rule fired and was refused and why, and the growth after each step
    (phase, e-nodes, e-classes, seconds).

    `stopped_by` is "saturated", "radius_limit" where only matches too far from the original are left, "node_limit",
    "round_limit", "time_limit" or "interrupted".
    """

    stopped_by: str = "saturated"
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    growth: list[tuple[str, int, int, float]] = field(default_factory=list)
    seconds: float = 0.0


@dataclass
class _Relation:
    """One egglog query and the left sides that it serves, by the operators they want."""

    name: str
    width: int
    served: dict[tuple[str, ...], list[tuple[Query, Binder]]] = field(default_factory=dict)


class _Stopped(Exception):  # noqa: N818 - a limit met is no error
    """Leaves the loops; its text says which limit was met."""


class Saturator:
    """Grows an e-graph with rules until nothing new comes, or a limit is met.

    egglog finds the matches; conditions and right sides are evaluated here, where every class has its type and facts,
    so limits hold between any two firings. With `record` the e-graph keeps what each firing matched, for proofs.
    """

    def __init__(
        self,
        egraph: EGraph,
        rules: Sequence[Rewrite],
        limits: Limits,
        progress: Callable[[str, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        *,
        record: bool = False,
    ) -> None:
        self.egraph, self.limits, self.record = egraph, limits, record
        self.rules = {p: [r for r in rules if r.phase == p] for p in PHASES}
        self.progress, self.should_stop = progress, should_stop
        self.report = Saturation()
        self._compiled: set[str] = set()
        self._relations: dict[str, dict[tuple[str, ...], _Relation]] = {p: {} for p in PHASES}
        self._seen: set[tuple[object, ...]] = set()
        self._siblings: dict[str, list[Match]] = {}
        self._spreads: dict[str, set[tuple[int, ...]]] = {}
        self._start = time.perf_counter()
        for phase in PHASES:
            egraph.engine.ruleset(phase)

    def run(self) -> Saturation:
        """Saturates; the e-graph is sound and complete as far as it got, whatever stopped it."""
        self._start = time.perf_counter()
        with _without_collector():
            self._grow()
        self.report.seconds = time.perf_counter() - self._start
        return self.report

    def _grow(self) -> None:
        try:
            self.egraph.rebuild()
            for _ in range(self.limits.rounds):
                before = self.egraph.size()
                self._round()
                self.egraph.rebuild()
                if self.egraph.size() == before:
                    break
            else:
                self.report.stopped_by = "round_limit"
            if self.report.stopped_by == "saturated" and any(why == FAR for _, why in self.report.refused):
                self.report.stopped_by = "radius_limit"
        except _Stopped as stop:
            self.report.stopped_by = str(stop)
        self.egraph.rebuild()

    def _round(self) -> None:
        for step in range(self.limits.rounds):  # simplification shrinks, so it runs to its end first
            if not self._step("simplify", revisit=step == 0):
                break
        for phase in PHASES[1:]:
            self._step(phase)

    def _step(self, phase: str, *, revisit: bool = True) -> bool:
        """Matches a phase's rules once and applies what matched; True where something was new.

        With `revisit`, variadic operators that were matched before are looked at again, for their operands may have
        come to have the form a rule asks for.
        """
        self._declare(phase)
        self._check()
        relations = self._relations[phase].values()
        if not relations:
            return False
        self.egraph.engine.match(phase, self.limits.matches)
        found = self.egraph.rebuild([(r.name, r.width) for r in relations])
        changed = False
        for relation in relations:
            rows_of: dict[tuple[str, ...], list[tuple[int, ...]]] = {}
            for row in found.get(relation.name, ()):
                wanted = tuple(map(self.egraph.operator, row[relation.width :]))
                rows_of.setdefault(wanted, []).append(row)
            for wanted, served in relation.served.items():
                rows = rows_of.get(wanted, [])
                for query, binder in served:
                    again = self._kept_rows(query, rows, revisit) if query.sites else rows
                    if again:
                        changed |= self._apply_rows(query, binder, again)
        nodes, classes = self.egraph.size()
        self.report.growth.append((phase, nodes, classes, time.perf_counter() - self._start))
        if self.progress:
            self.progress(phase, nodes)
        return changed

    def _declare(self, phase: str) -> None:
        """Compiles the rules whose operators have come to be in the e-graph; equal queries are one."""
        known = self._relations[phase]
        for rule in self.rules[phase]:
            query = None if rule.name in self._compiled else compile_query(rule, self.egraph.arities)
            if query is None:
                continue
            self._compiled.add(rule.name)
            key = tuple(query.facts)
            if key not in known:
                known[key] = _Relation(f"{phase}_{len(known)}", query.width)
                self.egraph.engine.query(known[key].name, phase, query.facts, query.width, len(query.operators))
            served = known[key].served.setdefault(tuple(query.operators), [])
            served.append((query, Binder(self.egraph, query)))

    def _apply_rows(self, query: Query, binder: Binder, rows: Iterable[tuple[int, ...]]) -> bool:
        changed = False
        for match in self._matches(query, binder, rows):
            self._check()
            changed |= self._apply(match)
        return changed

    def _matches(self, query: Query, binder: Binder, rows: Iterable[tuple[int, ...]]) -> list[Match]:
        """The matches of rows that were not seen before; siblings in groups."""
        matches = []
        for row in rows:
            self._check()
            if not query.sites and self._is_seen(query, row):
                continue
            matches += [m for m in binder.bind(row) if not query.sites or not self._is_seen(query, _identity(m))]
        if isinstance(query.rule.left, Siblings) and matches:
            found = self._siblings.setdefault(query.name, [])
            found += matches  # a sibling that appears late joins the ones found before
            joined = groups(self.egraph, query.rule.left, found, self.limits.generations)
            return [group for group in joined if not self._is_seen(query, group.roots)]
        return matches

    def _kept_rows(self, query: Query, rows: list[tuple[int, ...]], revisit: bool) -> list[tuple[int, ...]]:
        """The new rows of a query, or all so far."""
        kept = self._spreads.setdefault(query.name, set())
        kept |= set(rows)
        if not revisit:
            return rows
        find, width = self.egraph.find, query.width
        current = {(*(find(k) for k in row[:width]), *row[width:]) for row in kept}
        self._spreads[query.name] = current
        return sorted(current)

    def _is_seen(self, query: Query, key: object) -> bool:
        """Whether this key of a query was asked for before."""
        entry = (query.name, key)
        known = entry in self._seen
        self._seen.add(entry)
        return known

    def _apply(self, match: Match) -> bool:
        rule, egraph = match.rule, self.egraph
        if rule.phase != "simplify" and all(egraph.eclass(r).constant for r in match.roots):
            return False  # however it is written, it costs nothing when the program runs
        generation, steps = 0, match.steps + (rule.phase != "simplify")
        if steps > self.limits.radius:
            self.report.refused[rule.name, FAR] += 1
            return False
        if rule.phase == "merge":
            generation = 1 + max(egraph.eclass(r).generation for r in match.roots)
            if generation > self.limits.generations:
                self.report.refused[rule.name, "merged often enough"] += 1
                return False
        try:
            reason = rule.refused(match.bindings)
            if reason is not None:
                self.report.refused[rule.name, reason] += 1
                return False
            results = Builder(egraph, rule, match.bindings, match.classes, generation, steps).results(len(match.roots))
            kept = match if self.record else None
            pairs = enumerate(zip(match.enodes, results, strict=True))
            changed = [egraph.union(e, r, rule.name, kept, i) for i, (e, r) in pairs]
        except ShapeError as error:
            self.report.refused[rule.name, error.what] += 1
            return False
        if any(changed):
            self.report.fired[rule.name] += 1
        return any(changed)

    def _check(self) -> None:
        if self.egraph.size()[0] >= self.limits.nodes:
            raise _Stopped("node_limit")
        if time.perf_counter() - self._start > self.limits.seconds:
            raise _Stopped("time_limit")
        if self.should_stop is not None and self.should_stop():
            raise _Stopped("interrupted")


@contextmanager
def _without_collector() -> Iterator[None]:
    """Saturation makes many small objects and no cyclic garbage; looking for it took a tenth of the time."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _identity(match: Match) -> tuple[object, ...]:
    """What tells matches of one row apart."""
    return match.roots, tuple(sorted(match.classes.items())), tuple(sorted(match.bindings.attrs.items()))
