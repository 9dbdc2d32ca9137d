"""The explanation of a result: its changes, the rules behind each, their evidence, and the saving of each."""

from __future__ import annotations

import itertools
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypedDict

from eqsat.moved import FormerDict
from eqsat.report.units import count, duration
from eqsat.system.markup import folded, html_block, html_listing
from eqsat.system.terminal import WIDTH

#: Cause of a change that no rule made: one node in place of several that were the same to begin with.
SHARED = "shared"
#: Cause of another change that no rule made: values held in other layouts and precisions, operators run as one kernel,
#: and the transposes and casts that this spares or takes.
STATES = "layouts, precisions, kernels"


@dataclass(frozen=True, slots=True)
class Grounds:
    """Why a rule is true: its text, where it comes from, the published laws it states, and how it was checked.

    `origin` is "axiom", "derived" (of a declaration), "library" (generated) or "given"; `laws` names the laws it
    follows from; `evidence` says for which ranks and sizes it is proved, and counts the instances on which Z3, float64
    and arithmetic modulo a prime agreed. `is_for_every_size` is false where the proof is of some sizes alone.
    """

    rule: str
    text: str
    origin: str
    published: tuple[int, ...] = ()
    laws: tuple[str, ...] = ()
    evidence: str = ""
    is_for_every_size: bool = True

    def __str__(self) -> str:
        law = f", published law {', '.join(map(str, self.published))}" if self.published else ""
        basis = f", from {', '.join(self.laws)}" if self.laws and self.laws != (self.rule,) else ""
        return f"{self.rule} ({self.origin}{law}{basis}): {self.text}\n    {self.evidence or 'no record of evidence'}"


@dataclass(frozen=True, slots=True)
class Step:
    """One use of a rule: the value it rewrites, and both sides as they stood. `backwards` is right to left.

    `after` is "" where the record does not tell what the rule matched: a gap.
    """

    rule: str
    value: str
    before: str
    after: str
    backwards: bool = False

    @property
    def is_gap(self) -> bool:
        """True if the match of the rule is unknown."""
        return not self.after

    def __str__(self) -> str:
        rule = f"{self.rule}, right to left" if self.backwards else self.rule
        return f"{rule}: {self.before} = {self.after or '(not recorded)'}"


class ChangeRow(TypedDict):
    """A change as JSON has it."""

    what: str
    values: list[str]
    rules: list[str]
    steps: list[str]
    nodes: int
    gaps: int
    predicted: float | None
    measured: float | None
    spread: float | None


@dataclass(frozen=True)
class Change(FormerDict):
    """A part of the graph that is computed in another way, between values that both graphs have.

    `values` are its results, in every place where the very same change was made (`places` of them); `before` and
    `after` count operators in one place, `replaced` and `made` name the nodes of all places, by their first values, in
    the original and in the result. `rules` are those that lead from the old way to the new one, in the order in which
    they fired, and `steps` the single uses in the first place, each resting on those before it. `gaps` counts pairs of
    equal terms that no chain of rules explains. `predicted` and `measured` are the seconds that all places together
    save, by the cost model and by timing the part alone, old against new, the median of rounds; None where that is not
    known. `spread` is how far the middle half of the rounds is apart.
    """

    #: The form of a change in JSON.
    JSON: ClassVar = ChangeRow

    values: tuple[str, ...]
    before: Mapping[str, int]
    after: Mapping[str, int]
    rules: tuple[str, ...]
    steps: tuple[Step, ...] = ()
    replaced: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    places: int = 1
    nodes: int = 0
    gaps: int = 0
    predicted: float | None = None
    measured: float | None = None
    spread: float | None = None
    unmeasured: str = ""

    @property
    def what(self) -> str:
        """The change in a few words."""
        if self.rules == (STATES,) and not self.before and not self.after:
            return "the same operators in other states"
        text = f"{operators(self.before)} -> {operators(self.after)}"
        return text if self.places == 1 else f"{self.places} × ({text})"

    def as_dict(self) -> dict[str, Any]:
        """The change as JSON has it."""
        row: ChangeRow = {
            "what": self.what,
            "values": list(self.values),
            "rules": list(self.rules),
            "steps": [str(s) for s in self.steps],
            "nodes": self.nodes,
            "gaps": self.gaps,
            "predicted": self.predicted,
            "measured": self.measured,
            "spread": self.spread,
        }
        return {**row}

    def lines(self) -> Iterator[str]:
        """The change in lines of text; of uses of one rule in a row the first is shown."""
        shown = ", ".join(self.values[:4] or self.rules) + (", …" if len(self.values) > 4 else "")
        yield f"{self.what}: {shown}"
        predicted = "unknown" if self.predicted is None else duration(self.predicted)
        why = f": {self.unmeasured}" if self.unmeasured else ""
        measured = f"not measured{why}" if self.measured is None else f"{duration(self.measured)} measured"
        if self.spread is not None:
            measured += f" (half of the rounds within {duration(self.spread)})"
        yield f"  saves {predicted} predicted, {measured}"
        for number, (_, uses) in enumerate(itertools.groupby(self.steps, lambda s: (s.rule, s.backwards)), 1):
            alike = list(uses)
            more = f" (and {count(len(alike) - 1, 'time')} more)" if len(alike) > 1 else ""
            text = f"{number}. {alike[0]}{more}"
            yield from textwrap.wrap(text, WIDTH - 2, initial_indent="  ", subsequent_indent="     ")
        if self.gaps:
            yield f"  {count(self.gaps, 'pair')} of equal terms without a chain of rules: a gap"


