"""The e-graph of a model, and its growth by rules."""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator, Sequence
from dataclasses import dataclass, replace

from eqsat.egraph.encode import Encoding, encode, nan_warnings
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits, Saturation, SaturationStep
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.extract import Solution
from eqsat.extract.solvers.carried import carried
from eqsat.extract.tensors.tensors import TensorProblem
from eqsat.language.onnx.read.model import Given
from eqsat.report.report import Progress
from eqsat.rewrites.rules.ruleset import RuleSet
from eqsat.rewrites.theories.matches import theory_matches
from eqsat.steps.log import Log
from eqsat.steps.regions.offering import RegionOffer
from eqsat.steps.settings import SATURATE, Settings
from eqsat.system.collector import without_collector
from eqsat.system.deadline import Deadline, TimeUp

#: Rounds around the best choice so far, the e-nodes that one of them may add, and the share of its cost that the next
#: choice has to come below to be followed by another.
_ROUNDS, _MORE, _BETTER = 6, 400, 0.999
#: The e-nodes below which rounds rearrange what was chosen, and go deeper where the one before found nothing, and the
#: largest radius. Of larger e-graphs choices are no longer proved the best in time, and become dearer by it.
SMALL, _DEEPEST = 300, 4
#: The share of a call that rounds may take, and the ends of saturation after which they are worth it.
_AROUND, _AT_REST = 0.2, ("saturated", "radius_limit", "round_limit")
#: The share of a call after which nothing is grown from a graph that is not yet in an e-graph.
_ENCODE = 0.6


@dataclass(frozen=True)
class Grown:
    """The e-graph of a model, how it grew, and its e-nodes; `known` are problems of it with choices made on the way."""

    encoding: Encoding
    saturation: Saturation
    snapshot: Snapshot
    known: Sequence[tuple[TensorProblem, Solution]] = ()

    @property
    def kernels(self) -> frozenset[tuple[int, ...]]:
        """The e-nodes of each kernel of several that was chosen on the way, by their numbers as of now."""
        now = self.encoding.egraph.representative
        return frozenset(
            tuple(now(extraction.snapshot.nodes[position].number) for position in option.positions)
            for extraction, solution in self.known
            for option in (extraction.options[index] for index in solution.chosen.values())
            if len(option.positions) > 1
        )

    def carried(self, now: TensorProblem) -> list[Solution]:
        """The choices made on the way, as solutions of a problem of all e-nodes; those that have none are left out."""
        return [solution for problem, solution in self.repriced(now) if problem is now]

    def repriced(self, now: TensorProblem) -> list[tuple[TensorProblem, Solution]]:
        """The choices made on the way, as solutions of a problem of all e-nodes, or of their own where it has none."""
        egraph = self.encoding.egraph
        every = ((known, carried(known[1], known[0], now, egraph)) for known in self.known)
        return [known if again is None else (now, again) for known, again in every]


#: Chooses from an e-graph as far as it is grown.
Choose = Callable[[Grown], tuple[TensorProblem, Solution]]


def begin(given: Given, rules: RuleSet, settings: Settings, log: Log) -> tuple[Encoding, Saturator]:
    """The e-graph of a model as it was given, and the saturator that grows it."""
    options = settings.options
    encoding = encode(given.grown, finite_math=options.finite_math, doubted=given.doubted, heard=given.heard)
    log.warnings += [*given.warnings, *nan_warnings(encoding)]

    def follow(phase: str, nodes: int) -> None:
        log.say(Progress("saturate", nodes=nodes, detail=phase))

    return encoding, Saturator(encoding.egraph, rules, settings.limits, follow, options.should_stop)


def grow(given: Given, rules: RuleSet, settings: Settings, log: Log, choose: Choose | None = None) -> Grown:
    """The e-graph of a model, grown by rules within the limits, with `choose` in rounds around what that chooses."""
    growing = settings.deadline.part(SATURATE)
    with log.phase("saturate"):
        with settings.deadline.part(_ENCODE):
            encoding, saturator = begin(given, rules, settings, log)
        saturator.deadline = growing
        rounds = GrowthRounds(
            encoding,
            saturator,
            rules,
            settings.deadline,
            choose,
            settings.choices.policy.quantises,
            regions=RegionOffer.of(settings, log),
        )
        with settings.deadline, without_collector():
            for step in rounds.steps():
                if step.stopped:
                    break
        return rounds.grown(snapshot(encoding))


