"""Cases of ranks: operands of products that are vectors, or have at least two axes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eqsat.language.ops import spec
from eqsat.rewrites.proof.removal.frames import PRODUCTS, Frames
from eqsat.rewrites.proof.removal.statements import RankStatements
from eqsat.rewrites.rules.rule import Rule, applications

#: The axes from which on one more tells a product nothing.
_MATRIX = 2
#: The most operands whose ranks are told apart.
_MOST = 4


@dataclass(frozen=True, slots=True)
class RankCase:
    """Some instances of a rule: operands that have just so many axes, and others that have at least two."""

    exact: Mapping[str, int] = field(default_factory=dict)
    matrices: frozenset[str] = frozenset()

    @property
    def statements(self) -> set[tuple[str, str]]:
        """Pairs of a number of axes and an operand that has no fewer, as frames note them."""
        least = {**dict(self.exact), **dict.fromkeys(self.matrices, _MATRIX)}
        return {(f"#{count}", name) for name, most in least.items() for count in range(1, most + 1)}


def rank_cases(rule: Rule, ranks: Mapping[str, int], names: frozenset[str]) -> Iterator[RankCase]:
    """Cases that are all instances of a rule together: one, where none of its products may be of a vector.

    `ranks` are the most axes that some of the `names` may have. Members of sequences are told apart where all have as
    many axes.
    """
    if not any(_takes_ends(app.op) for root in rule.roots for app in applications(root)):
        yield RankCase()
        return
    frames = Frames()
    said = RankStatements(rule, frames)
    alike = {name for name, least in said.uniform.items() if least == 0} | said.joined
    told = [name for name in sorted(names) if name not in rule.tensor_groups or name in alike]
    options = {name: list(_options(name, frames, ranks.get(name))) for name in told}
    several = {name: found for name, found in options.items() if len(found) > 1}
    if len(several) > _MOST:
        several = {}
    for chosen in itertools.product(*several.values()):
        case = dict(zip(several, chosen, strict=True))
        yield RankCase(
            {name: count for name, count in case.items() if count is not None},
            frozenset(name for name, count in case.items() if count is None),
        )


def _takes_ends(op: str) -> bool:
    """True of an operator that takes some last axes, and any number before these."""
    form = spec(op).form
    terms = () if form is None else form.terms
    return op in PRODUCTS or any(term.broadcasts and term.fixed and not term.attribute for term in terms)


def _options(name: str, frames: Frames, most: int | None) -> Iterator[int | None]:
    """The numbers of axes that an operand may have; None for any number from two on."""
    least = max((count for count in range(1, _MATRIX + 1) if frames.is_below(f"#{count}", name)), default=0)
    if most is None:
        yield from range(least, _MATRIX)
        yield None
    else:
        least = max((count for count in range(1, most + 1) if frames.is_below(f"#{count}", name)), default=0)
        yield from range(least, most + 1)
