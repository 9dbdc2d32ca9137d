"""Spelling of expressions that C and CUDA C++ write differently."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from eqsat.language.terms import DType
from eqsat.runtime.kernels.expressions.expression import C_TYPES, STORED, narrowing

#: Functions that are templates in C++ and have the type in their names in C.
_TYPED = re.compile(r"\b(truncated|narrow)<(\w+)>\(")


class Dialect(Protocol):
    """A language that expressions are printed in."""

    def template(self, template: str, dtype: DType) -> str:
        """The template of an expression of an element type, as the language spells it."""
        ...

    def narrowed(self, dtype: DType, text: str, *, is_held: bool = False) -> str:
        """A float32 as an element of fewer bits; one that `is_held` so stays finite."""
        ...

    def scoped(self, constants: Sequence[str], text: str) -> str:
        """An expression after definitions that end with it."""
        ...


class GnuC:
    """C, with the extensions of GNU."""

    def template(self, template: str, dtype: DType) -> str:
        """The template with element types in the names of functions; of two short integers C chooses an int."""
        spelled = _TYPED.sub(r"\1_\2(", template)
        is_widened = "?" in template and dtype.numpy.kind in "iu" and dtype.numpy.itemsize < 4
        return f"(({C_TYPES[dtype]}){spelled})" if is_widened else spelled

    def narrowed(self, dtype: DType, text: str, *, is_held: bool = False) -> str:
        """A call of the function for the type; programs of C hold values in the bits that are stated."""
        return f"narrow_{STORED[dtype]}({text})"

    def scoped(self, constants: Sequence[str], text: str) -> str:
        """A block that has a value."""
        return f"({{ {' '.join(constants)} {text}; }})"


class CudaCpp:
    """CUDA C++, whose templates are those of expressions."""

    def template(self, template: str, dtype: DType) -> str:
        """The template as it is."""
        return template

    def narrowed(self, dtype: DType, text: str, *, is_held: bool = False) -> str:
        """A call of the template for the type."""
        return narrowing(dtype, text, is_held=is_held)

    def scoped(self, constants: Sequence[str], text: str) -> str:
        """A call of a function without a name: NVRTC has no blocks with a value."""
        return f"[&] {{ {' '.join(constants)} return {text}; }}()"
