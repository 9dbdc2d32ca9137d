"""Rules in order, each of which is read when it is first asked for.

Of the rules that ship, an e-graph has the operators of one in fifty: the text of the others is never parsed, nor are
the functions that give them meaning. A rule that is read has its evidence checked before anyone sees it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

from eqsat.rewrites.rules.rule import Rule
from eqsat.system.collector import without_collector


@dataclass(frozen=True, eq=False)
class RuleSource:
    """A rule that is read when it is first asked for.

    `operators` are operators of its left side that can be told without reading it; a rule may have more.
    """

    name: str
    phase: str
    operators: frozenset[str]
    read: Callable[[], Rule]
    admits: Callable[[Rule], bool] = lambda rule: True

    @classmethod
    def of(cls, rule: Rule) -> RuleSource:
        """The source of a rule that is read already."""
        return cls(rule.name, rule.phase, rule.matched, lambda: rule)

    def admitted_by(self, admits: Callable[[Rule], bool]) -> RuleSource:
        """The same source, whose rule may be used if it is one of this kind."""
        return RuleSource(self.name, self.phase, self.operators, lambda: self.rule, admits)

    @cached_property
    def rule(self) -> Rule:
        """The rule, admitted or not."""
        return self.read()

    @cached_property
    def is_admitted(self) -> bool:
        """True if the rule may be used."""
        return self.admits(self.rule)

    @property
    def is_settled(self) -> bool:
        """True if the rule was read, and admitted or not, before."""
        return "is_admitted" in vars(self)


class RuleSet(Sequence[Rule]):
    """Rules in order, those that are admitted; one is read when it is first asked for.

    `report` is told the names of rules that are left out, once each, and how many sources there are. What asks for all
    rules reads them all: their number, one of them by its place, and going through them.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> rules = RuleSet.of(parse_rules("twice: relu(relu(x)) => relu(x)"))
    >>> [rule.name for rule in rules.applicable("simplify", {"add", "relu"})]
    ['twice']
    >>> rules.applicable("simplify", {"add"})
    []
    """

    def __init__(
        self, sources: Iterable[RuleSource], report: Callable[[Sequence[str], int], None] = lambda names, count: None
    ) -> None:
        self.sources = tuple(sources)
        self._report = report

    @classmethod
    def of(cls, rules: Iterable[Rule]) -> RuleSet:
        """Rules that are read already; a set of rules as it is."""
        return rules if isinstance(rules, RuleSet) else cls(map(RuleSource.of, rules))

    def plus(self, more: Iterable[Rule]) -> RuleSet:
        """These rules, then others."""
        return RuleSet((*self.sources, *map(RuleSource.of, more)), self._report)

    def without(self, names: Collection[str]) -> RuleSet:
        """The rules that have none of these names."""
        return RuleSet((one for one in self.sources if one.name not in names), self._report)

    def named(self, names: Collection[str]) -> list[Rule]:
        """The rules that have these names, as far as there are any."""
        return self._admitted([one for one in self.sources if one.name in names])

    def applicable(self, phase: str, operators: Collection[str]) -> list[Rule]:
        """The rules of a phase whose left sides have none but these operators."""
        known = frozenset(operators)
        groups = self._groups.get(phase, {})
        places = sorted(place for told, some in groups.items() if told <= known for place in some)
        return [rule for rule in self._admitted(self.sources[k] for k in places) if rule.matched <= known]

    @cached_property
    def _groups(self) -> Mapping[str, Mapping[frozenset[str], Sequence[int]]]:
        """The places of sources by their phases, then by the operators that are told of them."""
        groups: dict[str, dict[frozenset[str], list[int]]] = {}
        for place, one in enumerate(self.sources):
            groups.setdefault(one.phase, {}).setdefault(one.operators, []).append(place)
        return groups

    def _admitted(self, sources: Iterable[RuleSource]) -> list[Rule]:
        listed = list(sources)
        fresh = [one for one in listed if not one.is_settled]
        if left_out := [one.name for one in fresh if not one.is_admitted]:
            self._report(left_out, len(self.sources))
        return [one.rule for one in listed if one.is_admitted]

    @cached_property
    def _all(self) -> tuple[Rule, ...]:
        with without_collector():  # a fifth of the time is saved: hardly anything that is made here is freed
            return tuple(self._admitted(self.sources))

    def __bool__(self) -> bool:
        return bool(self.sources)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._all)

    @overload
    def __getitem__(self, place: int) -> Rule: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Rule, ...]: ...

    def __getitem__(self, place: int | slice) -> Rule | tuple[Rule, ...]:
        return self._all[place]


class RulesByName(Mapping[str, Rule]):
    """Rules by name, admitted or not, each read when it is first asked for."""

    def __init__(self, sources: Iterable[RuleSource]) -> None:
        self._sources = {one.name: one for one in sources}

    def __getitem__(self, name: str) -> Rule:
        return self._sources[name].rule

    def __iter__(self) -> Iterator[str]:
        return iter(self._sources)

    def __len__(self) -> int:
        return len(self._sources)