class GrowthRounds:
    """The growth of an e-graph by rules, and in rounds around the best choice so far.

    Around a choice, theories bring better forms of it, rules that only change the order of operations, which have too
    many results to apply them everywhere, rearrange it, and where the e-graph is small, rules go deeper from there.
    What was chosen on the way, the graph as given first, is kept. Without `choose` there are no rounds. Where a choice
    `quantises`, nothing goes deeper: kernels on integers tell forms apart that are equally cheap in floats.
    `regions` of the last choice and of the graph are offered as functions at the end, of which nothing grows.
    """

    def __init__(
        self,
        encoding: Encoding,
        saturator: Saturator,
        rules: RuleSet,
        deadline: Deadline,
        choose: Choose | None,
        quantises: bool = False,
        *,
        regions: RegionOffer | None = None,
    ) -> None:
        self.encoding, self.saturator, self.rules, self.deadline = encoding, saturator, rules, deadline
        self.choose_from = choose
        self._small, self._regions = 0 if quantises else SMALL, regions
        self._limits = saturator.limits
        self._known: list[tuple[TensorProblem, Solution]] = []

    @property
    def limits(self) -> Limits:
        """The limits of growth as they were asked for; a round may have narrower ones."""
        return self._limits

    @limits.setter
    def limits(self, limits: Limits) -> None:
        self._limits = self.saturator.limits = limits

    def grown(self, now: Snapshot) -> Grown:
        """The e-graph as it is, of which this is the snapshot."""
        return Grown(self.encoding, self.saturator.report, now, tuple(self._known))

    def steps(self) -> Iterator[SaturationStep]:
        """The steps of growth, each taken when it is asked for; after the last, the report says why it ended.

        A step that a limit ended says so in `stopped`; asking for more goes on where it was left.
        """
        saturator, report = self.saturator, self.saturator.report
        has_rounds = self.choose_from is not None and bool(self.rules) and _size_of(self.encoding) < self._limits.nodes
        if has_rounds and not self._known:
            yield from self._choose(self.deadline.part(_AROUND))
        yield from saturator.steps()
        if not has_rounds or report.stopped_by not in _AT_REST:
            return
        ended = report.stopped_by
        # After rules: what they make counts from the original, whatever a theory makes as well. The graph as given is
        # read by itself first: what rules made of a value reads it too, and would end a region there.
        given = [_enodes(*known) for known in self._known[:1]]
        brought = self._bring(*given, range(len(self.encoding.egraph.nodes)))
        if brought.fired:
            yield brought
            yield from saturator.steps()
        else:
            report.stopped_by = ended
        if report.stopped_by in _AT_REST:
            yield from self._around()
        if self._regions is not None and report.stopped_by in _AT_REST:
            ended = report.stopped_by
            yield self._bring_regions(self._regions)
            report.stopped_by = ended

    def _around(self) -> Iterator[SaturationStep]:
        """The steps of rounds, each around the best choice so far, while they are worth it."""
        saturator, report, known = self.saturator, self.saturator.report, self._known
        before, around = saturator.deadline, self.deadline.part(_AROUND)
        saturator.deadline, radius, ended = around, self._limits.radius, report.stopped_by
        while (yield from self._choose(around)):
            is_small = _size_of(self.encoding) < self._small
            is_better = len(known) < 2 or known[-1][1].cost < _BETTER * known[-2][1].cost
            radius += is_small and not is_better
            if radius > _DEEPEST or len(known) > _ROUNDS or not (is_small or is_better):
                break
            fired = sum(report.fired.values())
            yield from self._round(radius if is_small else None)
            ended = report.stopped_by
            may_deepen = is_small and ended != "saturated"
            if ended not in _AT_REST or not (may_deepen or sum(report.fired.values()) > fired):
                break
        report.stopped_by = ended
        saturator.limits, saturator.deadline = self._limits, before

    def _round(self, radius: int | None) -> Iterator[SaturationStep]:
        """The steps of growth around the last choice, within a radius where one is given."""
        saturator, size = self.saturator, _size_of(self.encoding)
        narrow = min(self._limits.nodes, size + _MORE)
        saturator.limits = replace(self._limits, nodes=narrow)
        chosen = _enodes(*self._known[-1])
        brought = self._bring(chosen)
        if brought.fired:
            yield brought
        if radius is not None:
            saturator.focus(chosen)
            saturator.extend(radius)
        for step in saturator.steps():
            if step.stopped == "node_limit" and narrow < self._limits.nodes:
                # What is left is too far for an e-graph of this size.
                step.stopped, saturator.report.stopped_by = "", "radius_limit"
                yield step
                return
            yield step

    def _choose(self, deadline: Deadline) -> Generator[SaturationStep, None, bool]:
        """Keep the choice from the e-graph as it is; False where there is no time for it.

        One that was interrupted is made anew where growth goes on.
        """
        assert self.choose_from is not None
        report, stop = self.saturator.report, self.saturator.should_stop
        while True:
            try:
                with deadline:
                    chosen = self.choose_from(self.grown(snapshot(self.encoding)))
            except TimeUp:
                return False
            if stop is None or not stop():
                self._known.append(chosen)
                return True
            size, report.stopped_by = self.encoding.egraph.size(), "interrupted"
            report.steps.append(SaturationStep("choose", size, size, report.seconds, stopped="interrupted"))
            yield report.steps[-1]

    def _bring(self, *choices: Collection[int]) -> SaturationStep:
        """Bring in what theories make of choices of e-nodes, one after the other."""
        egraph, rules = self.encoding.egraph, self.rules
        return self.saturator.bring(match for chosen in choices for match in theory_matches(egraph, chosen, rules))

    def _bring_regions(self, regions: RegionOffer) -> SaturationStep:
        """Bring in the functions that regions of the last choice of e-nodes, and of the graph, can be computed by."""
        choices = [_enodes(*self._known[-1]), *([_enodes(*self._known[0])] if len(self._known) > 1 else [])]
        return self.saturator.bring(regions.matches(self.encoding.egraph, choices, [*self.encoding.roots.values()]))


def _size_of(encoding: Encoding) -> int:
    """The number of e-nodes."""
    return encoding.egraph.size()[0]


def _enodes(extraction: TensorProblem, solution: Solution) -> set[int]:
    """The e-nodes of a choice."""
    nodes, options = extraction.snapshot.nodes, extraction.options
    return {nodes[p].number for index in solution.chosen.values() for p in options[index].positions}
