"""Why two forms are equal: the chain of rules between them, with the terms in between and the steps that each rests
on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eqsat.egraph.explain import CONGRUENCE, Explainer, ProofStep
from eqsat.egraph.notation import Notation
from eqsat.report.units import count
from eqsat.system.markup import html_block


@dataclass(frozen=True, slots=True)
class Link:
    """One step of a chain: the rule, the terms before and after, and whether it was used right to left.

    `because` are equal terms that the step rests on, each pair with its own chain further on.
    """

    rule: str
    before: str
    after: str
    backwards: bool = False
    because: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        rule = "equal operands" if self.rule == CONGRUENCE else self.rule
        way = ", right to left" if self.backwards and self.rule != CONGRUENCE else ""
        lines = [f"{self.before}", f"  = {self.after}", f"    by {rule}{way}"]
        return "\n".join(lines)


@dataclass(frozen=True)
class Chain:
    """A chain of rules from one form to another; iterates over its links.

    `behind` are the chains that its steps rest on, by the terms that they show equal, each once, in the order of need;
    `gaps` counts pairs of equal terms of which the record has no chain.
    """

    source: str
    target: str
    links: tuple[Link, ...]
    behind: tuple[tuple[str, str, tuple[Link, ...]], ...] = ()
    gaps: int = 0
    rules: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Link]:
        return iter(self.links)

    def __len__(self) -> int:
        return len(self.links)

    def __str__(self) -> str:
        if not self.links:
            known = "no chain is recorded" if self.gaps else "they are one form"
            return f"{self.source} and {self.target}: {known}"
        lines = [f"{self.source} = {self.target} in {count(len(self.links), 'step')}"]
        lines += [line for number, link in enumerate(self.links, 1) for line in _numbered(number, link)]
        for source, target, links in self.behind:
            lines += ["", f"where {source} = {target}"]
            lines += [line for number, link in enumerate(links, 1) for line in _numbered(number, link)]
        if self.gaps:
            lines.append(f"{count(self.gaps, 'pair')} of equal terms without a chain: a gap")
        return "\n".join(lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return html_block(str(self))


def chain(explainer: Explainer, notation: Notation, source: int, target: int) -> Chain:
    """The chain from one e-node to another of its class."""
    derivation = explainer.derive([(source, target)])
    first = derivation.chains.get((source, target))
    behind = tuple(
        (notation.enode(a), notation.enode(b), tuple(_links(notation, steps)))
        for (a, b), steps in derivation.chains.items()
        if (a, b) != (source, target) and steps and not _is_obvious(steps)
    )
    return Chain(
        notation.enode(source),
        notation.enode(target),
        tuple(_links(notation, first or ())),
        behind,
        derivation.gaps,
        derivation.rules,
    )


def _links(notation: Notation, steps: tuple[ProofStep, ...]) -> Iterator[Link]:
    for step in steps:
        before = notation.enode(step.source) if step.before is None else notation.term(step.before.term)
        after = notation.enode(step.target) if step.after is None else notation.term(step.after.term)
        pairs = ((notation.enode(a), notation.enode(b)) for a, b in step.equalities)
        yield Link(step.rule, before, after, step.backwards, tuple((a, b) for a, b in pairs if a != b))


def _is_obvious(steps: tuple[ProofStep, ...]) -> bool:
    """True if a chain says no more than that operands are equal."""
    return all(step.rule == CONGRUENCE for step in steps)


def _numbered(number: int, link: Link) -> Iterator[str]:
    first, *rest = str(link).splitlines()
    yield f"  {number}. {first}"
    yield from (f"     {line}" for line in rest)
