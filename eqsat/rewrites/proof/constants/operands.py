"""Operands of unknown size and elements, and what is asked of these."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NoReturn

from eqsat.language.parametric.integers import NotParametric
from eqsat.language.terms import TensorType
from eqsat.rewrites.proof.attributes import chosen
from eqsat.rewrites.proof.constants.patterns import ConstantPattern


class ElementsAsked(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a condition that asks for elements, which have no numbers here."""


@dataclass(eq=False)
class ParametricOperand:
    """An operand of unknown size and elements; what is asked of those raises ElementsAsked."""

    name: str
    type: TensorType
    uniform: Any = None
    is_identity: bool = False
    #: True if the one number is what elements are as nearly as they hold it.
    is_rounded: bool = False
    is_matched: bool = False
    #: The number that all are, of integers.
    everywhere: Any = None
    #: Of integers, whether they are calculated with, and within what limits they are, where that is known.
    is_number: bool = False
    limits: tuple[int, int] | None = None
    #: True if a condition says that none is an infinity or NaN.
    is_finite: bool = False
    #: What conditions say of each element by its place.
    pattern: ConstantPattern | None = None

    def __eq__(self, other: object) -> bool:
        raise NotParametric("whether operands are the same")

    __hash__ = object.__hash__

    def _asked(self) -> NoReturn:
        raise ElementsAsked(self.name)

    def _either(self, name: str) -> bool:
        """Not known; where the right side's attributes ask, there is a path for either answer."""
        if not self.is_matched:
            self._asked()
        return bool(chosen([True, False], f"{self.name} {name}"))

    @property
    def constant(self) -> bool:
        """Not known."""
        self._asked()

    @property
    def number(self) -> Any:
        """The one number that all elements are, where a condition says that they are one; else not known."""
        if self.uniform is None or self.is_rounded:
            self._asked()
        return self.uniform

    @property
    def value(self) -> Any:
        """Not known."""
        self._asked()

    @property
    def elements(self) -> Any:
        """Not known."""
        self._asked()

    @property
    def finite(self) -> bool:
        """Not known."""
        return self._either("finite")

    @property
    def attends(self) -> bool:
        """Not known."""
        return self._either("attends")

    @property
    def diagonal(self) -> float | None:
        """Not known."""
        self._asked()
