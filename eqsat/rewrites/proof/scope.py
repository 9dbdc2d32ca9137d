"""The instances that a proof for every size is of."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from eqsat.language.terms import Attrs, Bindings
from eqsat.rewrites.proof.attributes import AXES_BEFORE_SPACE, MEMBERS
from eqsat.rewrites.proof.ranks import open_lengths
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import distinct, left_terms, output_types


@dataclass(frozen=True)
class SizesProof:
    """A proof for every size, of at least 1, of operands and results up to a rank; -1 where there is none.

    `every_rank` says that no higher rank is left, or that axes beyond those are like them, `any_length` that sequences
    are of any length. `matches` counts the paths on which the left side matches, `open` is why the proof ends at that
    rank, `failing` says that this is a path on which the sides could not be shown to be equal, and `instance`, without
    elements, is one of that path.
    """

    rank: int
    matches: int
    every_rank: bool = False
    any_length: bool = False
    open: str = ""
    instance: Bindings | None = None
    failing: bool = False

    @property
    def is_proved(self) -> bool:
        """True if the rule holds for every size at some ranks."""
        return self.rank >= 0

    def covers(self, rule: Rule, bindings: Bindings) -> bool:
        """True if an instance is one that the proof is of: by ranks and sizes, lengths of shapes, and of sequences."""
        groups = [thing if isinstance(thing, tuple) else (thing,) for thing in bindings.tensors.values()]
        members = math.inf if self.any_length else MEMBERS
        rank = math.inf if self.every_rank else self.rank
        most = {"shape": rank, "sizes": members, "kernel": rank - AXES_BEFORE_SPACE}
        return (
            self.is_proved
            and all(
                len(group) <= members and (self.every_rank or one.type.rank <= self.rank)
                for group in groups
                for one in group
            )
            and all(min(one.static, default=1) > 0 for one in output_types(distinct(left_terms(rule, bindings))))
            and all(
                name in bindings.attrs and _length(bindings.attrs[name], of) <= most[of]
                for name, of in open_lengths(rule)
            )
        )


def _length(attribute: Any, of: str) -> int:
    """The length of an attribute, or of the part of a record that is meant."""
    return len(attribute[of] if isinstance(attribute, Attrs) else attribute)
