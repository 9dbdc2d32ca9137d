"""Looking into a run: the e-graph as it grows, equal forms, chains of rules, and choices at changed costs."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from eqsat.costs.model.asked import CostFunction
from eqsat.egraph.explain import Explainer
from eqsat.egraph.notation import Notation
from eqsat.egraph.saturate import PHASES
from eqsat.errors import UsageError
from eqsat.explorer.choosing import Choice
from eqsat.explorer.comparing import Best, Diff, Flips, flips
from eqsat.explorer.forms import Form, Forms
from eqsat.explorer.growing import Growth
from eqsat.explorer.locating import Locator, Where
from eqsat.explorer.pricing import Price, change_of
from eqsat.explorer.session import Session
from eqsat.explorer.view import tables
from eqsat.explorer.view.reading import class_view, class_views, growth_views, run_view
from eqsat.explorer.view.run import ViewedRun
from eqsat.explorer.view.views import RunView
from eqsat.explorer.why import Chain, chain
from eqsat.language.onnx.read.model import ModelArgument
from eqsat.options import checks
from eqsat.options.keywords import ExploreKeywords
from eqsat.options.options import Options
from eqsat.options.signatures import documented
from eqsat.report.report import Report
from eqsat.report.result import Result
from eqsat.report.summary import steps_of
from eqsat.report.units import count
from eqsat.run import Run
from eqsat.steps.settings import limits_for
from eqsat.system.files import write_text
from eqsat.system.markup import html_block

if TYPE_CHECKING:
    import pandas
    from matplotlib.figure import Figure


@documented("explore")
def explore(model: ModelArgument, **options: Unpack[ExploreKeywords]) -> Explorer:
    """An e-graph of a model to grow step by step, to look into, and to choose from.

    The arguments are those of `optimize`, and mean the same: `Explorer.grow` and then `Explorer.optimize` come to the
    result of `optimize`; each has the limit to itself. Errors are the same too. Times are in seconds. The options are

    {options}
    """
    checked = Options.of("explore", options)
    # Growth hears of a stop by itself, and goes on when it is asked to.
    run = Run.read(model, replace(checked, should_stop=None))
    return Explorer(Session(run, checked.should_stop), model)


class Explorer:
    """A run to look into; `eqsat.explore` makes one.

    `step` and `grow` grow the e-graph, `growth` draws how it grew. `eclass` lists all forms of a tensor with their
    costs, `why` says why two of them are equal, `choose` chooses among all, `best` holds the choice, `reprice` changes
    costs, and the choice with them, without growing again. `diff` shows original and result side by side, `table`,
    `firings` and `costs` are pandas tables, `save` writes it all as a page. Ctrl-C ends growth early and keeps the
    e-graph. `session` holds the parts of the run. An Explorer belongs to the thread that made it.
    """

    def __init__(self, session: Session, model: ModelArgument) -> None:
        self.session = session
        self._model = model
        self._explainer: Explainer | None = None
        self._run: tuple[Any, Any, ViewedRun] | None = None

    # -- growing ------------------------------------------------------------------------------------------------------

    def step(self, phase: str | None = None) -> Growth:
        """Takes the next step, or one of a phase out of turn, and says which rules fired and where.

        A step matches all rules of a phase, "simplify", "expand", "fuse" or "merge", once, and applies the matches.
        UsageError for another phase.
        """
        if phase is not None and phase not in PHASES:
            raise UsageError(
                f"no phase {phase!r}", expected="one of " + ", ".join(PHASES), remedy="or step() for the next"
            )
        return self.session.step(phase)

    def grow(self, *, node_limit: int | None = None, time_limit: float | None = None) -> Growth:
        """Takes all steps that are left, until nothing new is found or a limit is met.

        `node_limit` and `time_limit` (seconds) replace those that were given; growth that a limit or Ctrl-C ended goes
        on. The time limit is that of `optimize`: its share for growth counts from the beginning, without the time
        between steps.
        """
        session = self.session
        if node_limit is not None:
            session.limits = replace(session.limits, nodes=checks.count("node_limit", node_limit))
        if time_limit is not None:
            seconds = limits_for(1, checks.seconds("time_limit", time_limit)).seconds
            session.limits = replace(session.limits, seconds=seconds)
        return session.grow()

    def growth(self) -> Figure:
        """A matplotlib figure of how the e-graph grew: e-nodes, e-classes and matches by rule, step by step.

        MissingExtraError without matplotlib.
        """
        from eqsat.explorer.page.plots import growth_figure

        return growth_figure(growth_views(self.session.saturator.report))

    # -- choosing -----------------------------------------------------------------------------------------------------

    def choose(self, extractor: str | None = None) -> Choice:
        """Chooses among all forms that were found so far, by "ilp", "greedy" or "backtracking".

        The one that was given to `explore` where left out. ExtractionError where no choice keeps the limits.
        """
        wanted = self.session.run.settings.options.extractor if extractor is None else extractor
        checks.extractor("extractor", wanted)
        self.session.finished = None
        return self.session.choose(wanted)

    @property
    def choice(self) -> Choice:
        """The last choice, or one made now from the e-graph so far."""
        return self.session.choice or self.choose()

    @property
    def best(self) -> Best:
        """The chosen form of each tensor: `best["scores"]`."""
        return Best(self.choice, self.eclass)

    def reprice(self, what: str | Form | CostFunction, cost: float | Callable[[float], float] | None = None) -> Flips:
        """Changes a cost and chooses again, without growing again; says where the choice flipped.

        `what` is a form, as `eclass` lists them, or an operator by name, "convert" for copies and casts between states;
        `cost` is what it costs then, in units of the objective (seconds for time), or a function of what it cost. Or
        `what` alone is a function from an Application to a cost, in place of the objective, as `cost` of `optimize`.
        CostError for a value that is no cost; `undo` takes the last change back.
        """
        before = self.choice
        change = change_of(what, cost, {node.op for node in self.session.snapshot.nodes})
        self.session.reprice([*self.session.changes, change])
        return self._flips(change.text, before)

    def undo(self) -> Flips:
        """Takes the last change of costs back and chooses again; UsageError where no cost was changed."""
        if not self.session.changes:
            raise UsageError("no cost was changed", expected="a change to take back", remedy="change one by reprice()")
        *rest, last = self.session.changes
        before = self.choice
        self.session.reprice(rest)
        return self._flips(f"undone: {last.text}", before)

    @property
    def repriced(self) -> tuple[str, ...]:
        """The changes of costs that are in force, in words."""
        return tuple(change.text for change in self.session.changes)

    def optimize(self, measure: bool = True) -> Result:
        """The result of what is grown, at the costs that hold: chosen, measured if asked for, and certified.

        After `grow` it is that of `eqsat.optimize`.
        """
        return self.session.finish(checks.switch("measure", measure))

    @property
    def result(self) -> Result:
        """The result of `optimize`, made without measuring where it was not asked for."""
        finished = self.session.finished
        return self.optimize(measure=False) if finished is None else finished.result

    @property
    def report(self) -> Report:
        """The report of the result."""
        return self.result.report

    # -- looking ------------------------------------------------------------------------------------------------------

    def eclass(self, x: Where) -> Forms:
        """All forms of a tensor that were found equal, each with its cost, the chosen one first.

        `x` is a value, an output or a node of the model by name, a tensor that it was built of, a form, or the number
        of an e-class. UsageError for any other name, with names that are near.
        """
        leader = self._locator().eclass(x)
        run = self._current()
        described = class_view(run, leader)
        snapshot, notation = run.choice.extraction.snapshot, self._notation()
        positions = {snapshot.nodes[position].number: position for position in snapshot.classes[leader].nodes}
        forms = []
        for view in described.forms:
            price = run.choice.prices.get(positions[view.enode], Price())
            forms.append(
                Form(
                    eclass=leader,
                    view=view,
                    text=notation.enode(view.enode),
                    cost=price.own,
                    total=price.total,
                    states=price.states,
                    chosen_states=run.chosen.get(view.enode, ""),
                    in_seconds=run.choice.in_seconds,
                )
            )
        return Forms(notation.name(leader), described, tuple(forms))

    def why(self, a: Where, b: Where | None = None) -> Chain:
        """The chain of rules between two forms of one tensor, with the terms between.

        `b` is the chosen form if left out. UsageError where they are not known to be equal.
        """
        locator = self._locator()
        source = locator.enode(a)
        target = self.best[a].enode if b is None else locator.enode(b)
        egraph, notation = self.session.encoding.egraph, self._notation()
        if egraph.find(source) != egraph.find(target):
            raise UsageError(
                f"{notation.name(source)} and {notation.name(target)} are not known to be equal",
                where=self.session.given.graph.name,
                expected="two forms of one tensor",
                remedy="eclass(...) lists the forms of a tensor; grow() finds more",
            )
        if self._explainer is None:
            self._explainer = Explainer(egraph)
        self._explainer.replay()
        return chain(self._explainer, notation, source, target)

    def diff(self) -> Diff:
        """The original and the choice side by side, changed regions coloured, costs on the nodes."""
        return Diff(self.view(), self._current().explained)

    def view(self) -> RunView:
        """All of it as plain data: graphs, e-classes, changes, growth, rules."""
        return run_view(self._current())

    def table(self) -> pandas.DataFrame:
        """A row for each e-node, with its e-class, cost and rule; MissingExtraError without pandas."""
        return tables.enodes(class_views(self._current()))

    def firings(self) -> pandas.DataFrame:
        """A row for each step and rule: matches, firings, refusals; MissingExtraError without pandas."""
        rows = []
        for number, step in enumerate(self.session.saturator.report.steps, 1):
            refused = {rule: 0 for rule, _ in step.refused}
            for (rule, _), times in step.refused.items():
                refused[rule] += times
            for rule in sorted({*step.matched, *step.fired, *refused}):
                rows.append((number, step.phase, rule, step.matched[rule], step.fired[rule], refused.get(rule, 0)))
        return tables.frame(tables.FIRINGS, rows)

    def costs(self) -> pandas.DataFrame:
        """A row for each kernel and conversion that runs: operators, states, cost, whether that was measured."""
        return tables.what_runs(steps_of(self._current().kept))

    def html(self) -> str:
        """All of it as one HTML page that asks nothing of any other place."""
        from eqsat.explorer.page.page import page

        return page(self.view())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the page, whole or not at all; UsageError where it cannot be written."""
        write_text(Path(path), self.html())

    def widget(self, x: Where | None = None) -> Any:
        """The e-graph as a widget of a notebook, with the e-class of `x` in focus; MissingExtraError without anywidget.

        Its trait `selected` is the number of the e-class that was clicked.
        """
        from eqsat.explorer.page.widget import egraph_widget

        return egraph_widget(self.view(), selected=None if x is None else self._locator().eclass(x))

    def __repr__(self) -> str:
        session = self.session
        nodes, classes = session.encoding.egraph.size()
        steps = session.saturator.report.steps
        how = f"{count(len(steps), 'step')}, {session.saturator.report.stopped_by}" if steps else "not grown yet"
        graph = session.given.graph
        lines = [
            f"Explorer({graph.name!r}): {count(len(graph.nodes), 'node')}; {count(nodes, 'e-node')} in "
            f"{count(classes, 'e-class', 'e-classes')} ({how})"
        ]
        lines += [f"cost changed: {text}" for text in self.repriced]
        lines.append(str(session.choice) if session.choice is not None else "nothing chosen yet")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        if not self.session.saturator.report.steps:
            return html_block(repr(self))
        from eqsat.explorer.page.fragment import fragment

        return fragment(self.view(), still=html_block(repr(self)))

    # -- inside -------------------------------------------------------------------------------------------------------

    def _current(self) -> ViewedRun:
        """The run as it stands."""
        choice, finished = self.choice, self.session.finished
        if self._run is None or self._run[0] is not choice or self._run[1] is not finished:
            self._run = choice, finished, self.session.read(choice)
        return self._run[2]

    def _locator(self) -> Locator:
        return Locator(self.session, self._model)

    def _notation(self) -> Notation:
        """E-nodes as text, classes named as the choice names its values."""
        egraph = self.session.encoding.egraph
        choice = self.session.choice
        return Notation(egraph, {} if choice is None else choice.names(egraph))

    def _flips(self, text: str, before: Choice) -> Flips:
        after = self.session.choose(before.extractor)
        egraph = self.session.encoding.egraph
        return flips(text, before, after, egraph, Notation(egraph))
