"""Terms of the generator: inputs, operators applied to terms, and their text in the syntax of rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, TypeAlias

from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, TensorType

#: Names of variables in the order in which an equation meets them.
NAMES = ("x", "y", "z", "w", "u", "v", "s", "t", "p", "q", "r")


@dataclass(frozen=True, slots=True)
class Label:
    """An operator with its attributes, defaults filled in."""

    op: str
    attrs: Attrs

    def __hash__(self) -> int:
        return hash(self.attrs) ^ hash(self.op)

    def text(self, operands: Sequence[str]) -> str:
        """The application in the syntax of rules; attributes that have their default are left out."""
        defaults = spec(self.op).attrs
        fields = [f"{k}={v!r}" for k, v in self.attrs.items() if not _same(v, defaults[k])]
        return f"{self.op}({', '.join([*operands, *fields])})"


def _same(value: Any, default: Any) -> bool:
    return type(value) is type(default) and bool(value == default)


@cache
def _label_text(label: Label) -> str:
    return label.text(())


@dataclass(frozen=True)
class Apply:
    """One output of an operator applied to terms; `part` counts the outputs."""

    label: Label
    operands: tuple[Term, ...]
    type: TensorType
    part: int = 0
    parts: int = 1

    @cached_property
    def application(self) -> tuple[Label, tuple[Term, ...]]:
        """The application, whichever of its outputs is meant."""
        return self.label, self.operands

    @cached_property
    def shape(self) -> int:
        """A hash of the term with all variables alike."""
        return hash((self.label, self.part, *(o.shape if isinstance(o, Apply) else 0 for o in self.operands)))

    @cached_property
    def variables(self) -> frozenset[InputVariable]:
        """The variables that occur."""
        return frozenset(self.leaves)

    @cached_property
    def applications(self) -> frozenset[tuple[Label, tuple[Term, ...]]]:
        """The applications, constants aside."""
        inner = [o.applications for o in self.operands if isinstance(o, Apply)]
        return frozenset({self.application} if self.operands else ()).union(*inner)

    @cached_property
    def length(self) -> int:
        """The number of operators and inputs that the text names."""
        return 1 + sum(o.length if isinstance(o, Apply) else 1 for o in self.operands)

    @cached_property
    def skeleton(self) -> str:
        """The term's text with all variables alike."""
        inner = ", ".join(o.skeleton if isinstance(o, Apply) else "_" for o in self.operands)
        return f"{_label_text(self.label)}.{self.part}({inner})"

    @cached_property
    def leaves(self) -> tuple[InputVariable, ...]:
        """The variables in the order of the text, once for each place they stand at."""
        return tuple(v for o in self.operands for v in (o.leaves if isinstance(o, Apply) else (o,)))

    @cached_property
    def _hash(self) -> int:
        return hash((self.label, self.operands, self.part))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, Apply) or self._hash != other._hash:
            return False
        return (self.part, self.label, self.operands) == (other.part, other.label, other.operands)


@dataclass(frozen=True, slots=True)
class InputVariable:
    """An input that stands for any tensor of a type."""

    index: int
    type: TensorType

    def __hash__(self) -> int:
        return self.index


Term: TypeAlias = "InputVariable | Apply"


def subterms(term: Term) -> Iterator[Term]:
    """The term and all terms in it, operands first, once for each place they stand at."""
    if isinstance(term, Apply):
        for operand in term.operands:
            yield from subterms(operand)
    yield term


def variables(*terms: Term) -> list[InputVariable]:
    """The variables in the order in which the text meets them, each once."""
    return list(dict.fromkeys(v for t in terms for v in (t.leaves if isinstance(t, Apply) else (t,))))


def size(*terms: Term) -> int:
    """The number of distinct operators that the terms apply; constants are inputs and count nothing."""
    return len(frozenset[Any]().union(*(t.applications for t in terms if isinstance(t, Apply))))


def text(term: Term, names: Mapping[InputVariable, str]) -> str:
    """The term in the syntax of rules; a part of a split is written as a slice."""
    if isinstance(term, InputVariable):
        return names[term]
    operands = [text(o, names) for o in term.operands]
    if term.parts == 1:
        return term.label.text(operands)
    axis, start = term.label.attrs["axis"], sum(term.label.attrs["sizes"][: term.part])
    end = start + term.label.attrs["sizes"][term.part]
    return f"slice({operands[0]}, starts=({start},), ends=({end},), axes=({axis},))"


def whole(term: Apply, names: Mapping[InputVariable, str]) -> str:
    """The application that a term is an output of, in the syntax of rules."""
    return term.label.text([text(o, names) for o in term.operands])
