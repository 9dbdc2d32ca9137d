"""Operators that are written as comprehensions: the statements of their text among those of a group."""

from __future__ import annotations

from dataclasses import replace

from eqsat.errors import EqsatError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.expression import Expr, UnsupportedError, number
from eqsat.runtime.kernels.nests.comprehensions import lowered
from eqsat.runtime.kernels.nests.computation import Computation, ElementRead, rebuilt
from eqsat.runtime.kernels.nests.extents import fixed
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements

#: Types that are computed with as float32, which their elements are converted to where they are read.
_NARROW = (DType.FLOAT16, DType.BFLOAT16)


def equations(body: GroupStatements, node: Node) -> None:
    """Add the statements of a comprehension at the shapes of a node; its scalars are numbers by then."""
    function = function_of(node.op)
    assert function is not None
    given = dict(zip((*function.operands, *function.scope.updated), node.inputs, strict=False))
    made = _computation(function, body, node, {name: value for name, value in given.items() if value is not None})
    parameters = [one.name for one in function.scope.function.parameters]
    places: dict[str, str] = {}
    scalars: dict[str, Expr] = {}
    for name, buffer in zip(parameters, made.operands, strict=True):
        if name in function.needs:
            scalars[buffer] = number(int(node.attrs[name]), function.types[name])
        else:
            places[buffer] = body.in_memory(str(given[name]))
    for name, buffer, output in zip(function.results, made.results, node.outputs, strict=True):
        places[buffer] = body.landing(output).buffer
        before = given.get(name)
        if before is not None:
            body.fill(places[buffer], lambda at, _, before=before: body.value(before, at))  # type: ignore[misc]
    for buffer, known in made.buffers.items():
        if known.role == "temporary":
            places[buffer] = body.temporary(known.dtype, tuple(map(fixed, known.shape)))

    def change(one: Expr) -> Expr | None:
        if not isinstance(one, ElementRead):
            return None
        if one.buffer in scalars:
            return scalars[one.buffer]
        subscripts = [moved(part) if isinstance(part, Expr) else part for part in one.subscripts]
        return ElementRead.of(places[one.buffer], one.dtype, subscripts, one.checked)

    def moved(value: Expr) -> Expr:
        return rebuilt(value, change)

    body.statements += [replace(one, target=places[one.target], value=moved(one.value)) for one in made.statements]


def _computation(function: TensorFunction, body: GroupStatements, node: Node, given: dict[str, str]) -> Computation:
    """The computation of a function at the shapes of what a node is given; UnsupportedError for other element types."""
    values = zip((*given, *function.results), (*given.values(), *node.outputs), strict=True)
    if not all(_holds(body.group.types[value].dtype, function.types[name]) for name, value in values):
        raise UnsupportedError(f"{node.op} of other element types than its text states")
    shapes = {name: body.shape(given[name]) for name in function.operands} | dict.fromkeys(function.needs, ())
    try:
        inferred = function.inferred(shapes, {name: int(node.attrs[name]) for name in function.needs})
    except EqsatError as error:
        raise UnsupportedError(f"{node.op}: {error.what}") from None
    return lowered(function, inferred, frozenset(name for name in function.scope.updated if name in given))


def _holds(given: DType, stated: DType) -> bool:
    """Return whether elements of a type are computed with as a function states it."""
    return given is stated or (stated is DType.FLOAT32 and given in _NARROW)
