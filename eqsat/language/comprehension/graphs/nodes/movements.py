"""Operators that move elements, as functions: what their references make of arrays of unknown sizes.

The reference is what an operator is defined by. It runs on arrays that say of each element where it is read, so that no
second text says what a movement is.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.nodes.attributes import SizedNode, formulas_at, sized
from eqsat.language.comprehension.graphs.nodes.cases import CasePath, by_cases, extent_of
from eqsat.language.comprehension.graphs.nodes.stated import StatedNode, function_of_text, one_float
from eqsat.language.comprehension.meaning.element_types import NAME_OF
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Expression,
    Function,
    IndexEquation,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    walk,
)
from eqsat.language.declaration.registry import OPS
from eqsat.language.parametric import functions as _functions  # noqa: F401  (importing them registers them)
from eqsat.language.parametric.arrays import IndexedArray, variable
from eqsat.language.parametric.facts import Fact, substituted
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.terms import Dim, DType, Node, TensorType, evaluate
from eqsat.language.terms.dims import Sym

#: The most parts of the expression that a movement is.
_PARTS = 80
#: The errors of references that ask arrays of unknown sizes for what is no movement.
_ASKS_MORE = (NotParametric, GraphError, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class NumberNamespace:
    """The arithmetic that movements need: numbers to fill with."""

    def number(self, value: Any, like: Any) -> IndexedArray:
        """A number beside elements."""
        return IndexedArray((), lambda _: Number(float(value)))


def movement(node: Node, operands: Sequence[TensorType], result: TensorType) -> StatedNode | None:
    """A node that moves elements of one type of floats as a function; None where its reference asks for more than
    sizes, or a number of its attributes follows from none.

    >>> x, y = TensorType.of("float32", (4, 6)), TensorType.of("float32", (4, 12))
    >>> print(movement(Node("concat", ("a", "b"), ("c",), {"axis": 1}), [x, x], y).function)
    def concat(float(D0, E0_1) x0, float(D0, E1_1) x1) -> (y) {
      y(i0, i1) = E0_1 > i1 ? x0(i0, i1) : x1(i0, i1 - E0_1) where i0 in 0:D0, i1 in 0:E0_1 + E1_1
    }
    """
    spec = OPS[node.op]
    dtype = one_float([*operands, result])
    dims = [dim for one in (*operands, result) for dim in one.dims]
    moves = (spec.movement or spec.view) and not (spec.indexed or spec.random)
    if not moves or dtype is None or not result.rank or not operands or any(dim == 0 for dim in dims):
        return None
    found = sized(node, operands, result)
    if found is None:
        return None
    try:
        return _traced(node, found, dtype, result)
    except _ASKS_MORE:
        return None


def _traced(node: Node, found: SizedNode, dtype: DType, result: TensorType) -> StatedNode | None:
    spec = OPS[node.op]
    indices = [f"i{axis}" for axis in range(result.rank)]
    shapes = [tuple(substituted(dim, found.by_parts) for dim in shape) for shape in found.shapes]
    attrs = formulas_at(found.attrs, lambda dim: integer(substituted(dim, found.by_parts)))
    made_shape: list[Dim] = []

    def run(path: CasePath) -> Expression:
        arrays = [
            variable(tuple(map(integer, shape)), partial(_read, found, f"x{number}"))
            for number, shape in enumerate(shapes)
        ]
        made = spec.reference(NumberNamespace(), *arrays, **attrs)
        if not isinstance(made, IndexedArray) or made.ndim != result.rank:
            raise NotParametric("several results")
        made_shape[:] = [formula_of(dim) for dim in made.shape]
        at = tuple(integer(path.unknown(index, 0, dim)) for index, dim in zip(indices, made_shape, strict=True))
        element = made.at(at)
        if not isinstance(element, Applied | Number):
            raise NotParametric("elements that are computed")
        return element

    value, required = by_cases(run, found.numbers, dict.fromkeys(_names(shapes), 1))
    if sum(1 for _ in walk(value)) > _PARTS:
        return None
    known = found.numbers
    for dim, stated in zip(made_shape, result.dims, strict=True):
        if isinstance(stated, int) and _names([(dim,)]) <= {*known} and evaluate(dim, known) != stated:
            return None
    whole = found.whole
    ranges = [
        RangeClause(index, Number(0), extent_of(substituted(dim, whole)))
        for index, dim in zip(indices, made_shape, strict=True)
    ]
    statement = IndexEquation("y", tuple(map(Name, indices)), "", False, value, tuple(ranges))
    parameters = tuple(
        Parameter(NAME_OF[dtype], f"x{number}", tuple(dim if isinstance(dim, int) else str(dim) for dim in shape))
        for number, shape in enumerate(found.shapes)
    )
    function: TensorFunction = function_of_text(
        print_function(Function(node.op, parameters, (Returned("y"),), (statement,)))
    )
    conditions = [Fact(substituted(one.formula, whole), one.is_zero, one.held) for one in required]
    return StatedNode(
        function, formulas_at(found.attrs, lambda dim: substituted(dim, whole)), (*found.conditions, *conditions)
    )


def _read(found: SizedNode, name: str, indices: Sequence[Dim]) -> Expression:
    return Applied(name, tuple(extent_of(substituted(index, found.whole)) for index in indices))


def _names(shapes: Sequence[Sequence[Dim]]) -> set[str]:
    return {name for shape in shapes for dim in shape if isinstance(dim, Sym) for name in dim.names()}
