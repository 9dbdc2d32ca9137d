"""Two choices from one e-graph compared, and a result shown beside its original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from eqsat.egraph.egraph import EGraph
from eqsat.egraph.notation import Notation
from eqsat.errors import UsageError
from eqsat.explorer.choosing import Choice
from eqsat.explorer.forms import Form, Forms
from eqsat.explorer.locating import Where
from eqsat.explorer.view.views import RunView
from eqsat.report.explanation import Explanation
from eqsat.report.units import count
from eqsat.system.markup import html_table
from eqsat.system.terminal import text_table

_COLUMNS = ("tensor", "was", "is")


@dataclass(frozen=True)
class Flips:
    """Differences of a choice under changed costs: the form before and after of each tensor computed otherwise.

    `rows` are (name, form before, form after), "" where the tensor is not needed.
    """

    what: str
    before: Choice
    after: Choice
    rows: tuple[tuple[str, str, str], ...]

    @property
    def title(self) -> str:
        """The change in a line."""
        costs = f"cost {self.before.amount(self.before.cost)} -> {self.after.amount(self.after.cost)}"
        flipped = count(len(self.rows), "tensor") + " computed otherwise" if self.rows else "the choice stays"
        return f"{self.what}: {flipped}; {costs}"

    def __len__(self) -> int:
        return len(self.rows)

    def __str__(self) -> str:
        return text_table(self.title, _COLUMNS, self.rows)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_table(self.title, _COLUMNS, self.rows)


@dataclass(frozen=True)
class Diff:
    """The original and the result side by side, changed regions coloured, costs on the nodes; `changes` as data."""

    view: RunView
    explained: Explanation

    def __str__(self) -> str:
        return str(self.explained)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        from eqsat.explorer.page.fragment import diff_html, fragment

        return fragment(self.view, pane="graphs", still=diff_html(self.view))


def flips(what: str, before: Choice, after: Choice, egraph: EGraph, notation: Notation) -> Flips:
    """Differences between two choices, without constants."""
    was, now = _by_class(before, egraph), _by_class(after, egraph)
    rows = [
        (notation.name(leader), *(" and ".join(map(notation.enode, forms.get(leader, ()))) for forms in (was, now)))
        for leader in sorted({*was, *now})
        if was.get(leader) != now.get(leader) and not egraph.eclass(leader).constant
    ]
    return Flips(what, before, after, tuple((name, old, new) for name, old, new in rows))


def _by_class(choice: Choice, egraph: EGraph) -> dict[int, tuple[int, ...]]:
    """The chosen e-nodes of each e-class; one that is made in two ways has two."""
    numbers: dict[int, tuple[int, ...]] = {}
    for number in sorted(choice.chosen):
        leader = egraph.find(number)
        numbers[leader] = (*numbers.get(leader, ()), number)
    return numbers


@dataclass(frozen=True)
class Best:
    """The chosen forms, indexed by anything that names a tensor."""

    choice: Choice
    forms: Callable[[Any], Forms]

    @property
    def cost(self) -> float:
        """The cost of the choice, in units of the objective."""
        return self.choice.cost

    def __getitem__(self, x: Where) -> Form:
        forms = self.forms(x)
        if forms.chosen is None:
            raise UsageError(
                f"what was chosen does not need {forms.name}",
                expected="a tensor that it computes",
                remedy="eclass(...) lists all forms of it",
            )
        return forms.chosen

    def __repr__(self) -> str:
        return repr(self.choice)

    def _repr_html_(self) -> str:
        return self.choice._repr_html_()
