"""Equality saturation in phases, bounded by e-nodes, steps and time."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.matching.fire import fire
from eqsat.egraph.matching.match import Binder, Match
from eqsat.egraph.matching.query import ListedRewrites, Query, Rewrite, RewriteSource, Row, compile_query
from eqsat.egraph.matching.siblings import groups
from eqsat.egraph.matching.work import QueryWork, Relation
from eqsat.egraph.saturation import Limits, Saturation, SaturationStep
from eqsat.errors import UsageError
from eqsat.language.terms.pattern import Siblings
from eqsat.system.collector import without_collector
from eqsat.system.deadline import NEVER, Deadline, TimeUp

#: Why a match is refused whose right side would lie beyond the radius.
FAR = "too many firings from the original"
#: The order of the phases within one round, and the one whose rules rearrange: it runs near e-nodes in focus alone,
#: for sums and products have too many arrangements to grow them all.
PHASES, REARRANGE = ("simplify", "expand", "fuse", "merge"), "associate"
#: The phase of steps whose matches were found elsewhere.
BROUGHT = "theories"
#: The rows that are bound between two looks at the limits.
_AT_ONCE = 64
#: The most matches beyond the radius that are kept, to be applied where it is extended.
_KEPT = 20_000


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
        rules: RewriteSource | Iterable[Rewrite],
        limits: Limits,
        progress: Callable[[str, int], None] | None = None,
        should_stop: Callable[[], bool] | None = None,
        deadline: Deadline = NEVER,
    ) -> None:
        self.deadline = deadline
        self.egraph, self.limits = egraph, limits
        self.rules = rules if isinstance(rules, RewriteSource) else ListedRewrites(rules)
        self.progress, self.should_stop = progress, should_stop
        self.report = Saturation()
        self._compiled: set[str] = set()
        self._declared: dict[str, int] = {}
        self._relations: dict[str, dict[tuple[str, ...], Relation]] = {p: {} for p in (*PHASES, REARRANGE)}
        self._seen: set[tuple[object, ...]] = set()
        self._siblings: dict[str, list[Match]] = {}
        self._spreads: dict[str, set[tuple[int, ...]]] = {}
        self._focus: frozenset[int] = frozenset()
        self._outside: dict[str, QueryWork] = {}
        self._far: dict[str, QueryWork] = {}
        self._kept = 0
        self._left: deque[QueryWork] = deque()
        self._left_phase = ""
        self._owner = threading.get_ident()
        self._start, self._spent = time.perf_counter(), 0.0
        self._now = SaturationStep("", (0, 0))
        for phase in (*PHASES, REARRANGE):
            egraph.engine.ruleset(phase)

    def run(self) -> Saturation:
        """Saturate; the e-graph is sound and complete as far as it got, whatever stopped it."""
        with without_collector():
            for step in self.steps():
                if step.stopped:
                    break
        return self.report

    def steps(self) -> Iterator[SaturationStep]:
        """The steps of a run, each taken when it is asked for; after the last, `report` says why it ended.

        A step that a limit ended says so in `stopped`; asking for more goes on where it was left, with other limits or
        the same.
        """
        schedule = self._schedule()
        while True:
            with self._working():
                step = next(schedule, None)
            if step is None:
                return
            yield step

    def step(self, phase: str) -> SaturationStep:
        """Match the rules of one phase once and apply the matches, out of turn."""
        if phase not in PHASES:
            raise UsageError(f"no phase {phase!r}", expected="one of " + ", ".join(PHASES))
        with self._working():
            self.egraph.rebuild()
            try:
                self._step(phase)
                self.report.stopped_by = "paused"
            except _Stopped as stop:
                self.report.stopped_by = str(stop)
            self.egraph.rebuild()
        return self._now

    def focus(self, enodes: Collection[int]) -> None:
        """Count firings from these e-nodes too, as from the original, and let rules rearrange what is in their classes.

        The next run grows from there: by what was matched there to be rearranged, and by what comes of it.
        """
        self.check_thread()
        self._focus = frozenset(enodes)
        for number in self._focus:
            self.egraph.steps[number] = 0
        self._left += self._outside.values()
        self._outside = {}

    def extend(self, radius: int) -> None:
        """Let the next run apply what was refused for being too far from where firings count, within another radius."""
        self.check_thread()
        self.limits = replace(self.limits, radius=radius)
        for key in [key for key in self.report.refused if key[1] == FAR]:
            del self.report.refused[key]
        self._left += self._far.values()
        self._far, self._kept = {}, 0

    def bring(self, matches: Iterable[Match]) -> SaturationStep:
        """Apply matches that were found outside of the schedule, one after the other, within the limits, as a step.

        What they make is taken to be one step from the radius: it is better already, and little has to come of it.
        """
        with self._working():
            self.egraph.rebuild()
            now = self._now = SaturationStep(BROUGHT, self.egraph.size())
            refused = self.report.refused.copy()
            try:
                with self.deadline:  # not rebuilding: that must be done however late it is
                    for match in matches:
                        self._check()
                        now.matched[match.rule.name] += 1
                        steps = max(match.steps() + 1, self.limits.radius - 1)
                        if fire(self.egraph, match, self.report, steps=steps):
                            now.changed = True
                            now.fired[match.rule.name] += 1
                            now.firings.append((match.rule.name, match.enodes))
                self.report.stopped_by = "paused"
            except _Stopped as stop:
                self.report.stopped_by = now.stopped = str(stop)
            except TimeUp:  # while matches were looked for
                self.report.stopped_by = now.stopped = self._late
            self.egraph.rebuild()
            now.refused = self.report.refused - refused
            now.after, now.seconds = self.egraph.size(), time.perf_counter() - self._start
            if now.matched or now.stopped:
                self.report.steps.append(now)
        return now

    def check_thread(self) -> None:
        """UsageError in another thread than the one that made the e-graph; egglog's state cannot move to another."""
        if threading.get_ident() != self._owner:
            raise UsageError(
                "an e-graph is read and grown in the thread that made it",
                where=f"thread {threading.current_thread().name!r}",
                expected="every step in that thread",
                remedy="make the e-graph in the thread that works with it, or hand the work to that thread",
            )

    @contextmanager
    def _working(self) -> Iterator[None]:
        """Time counts while steps are taken, not between them."""
        self.check_thread()
        self._start = time.perf_counter() - self._spent
        try:
            with without_collector():
                yield
        finally:
            self._spent = self.report.seconds = time.perf_counter() - self._start

    def _schedule(self) -> Iterator[SaturationStep]:
        self.egraph.rebuild()
        for _ in range(self.limits.rounds):
            before = self.egraph.size()
            yield from self._round()
            self.egraph.rebuild()
            if self.egraph.size() == before:
                self.report.stopped_by = "saturated"
                break
        else:
            self.report.stopped_by = "round_limit"
        if self.report.stopped_by == "saturated" and any(why == FAR for _, why in self.report.refused):
            self.report.stopped_by = "radius_limit"
        self.egraph.rebuild()

    def _round(self) -> Iterator[SaturationStep]:
        for step in range(self.limits.rounds):  # simplification shrinks, so it runs to its end first
            if not (yield from self._attempt("simplify", revisit=step == 0)):
                break
        for phase in (*([REARRANGE] if self._focus else []), *PHASES[1:]):
            yield from self._attempt(phase)

    def _attempt(self, phase: str, *, revisit: bool = True) -> Generator[SaturationStep, None, bool]:
        """A step, taken up again as often as a limit ended it; True where something was new."""
        changed = False
        while True:
            try:
                self._step(phase, revisit=revisit)
                self.report.stopped_by = "paused"
            except _Stopped as stop:
                self.report.stopped_by = str(stop)
                self.egraph.rebuild()
            taken = self._now
            changed |= taken.changed
            yield taken
            if not taken.stopped:
                return changed

    def _step(self, phase: str, *, revisit: bool = True) -> None:
        """Match a phase's rules once and apply the matches, or the rest of earlier ones.

        With `revisit`, variadic operators that were matched before are looked at again, for their operands may have
        come to have the form a rule asks for.
        """
        now = self._now = SaturationStep(phase, self.egraph.size())
        fired, refused = self.report.fired.copy(), self.report.refused.copy()
        resumed = bool(self._left) and self._left_phase == phase
        try:
            self._finish_left()
            if not resumed:
                self._declare(phase)
                self._check()
                self._match(phase, revisit)
                self._finish_left()
            if self._relations[phase]:
                self.egraph.rebuild()  # congruent e-nodes are one, wherever a step was interrupted
                nodes, classes = self.egraph.size()
                self.report.growth.append((phase, nodes, classes, time.perf_counter() - self._start))
                if self.progress:
                    self.progress(phase, nodes)
        except _Stopped as stop:
            now.stopped = str(stop)
            raise
        finally:
            now.after, now.seconds = self.egraph.size(), time.perf_counter() - self._start
            now.fired, now.refused = self.report.fired - fired, self.report.refused - refused
            self.report.steps.append(now)

    def _match(self, phase: str, revisit: bool) -> None:
        """Match a phase's queries once; the matches are left to be applied."""
        relations = self._relations[phase].values()
        if not relations:
            return
        self._left_phase = phase
        self.egraph.engine.match(phase)
        matches = self.egraph.rebuild([(r.name, r.width) for r in relations], self.limits.matches)
        self.deadline.spend(sum(map(len, matches.values())))
        for relation in relations:
            self._left.extend(relation.work(self.egraph, matches.get(relation.name, ()), revisit))

    def _finish_left(self) -> None:
        """Apply the matches that are left; a limit that is met leaves the rest for the next step."""
        while self._left:
            self._finish(self._left[0])
            self._left.popleft()

    def _declare(self, phase: str) -> None:
        """Compile the rules whose operators the e-graph now has; equal queries are one."""
        seen = sum(map(len, self.egraph.arities.values()))
        if self._declared.get(phase) == seen:
            return  # nothing but new operators, or numbers of operands, lets a rule be compiled
        self._declared[phase] = seen
        known = self._relations[phase]
        for rule in self.rules.applicable(phase, self.egraph.arities):
            query = None if rule.name in self._compiled else compile_query(rule, self.egraph.arities)
            if query is None:
                continue
            self._compiled.add(rule.name)
            key = tuple(query.facts)
            if key not in known:
                known[key] = Relation(f"{phase}_{len(known)}", query.width)
                self.egraph.engine.query(known[key].name, phase, query.facts, query.width, len(query.operators))
            served = known[key].served.setdefault(tuple(query.operators), [])
            served.append((query, Binder(self.egraph, query)))

    def _finish(self, work: QueryWork) -> None:
        """Bind the rows of a query and apply the matches, from where it was left."""
        if work.stage == "new":
            if work.query.sites:
                work.rows = self._kept_rows(work.query, work.rows, work.revisit)
            work.stage = "bind"
        if work.stage == "bind":
            self._bind(work)
            work.stage, work.done = "apply", 0
        while work.done < len(work.matches):
            self._check()
            match = work.matches[work.done]
            work.done += 1
            self._now.matched[work.query.rule.name] += 1
            self._now.changed |= self._apply(match, work)

    def _bind(self, work: QueryWork) -> None:
        """The matches of rows that were not seen before; siblings in groups."""
        query, binder = work.query, work.binder
        near = {self.egraph.find(n) for n in self._focus} if query.rule.phase == REARRANGE else None
        while work.done < len(work.rows):
            rows = work.rows[work.done : work.done + _AT_ONCE]
            self._check(len(rows))
            for row in rows:
                if near is not None and near.isdisjoint(self.egraph.find(row[k]) for k in query.roots):
                    if not query.sites:  # others are looked at again in every step
                        outside = QueryWork(query, binder, [], revisit=False, stage="bind")
                        self._outside.setdefault(query.name, outside).rows.append(row)
                    continue
                work.matches += self._found(work, row)
            work.done += len(rows)
        if isinstance(query.rule.left, Siblings) and work.matches:
            siblings = self._siblings.setdefault(query.name, [])
            siblings += work.matches  # a sibling that appears late joins the ones found before
            joined = groups(self.egraph, query.rule.left, siblings, self.limits.generations)
            work.matches = [group for group in joined if not self._is_seen(query, group.roots)]

    def _found(self, work: QueryWork, row: Row) -> list[Match]:
        """The new matches of a row; what conditions refuse is reported at once, but for siblings, asked in groups."""
        query, binder = work.query, work.binder
        if query.sites:
            bound = [] if binder.is_unchanged(row) else binder.bind_each(row, work.enodes)
            return [match for match in bound if not self._is_seen(query, match.identity)]
        if isinstance(query.rule.left, Siblings):
            return binder.bind_each(row, work.enodes)
        found = binder.bind(row, work.enodes)
        if isinstance(found, str):
            self._now.matched[query.name] += 1
            self.report.refused[query.name, found] += 1
        return [found] if isinstance(found, Match) else []

    def _kept_rows(self, query: Query, rows: list[tuple[int, ...]], revisit: bool) -> list[tuple[int, ...]]:
        """The new rows of a query, or all so far."""
        known = self._spreads.setdefault(query.name, set())
        known |= set(rows)
        if not revisit:
            return rows
        find, width = self.egraph.find, query.width
        current = {(*(find(k) for k in row[:width]), *row[width:]) for row in known}
        self._spreads[query.name] = current
        return sorted(current)

    def _is_seen(self, query: Query, key: object) -> bool:
        """Return whether this key of a query was asked for before."""
        entry = (query.name, key)
        known = entry in self._seen
        self._seen.add(entry)
        return known

    def _apply(self, match: Match, work: QueryWork) -> bool:
        rule, egraph = match.rule, self.egraph
        if rule.phase != "simplify" and all(egraph.eclass(r).constant for r in match.roots):
            return False  # however it is written, it costs nothing when the program runs
        generation, steps = 0, match.steps() + (rule.phase != "simplify")
        if steps > self.limits.radius:
            self.report.refused[rule.name, FAR] += 1
            if self._kept < _KEPT:
                self._kept += 1
                far = QueryWork(work.query, work.binder, [], revisit=False, stage="apply")
                self._far.setdefault(work.query.name, far).matches.append(match)
            return False
        if rule.phase == "merge":
            generation = 1 + max(egraph.eclass(r).generation for r in match.roots)
            if generation > self.limits.generations:
                self.report.refused[rule.name, "merged often enough"] += 1
                return False
        fired = fire(egraph, match, self.report, generation, steps)
        if fired:
            self._now.firings.append((rule.name, match.enodes))
        return fired

    @property
    def _late(self) -> str:
        """The limit that is met where there is no time left."""
        return "step_limit" if self.deadline.counts_steps else "time_limit"

    def _check(self, steps: int = 1) -> None:
        """Count steps that are about to be done; _Stopped where a limit is met."""
        if self.egraph.size()[0] >= self.limits.nodes:
            raise _Stopped("node_limit")
        self.deadline.spend(steps)
        if self.deadline.over or time.perf_counter() - self._start > self.limits.seconds:
            raise _Stopped(self._late)
        if self.should_stop is not None and self.should_stop():
            raise _Stopped("interrupted")