@dataclass(frozen=True, repr=False)
class Explanation:
    """The changes behind a result, with the grounds of every rule used.

    `pairs` counts the pairs of equal terms that the changes rest on, and `gaps` those that no chain of rules explains.
    The effect of layouts, precisions and kernels outside the regions is a change of its own, the last, so that the
    predictions of all changes add up to that of the whole.
    """

    changes: tuple[Change, ...]
    grounds: Mapping[str, Grounds] = field(default_factory=dict)
    pairs: int = 0
    gaps: int = 0

    @property
    def share(self) -> float:
        """The share of pairs of equal terms that a chain of rules explains; 1 where nothing changed."""
        return 1 - self.gaps / self.pairs if self.pairs else 1.0

    def __str__(self) -> str:
        if not self.changes:
            return "nothing changed"
        lines = [line for change in self.changes for line in change.lines()]
        lines.append(f"{self.pairs - self.gaps} of {count(self.pairs, 'pair')} of equal terms explained")
        return "\n".join([*lines, *(["rules:"] if self.grounds else []), *(f"  {g}" for g in self.grounds.values())])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        if not self.changes:
            return html_block(str(self))
        pairs = f"{self.pairs - self.gaps} of {count(self.pairs, 'pair')} of equal terms explained"
        columns = ("what", "values", "predicted to save", "measured", "rules")
        rows = (
            (
                change.what,
                ", ".join(change.values),
                *("" if seconds is None else duration(seconds) for seconds in (change.predicted, change.measured)),
                ", ".join(change.rules),
            )
            for change in self.changes
        )
        table = html_listing(pairs, "change", columns, rows, len(self.changes))
        return table + folded("Steps and rules", str(self))


def together(changes: Sequence[Change]) -> Change:
    """The same change in several places as one."""
    first = changes[0]
    return Change(
        values=tuple(v for c in changes for v in c.values),
        before=first.before,
        after=first.after,
        rules=first.rules,
        steps=first.steps,
        replaced=tuple(v for c in changes for v in c.replaced),
        made=tuple(v for c in changes for v in c.made),
        places=sum(c.places for c in changes),
        nodes=sum(c.nodes for c in changes),
        gaps=sum(c.gaps for c in changes),
        predicted=_sum(c.predicted for c in changes),
        measured=_sum(c.measured for c in changes),
        spread=_sum(c.spread for c in changes),
        unmeasured=next((c.unmeasured for c in changes if c.unmeasured), ""),
    )


def operators(counts: Mapping[str, int]) -> str:
    """Operators with how many there are of each.

    >>> operators({"matmul": 3, "slice": 1})
    '3 matmul + slice'
    """
    return " + ".join(f"{n} {op}" if n > 1 else op for op, n in counts.items()) or "nothing"


def counted(ops: Iterable[str]) -> dict[str, int]:
    """The number of each operator, in the order of first occurrence."""
    return dict(Counter(ops))


def _sum(seconds: Iterable[float | None]) -> float | None:
    known = list(seconds)
    return None if any(s is None for s in known) else sum(s for s in known if s is not None)
