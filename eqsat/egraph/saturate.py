"""Equality saturation in phases, bounded by e-nodes, steps and time."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from eqsat.egraph.build import Builder
from eqsat.egraph.egraph import EGraph
from eqsat.egraph.match import Binder, Match
from eqsat.egraph.query import Query, Rewrite, compile_queries
from eqsat.egraph.siblings import groups
from eqsat.errors import ShapeError
from eqsat.language.pattern import Siblings

#: The order of the phases within one round.
PHASES = ("simplify", "expand", "fuse", "merge")


@dataclass(frozen=True)
class Limits:
    """What stops saturation: e-nodes, rounds, seconds; how many merges may have made a tensor that is merged again; how
    many matches a rule may have in one step before it is skipped in that step."""

    nodes: int = 20_000
    rounds: int = 12
    seconds: float = 15.0
    generations: int = 2
    matches: int = 4_000


@dataclass
class Saturation:
    """What happened: why it stopped ("saturated", "node_limit", "round_limit", "time_limit", "interrupted"), how often
    each rule fired and was refused and why, and the growth after each step (phase, e-nodes, e-classes, seconds)."""

    stopped_by: str = "saturated"
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    growth: list[tuple[str, int, int, float]] = field(default_factory=list)
    seconds: float = 0.0


class _Stopped(Exception):  # noqa: N818 - a limit met is no error
    """Leaves the loops; its text says which limit was met."""


class Saturator:
    """Grows an e-graph with rules until nothing new comes, or a limit is met.

    egglog finds the matches; conditions and right sides are evaluated here, where every class has its type and facts,
    so limits hold between any two firings.
    """

    def __init__(
        self,
        egraph: EGraph,
        rules: Sequence[Rewrite],
        limits: Limits,
        progress: Callable[[str, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> None:
        self.egraph, self.limits = egraph, limits
        self.rules = {p: [r for r in rules if r.phase == p] for p in PHASES}
        self.progress, self.should_stop = progress, should_stop
        self.report = Saturation()
        self._compiled: set[str] = set()
        self._queries: dict[str, list[tuple[Query, Binder]]] = {p: [] for p in PHASES}
        self._seen: set[tuple[object, ...]] = set()
        self._siblings: dict[str, list[Match]] = {}
        self._spreads: dict[str, set[tuple[int, ...]]] = {}
        self._start = time.perf_counter()
        for phase in PHASES:
            egraph.engine.ruleset(phase)

    def run(self) -> Saturation:
        """Saturates; the e-graph is sound and complete as far as it got, whatever stopped it."""
        self._start = time.perf_counter()
        try:
            self.egraph.rebuild()
            for _ in range(self.limits.rounds):
                before = self.egraph.size()
                self._round()
                if self.egraph.size() == before:
                    break
            else:
                self.report.stopped_by = "round_limit"
        except _Stopped as stop:
            self.report.stopped_by = str(stop)
        self.egraph.rebuild()
        self.report.seconds = time.perf_counter() - self._start
        return self.report

    def _round(self) -> None:
        for _ in range(self.limits.rounds):  # simplification shrinks, so it runs to its end first
            if not self._step("simplify"):
                break
        for phase in PHASES[1:]:
            self._step(phase)

    def _step(self, phase: str) -> bool:
        """Matches a phase's rules once and applies what matched; True where something was new."""
        engine = self.egraph.engine
        for rule in self.rules[phase]:
            for query in compile_queries(rule, self.egraph.arities, self._compiled):
                engine.query(query.relation, phase, query.facts, query.tensors, query.numbers)
                self._queries[phase].append((query, Binder(self.egraph, query)))
        self._check()
        if not self._queries[phase]:
            return False
        engine.match(phase, self.limits.matches)
        found = self.egraph.rebuild([(q.relation, len(q.tensors)) for q, _ in self._queries[phase]])
        changed = False
        for query, binder in self._queries[phase]:
            rows = found.get(query.relation, [])
            if rows or query.relation in self._spreads:
                changed |= self._apply_rows(query, binder, rows)
        self.egraph.rebuild()
        nodes, classes = self.egraph.size()
        self.report.growth.append((phase, nodes, classes, time.perf_counter() - self._start))
        if self.progress:
            self.progress(phase, nodes)
        return changed

    def _apply_rows(self, query: Query, binder: Binder, rows: Iterable[tuple[int, ...]]) -> bool:
        changed = False
        for match in self._matches(query, binder, rows):
            self._check()
            changed |= self._apply(match)
        return changed

    def _matches(self, query: Query, binder: Binder, rows: Iterable[tuple[int, ...]]) -> list[Match]:
        """The matches of rows that were not seen before; siblings in groups."""
        if query.sites:
            rows = self._kept_rows(query, rows)
        matches = []
        for row in rows:
            if not query.sites and self._is_seen(query, row):
                continue
            matches += [m for m in binder.bind(row) if not query.sites or not self._is_seen(query, _identity(m))]
        if isinstance(query.rule.left, Siblings) and matches:
            found = self._siblings.setdefault(query.relation, [])
            found += matches  # a sibling that appears late joins the ones found before
            joined = groups(self.egraph, query.rule.left, found, self.limits.generations)
            return [group for group in joined if not self._is_seen(query, group.roots)]
        return matches

    def _kept_rows(self, query: Query, rows: Iterable[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """All rows so far: what fits a spread's pattern may join an operand's class after egglog has found the row."""
        kept, find, width = self._spreads.setdefault(query.relation, set()), self.egraph.find, len(query.tensors)
        kept |= set(rows)
        current = {(*(find(k) for k in row[:width]), *row[width:]) for row in kept}
        self._spreads[query.relation] = current
        return sorted(current)

    def _is_seen(self, query: Query, key: object) -> bool:
        """Whether this key of a query was asked for before."""
        entry = (query.relation, key)
        known = entry in self._seen
        self._seen.add(entry)
        return known

    def _apply(self, match: Match) -> bool:
        rule, egraph = match.rule, self.egraph
        generation = 0
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
            results = Builder(egraph, rule, match.bindings, match.classes, generation).results(len(match.roots))
            changed = [egraph.union(e, r, rule.name) for e, r in zip(match.enodes, results, strict=True)]
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


def _identity(match: Match) -> tuple[object, ...]:
    """What tells matches of one row apart."""
    return match.roots, tuple(sorted(match.classes.items())), tuple(sorted(match.bindings.attrs.items()))
