"""The laws of a function that say what it is in terms of the operators that ship."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from eqsat.language.comprehension.definitions.definition import definition_of
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.products import ProductSum


def definition_laws(name: str, function: TensorFunction, whole: ProductSum | None) -> Iterator[str]:
    """The laws that define the operator of a function: that of its `whole` sum of products, where it is one.

    Where the function does with NaN what no operator does, the first law does so too, and one for finite operands does
    without. There are laws for each number of tensors that are passed to be updated.
    """
    scalars = [f"{scalar}=n{place}" for place, scalar in enumerate(function.needs)]
    for passed in range(len(function.scope.updated) + 1):
        names = (*function.operands, *function.scope.updated[:passed])
        variables = [f"x{place}" for place in range(len(names))]
        left = f"{name}({', '.join([*variables, *scalars])})"
        if whole is not None:
            yield f"{left} => {replace(whole, tensors=tuple(variables)).einsum}"
            return
        exact, finite = (definition_of(function, exact=one, passed=passed) for one in (True, False))
        if exact.text:
            yield _law(left, exact.text, exact.conditions)
        if finite.text and finite.text != exact.text:
            floats = [x for x, one in zip(variables, names, strict=True) if function.types[one].is_float]
            yield _law(left, finite.text, (*finite.conditions, f"finite({', '.join(floats)})"))


def _law(left: str, right: str, conditions: Sequence[str]) -> str:
    return f"{left} => {right}" + (f" if {', '.join(conditions)}" if conditions else "")
