"""All forms of one tensor: every e-node of its e-class, with costs, and the chosen one marked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.explorer.naming import TREE_COST, TREE_COST_NOTE, amount
from eqsat.explorer.view.views import ClassView, FormView
from eqsat.report.units import count
from eqsat.system.markup import html_table
from eqsat.system.terminal import text_table

_COLUMNS = ("", "form", "cost", TREE_COST, "held as", "by rule")


@dataclass(frozen=True)
class Form:
    """One form of a tensor: an operator over e-classes, written as a term in `text`.

    `cost` is that of running it, `total` its tree cost: with the cheapest forms below it, shared parts counted each
    time, which the choice counts once. Both are in units of the objective (seconds for time), None where it does not
    run; `states` say how its operands and result are held in its cheapest way, "" where all is row-major.
    """

    eclass: int
    view: FormView
    text: str
    cost: float | None
    total: float | None
    states: str = ""
    chosen_states: str = ""
    in_seconds: bool = True

    @property
    def enode(self) -> int:
        """Its number in the e-graph."""
        return self.view.enode

    @property
    def op(self) -> str:
        """Its operator."""
        return self.view.op

    @property
    def rule(self) -> str:
        """The rule that made it; "" for what the graph held."""
        return self.view.rule

    @property
    def chosen(self) -> bool:
        """True if the choice computes the tensor by it."""
        return self.view.chosen

    @property
    def original(self) -> bool:
        """True if the graph computed the tensor by it."""
        return self.view.original

    @property
    def estimated(self) -> bool:
        """True if its cost comes from a roofline and no measurement."""
        return self.view.estimated

    def row(self) -> tuple[str, ...]:
        """A row of a table of forms."""
        marks = "chosen" * self.chosen + ", " * (self.chosen and self.original) + "original" * self.original
        own = amount(self.cost, self.in_seconds) + (" est." if self.cost and self.estimated else "")
        states = ("" if self.chosen_states == "row" else self.chosen_states) if self.chosen else self.states
        return marks, self.text, own, amount(self.total, self.in_seconds), states, self.rule

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        marks, text, own, total, states, rule = self.row()
        facts = (own and f"cost {own}", total and f"{TREE_COST} {total}", states, rule and f"by {rule}", marks)
        return ", ".join(filter(None, (text, *facts)))


@dataclass(frozen=True)
class Forms:
    """Every equal form of one tensor that was found, the cheapest first; iterates over them."""

    name: str
    view: ClassView
    forms: tuple[Form, ...]

    @property
    def eclass(self) -> int:
        """The number of the e-class."""
        return self.view.eclass

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the graph that it holds."""
        return self.view.values

    @property
    def chosen(self) -> Form | None:
        """The form that is chosen; None where the choice does not need the tensor."""
        return next((form for form in self.forms if form.chosen), None)

    @property
    def title(self) -> str:
        """The title in a line."""
        known = ", known before the program runs" if self.view.constant else ""
        values = f": {', '.join(self.values)}" if len(self.values) > 1 else ""
        unused = "" if self.chosen is not None else "; the choice does not need it"
        forms = count(len(self.forms), "form")
        return f"{self.name}, {self.view.type}, e-class {self.eclass}{values}{known}, {forms}{unused}"

    def __iter__(self) -> Iterator[Form]:
        return iter(self.forms)

    def __len__(self) -> int:
        return len(self.forms)

    def __getitem__(self, index: int) -> Form:
        return self.forms[index]

    def __str__(self) -> str:
        return text_table(self._caption, _COLUMNS, [form.row() for form in self.forms])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        marked = [index for index, form in enumerate(self.forms) if form.chosen]
        return html_table(self._caption, _COLUMNS, [form.row() for form in self.forms], marked)

    @property
    def _caption(self) -> str:
        """The title; where forms have operands, with a line that says how the tree cost counts them."""
        return f"{self.title}\n{TREE_COST_NOTE}" if any(form.view.operands for form in self.forms) else self.title
