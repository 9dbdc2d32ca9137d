"""The reason for which a rule has no instances: the conditions that refuse what types, or a term that no draw has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

from eqsat.errors import RuleError
from eqsat.language.terms.pattern import App, Bindings, Var, roots_of
from eqsat.rewrites.discovery.equations.sides import written
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.instances.numbers import numberless
from eqsat.rewrites.rules.rule import Rule, applications
from eqsat.rewrites.rules.term import left_terms

#: How often an instance of a rule, and of a part of it, is tried to draw.
TRIES, _PART_TRIES = 2000, 100
#: How many draws of an operator show the ranks at which its operands are tried, and how many variables are shown.
_DRAWS, _SHOWN = 40, 6


@dataclass(frozen=True)
class Unmet:
    """An account of draws none of which is an instance of a rule.

    `typed` of `tries` draws have a left side that types. `refusals` counts, by condition, those that it refuses, the
    one first that refuses most; `condition` is that one. `part` is the smallest term of the left side that is in
    no draw, where there is one. `ranks` are those of the operands tried, by name.
    """

    tries: int
    typed: int
    condition: str = ""
    refusals: Mapping[str, int] = field(default_factory=dict)
    part: str = ""
    ranks: Mapping[str, Sequence[int]] = field(default_factory=dict)

    def __str__(self) -> str:
        tried = ", ".join(f"{name} of rank {_range(ranks)}" for name, ranks in list(self.ranks.items())[:_SHOWN])
        tail = f"; tried {tried}" if tried else ""
        if not self.typed:
            part = f": {self.part} is in none" if self.part else ""
            return f"none of {self.tries} draws fits the left side{part}{tail}"
        return f"no instance meets the conditions: {self._refused()}, of {self.tries} drawn{tail}"

    def _refused(self) -> str:
        most = self.refusals.get(self.condition, 0)
        if not most:
            return f"the right side's attributes have a value in none of {self.typed} that type"
        if most == self.typed:
            return f"{self.condition} refuses all {self.typed} that type"
        counts = ", ".join(f"{condition} {n}" for condition, n in list(self.refusals.items())[:_SHOWN])
        return f"each holds in some, all in none; of {self.typed} that type are refused by {counts}"


@dataclass(frozen=True, eq=False)
class WatchedRule(Rule):
    """A rule that notes the bindings which its conditions are asked about."""

    asked: list[Bindings] = field(default_factory=list)

    @classmethod
    def of(cls, rule: Rule) -> WatchedRule:
        """The same rule, watched."""
        return cls(**{f.name: getattr(rule, f.name) for f in fields(rule) if f.init})

    def refused(self, bindings: Bindings) -> str | None:
        """Why the rule does not fire under these bindings, which are noted."""
        self.asked.append(bindings)
        return super().refused(bindings)


def unmet(rule: Rule, tries: int = TRIES) -> Unmet:
    """The reason for which no instance of a rule is drawn.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: relu(x) => x if floating(x), rank(x) == 9", origin="candidate")
    >>> unmet(rule, 100).condition
    'rank(x) == 9'
    """
    loose = numberless(rule)
    watched = WatchedRule.of(loose)
    Sampler.unnamed(watched).draw(tries)
    if watched.asked:
        counts = Counter(c.text for c in rule.conditions for b in watched.asked if rule.refused_by(c, b) is not None)
        refusals = dict(counts.most_common())
        ranks = {name: some for name, some in _ranks(watched.asked).items() if name not in loose.tensors - rule.tensors}
        return Unmet(tries, len(watched.asked), next(iter(refusals), ""), refusals, ranks=ranks)
    parts = (app for app in _parts(loose) if _alone(loose, app) is not None)
    part = next((app for app in parts if not _drawn(loose, app)), None)
    return Unmet(tries, 0, part=written(part) if part else "", ranks=_tried(loose, part) if part else {})


def _parts(rule: Rule) -> list[App]:
    """The applications of the left side, inner ones first."""
    return [app for root in roots_of(rule.left) for app in applications(root)]


def _drawn(rule: Rule, app: App, tries: int = _PART_TRIES, count: int = 1) -> list[Bindings]:
    """Some instances of a term alone, whatever the conditions."""
    alone = _alone(rule, app)
    sampler = Sampler(alone) if alone is not None else None
    drawn = [sampler.draw(tries) for _ in range(count)] if sampler is not None else []
    return [bindings for bindings in drawn if bindings is not None]


def _alone(rule: Rule, app: App) -> Rule | None:
    """The rule that a term is itself; None for one that needs names which it does not bind."""
    try:
        return replace(rule, left=(app,), right=(app,), conditions=(), text=written(app), swapped=False)
    except RuleError:
        return None


def _tried(rule: Rule, app: App) -> dict[str, list[int]]:
    """The ranks at which the operands of a term are tried."""
    ranks: dict[str, list[int]] = {}
    if all(isinstance(o, Var | App) for o in app.operands):
        general = App(app.op, tuple(Var(f"x{i}") for i in range(len(app.operands))), record="a")
        seen = _ranks(_drawn(rule, general, count=_DRAWS))
        for place, operand in enumerate(app.operands):
            if isinstance(operand, Var):
                ranks[operand.name] = seen.get(f"x{place}", [])
            elif isinstance(operand, App):
                ranks[written(operand)] = _results(rule, operand)
    return {name: some for name, some in ranks.items() if some}


def _results(rule: Rule, app: App) -> list[int]:
    alone = _alone(rule, app)
    drawn = _drawn(rule, app, count=_DRAWS) if alone is not None else []
    return sorted({len(left_terms(alone, bindings)[0].type.dims) for bindings in drawn if alone is not None})


def _ranks(drawn: Iterable[Bindings]) -> dict[str, list[int]]:
    ranks: dict[str, set[int]] = {}
    for bindings in drawn:
        for operand in operands(bindings):
            ranks.setdefault(operand.name, set()).add(len(operand.type.dims))
    return {name: sorted(some) for name, some in ranks.items()}


def _range(ranks: Sequence[int]) -> str:
    """Numbers as text, those in a row by the first and last."""
    if len(ranks) > 1 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]} to {ranks[-1]}"
    return " or ".join(map(str, ranks))
