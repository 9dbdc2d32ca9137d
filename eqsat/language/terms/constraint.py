"""Conditions on the sizes of named dims."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from eqsat.language.terms.dims import Dim, Sym, evaluate
from eqsat.language.terms.types import Shape

#: "equal": a = b; "at_least": a >= b; "extends": a = b or a = 1, as an operand that is repeated to a result;
#: "joins": a = b, or one of them is 1; "grows": a = b or a <= 0, as what a cache lacks for so many new positions;
#: "present": a >= 0, and 1 or more where every tensor is to have elements.
Kind: TypeAlias = Literal["equal", "at_least", "extends", "grows", "joins", "present"]


@dataclass(frozen=True, slots=True)
class Constraint:
    """A condition on two dims, at least one of them named."""

    kind: Kind
    a: Dim
    b: Dim = 0

    @property
    def names(self) -> frozenset[str]:
        """The names that decide it."""
        return names_of((self.a, self.b))

    def holds(self, sizes: Mapping[str, int], *, elements: bool = False) -> bool:
        """True if the sizes meet it; with `elements` no tensor may be empty."""
        return bool(self.met(evaluate(self.a, sizes), evaluate(self.b, sizes), elements=elements))

    def met(self, a: Any, b: Any, *, elements: bool = False, equal: bool = False) -> Any:
        """True if numbers, or each of an array of numbers, meet it; `equal` asks that nothing is repeated."""
        match self.kind:
            case "equal":
                return a == b
            case "at_least":
                return a >= b
            case "present":
                return a >= int(elements)
            case "grows":
                return (a == b) | (a <= 0)
            case "extends":
                return (a == b) if equal else (a == b) | (a == 1)
        return (a == b) if equal else (a == b) | (a == 1) | (b == 1)


def names_of(dims: Iterable[Dim]) -> frozenset[str]:
    """Every name that dims depend on."""
    return frozenset().union(*(d.names() for d in dims if isinstance(d, Sym)))


def extends(operand: Shape, result: Shape) -> Iterator[Constraint]:
    """Conditions under which an operand is repeated to a result, aligned at the last axis."""
    for a, b in zip(reversed(operand), reversed(result), strict=False):
        if a not in (1, b):
            yield Constraint("extends", a, b)
