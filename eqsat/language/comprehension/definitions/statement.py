"""One statement of a function that is being defined, with what is known of its ranges."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from eqsat.language.comprehension.definitions.parts import AxedTerm, common_axes
from eqsat.language.comprehension.definitions.steps import stepped_count
from eqsat.language.comprehension.definitions.trials import SizeTrial, size_text
from eqsat.language.comprehension.extents.affine import Range
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.syntax import Name, Number
from eqsat.language.terms import DType, Sym


class NoDefinition(Exception):  # noqa: N818  (an answer, not an error)
    """A function that standard operators do not define, and the reason."""


@dataclass
class TermNames:
    """The names that a definition gives to its terms, in their order, and the conditions under which it holds."""

    given: dict[str, str] = field(default_factory=dict)
    conditions: dict[str, None] = field(default_factory=dict)

    def known(self, text: str) -> str | None:
        """The name that a term has; None where it has none."""
        return next((name for name, other in self.given.items() if other == text), None)

    def of(self, text: str) -> str:
        """The name of a term; a variable is its own."""
        if text.isidentifier():
            return text
        known = self.known(text)
        if known is None:
            known = f"v{len(self.given)}"
            self.given[known] = text
        return known


@dataclass(frozen=True)
class StatementContext:
    """A statement, the trials of its function, and the terms that tensors are so far.

    `sizes` are named sizes and integer scalars as expressions, `dtypes` element types as these.
    """

    scope: Scope
    types: ElementTypes
    number: int
    trials: Sequence[SizeTrial]
    symbolic: Inferred | None
    parts: Mapping[str, AxedTerm]
    names: TermNames
    sizes: Mapping[str, str]
    dtypes: Mapping[DType, str]

    @property
    def one(self) -> ResolvedEquation:
        """The statement with its names resolved."""
        return self.scope.statements[self.number]

    def held(self, tensor: str) -> AxedTerm:
        """The term that a tensor is."""
        return self.parts[tensor]

    def named(self, text: str) -> str:
        """A name for a term."""
        return self.names.of(text)

    def require(self, condition: str) -> None:
        """Let the definition hold where a condition does, an expression."""
        self.names.conditions[condition] = None

    def shared(self, part: AxedTerm) -> AxedTerm:
        """A part whose term has a name, for what says it several times."""
        return AxedTerm(self.named(part.text), part.axes)

    def laid(self, part: AxedTerm, axes: Sequence[str]) -> AxedTerm:
        """A part along axes of which it may lack some; they broadcast."""
        return part if part.fits(axes) else self.shared(part).laid_along(axes, self.counts)

    def together(self, pattern: str, parts: Sequence[AxedTerm], order: Sequence[str] = ()) -> AxedTerm:
        """An operator on parts that broadcast, whose terms the pattern takes; `order` is of other axes than indices."""
        axes = common_axes(parts, order or self.one.every_index)
        return AxedTerm(pattern.format(*(self.laid(part, axes).text for part in parts)), axes)

    def bare(self, part: AxedTerm) -> AxedTerm:
        """A part without axes of one element."""
        return part if part.axes == part.named else self.shared(part).reshaped(part.named, self.counts)

    @cached_property
    def counts(self) -> Mapping[str, str]:
        """The numbers of values of indices, as far as formulas state them."""
        found = {index: self.symbolic_range(index) for index in self.one.every_index}
        texts = {index: size_text(ends[1] - ends[0], self.sizes) for index, ends in found.items() if ends is not None}
        return {index: text for index, text in texts.items() if text is not None}

    def dtype(self, dtype: DType) -> str:
        """An element type, as an expression: that of an operand where there is one of it."""
        return self.dtypes.get(dtype, repr(dtype.value))

    def ranges(self, index: str) -> tuple[tuple[int, int], ...]:
        """The range of an index in each trial."""
        found = [trial.inferred.ranges[self.number][index] for trial in self.trials]
        return tuple((low, high) for low, high in found if isinstance(low, int) and isinstance(high, int))

    def trial_ranges(self, number: int) -> Mapping[str, Range]:
        """The ranges of one trial."""
        return self.trials[number].inferred.ranges[self.number]

    @property
    def plain_ranges(self) -> Collection[str]:
        """The indices of which `where` says no more than that they run from 0 to a number, a size or a scalar."""
        return [
            index
            for index, clause in self.one.ranges.items()
            if clause.low == Number(0) and isinstance(clause.high, Number | Name)
        ]

    def symbolic_range(self, index: str) -> Range | None:
        """The range of an index for all sizes; None where no formula states it."""
        return None if self.symbolic is None else self.symbolic.ranges[self.number][index]

    def text_of(self, numbers: Sequence[int], formula: Any) -> str:
        """A number that is known in each trial, and by a formula where that is not None, as an expression."""
        text = size_text(formula, self.sizes) if isinstance(formula, int | Sym) else None
        if text is not None:
            return text
        if len(set(numbers)) == 1:
            return str(numbers[0])
        known = [trial.inferred.known for trial in self.trials]
        for name, shown in self.sizes.items():
            if all(sizes.get(name) == number for sizes, number in zip(known, numbers, strict=True)):
                return shown
        raise NoDefinition("a size that is no polynomial in those of operands")

    def count_text(self, index: str) -> str:
        """The number of values of an index, as an expression."""
        found = self.symbolic_range(index)
        if found is None and index in self.one.ranges and index not in self.plain_ranges:
            raise NoDefinition("a range that integer scalars decide")
        held = stepped_count(self.scope, self.sizes, self.one, index) if found is None else None
        if held is not None:
            count, subscript = held
            self.require(f"{subscript.step} != 0")
            self.require(f"{count} > 0")
            return count
        counts = [high - low for low, high in self.ranges(index)]
        text = self.text_of(counts, None if found is None else found[1] - found[0])
        return f"({text})" if " " in text else text
