"""Functions of which one makes an operand of the other, as one: a kernel of its own, chosen where it is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from eqsat.errors import ComprehensionError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.operators import function_of, operator_of
from eqsat.language.comprehension.graphs.renaming import Renaming, operand_conditions
from eqsat.language.comprehension.graphs.standard import function_of_node
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Expression,
    Function,
    IndexEquation,
    Name,
    Number,
    expressions_of,
    walk,
)
from eqsat.language.terms import Dim, Graph, Node, Sym

#: The most statements of a function that others are put into, and the most such functions of one graph.
_STATEMENTS, _FUNCTIONS = 32, 16


@dataclass(frozen=True)
class FunctionPiece:
    """A function, and the term of operators that it computes, given those of its operands and a mark before scalars.

    `declared` says that some operator of the term is a comprehension of a user's, `exact` that the term takes what the
    function does, and no operands of other shapes.
    """

    function: TensorFunction
    term: Callable[[Sequence[str], str], str]
    declared: bool = True
    exact: bool = True


def composed(
    outer: TensorFunction, place: int, inner: TensorFunction, *, strict: bool = False
) -> TensorFunction | None:
    """Two functions as one, where the inner one makes the operand of the outer at a place; None where none says it.

    Sizes of that operand that others share have to have a name where it is `strict`.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> c = comprehension('''def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }
    ...                      def total(float(M) v) -> (s) { s +=! v(j) }''')
    >>> print(composed(c.total, 0, c.twice))
    def twice_total(float(a_N) a_x) -> (b_s) {
      a_y(a_i) = 2 * a_x(a_i)
      b_s +=! a_y(b_j)
    }
    """
    names = (inner.scope, outer.scope)
    if any(len(one.results) != 1 or one.scope.updated for one in (outer, inner)):
        return None
    if sum(len(scope.statements) for scope in names) > _STATEMENTS:
        return None
    operand, (made,) = outer.operands[place], inner.results
    if outer.types[operand] is not inner.types[made] or outer.scope.ranks[operand] != inner.scope.ranks[made]:
        return None
    sizes = _sizes(outer, operand, inner, strict)
    if sizes is None:
        return None
    within = Renaming(inner, "a_", {}, {})
    around = Renaming(outer, "b_", sizes, {operand: within.tensor(made)})
    parameters = [
        one
        for parameter in outer.scope.function.parameters
        for one in (within.parameters() if parameter.name == operand else around.parameters([parameter.name]))
    ]
    results = outer.scope.function.results
    function = Function(
        f"{inner.name}_{outer.name}",
        tuple(parameters),
        tuple(around.result(one) for one in results),
        (*within.statements(), *around.statements()),
    )
    text = print_function(function)
    try:
        whole = TensorFunction(resolve(function, text))
    except ComprehensionError:
        return None  # ranges that do not follow where one has no name
    # What the inner one makes is a temporary, whose type is that of its value.
    is_stated = inner.scope.function.results[0].extents is not None
    if is_stated or whole.types[within.tensor(made)] is not inner.types[made]:
        return None
    return whole if all(whole.types[around.tensor(one)] is outer.types[one] for one in outer.results) else None


def _sizes(outer: TensorFunction, operand: str, inner: TensorFunction, strict: bool) -> Mapping[str, Expression] | None:
    """The sizes of an operand by the function that makes it; None where one is computed with that has no name."""
    (made,) = inner.results
    symbolic = inner.symbolic
    rank = inner.scope.ranks[made]
    dims: Sequence[Dim | None] = [None] * rank if symbolic is None else symbolic.shapes[made]
    known: dict[str, Expression] = {}
    for extent, dim in zip(outer.scope.parameters[operand].extents, dims, strict=True):
        if isinstance(dim, int):
            if isinstance(extent, int) and extent != dim:
                return None
            shown: Expression | None = Number(dim)
        else:
            shown = next((Name(f"a_{size}") for size in inner.scope.sizes if dim == Sym.named(size)), None)
        if isinstance(extent, int):
            continue
        if known.setdefault(extent, shown or Name(f"b_{extent}")) != (shown or known[extent]):
            return None
        others = [one for one in outer.scope.function.parameters if one.name != operand]
        used = any(Name(extent) in walk(part) for one in outer.scope.function.statements for part in _expressions(one))
        stated = any(extent in (one.extents or ()) for one in outer.scope.function.results)
        shared = any(extent in one.extents for one in others)
        if shown is None and ((strict and shared) or ((used or stated) and not shared)):
            return None
    return known


def _expressions(one: IndexEquation) -> Iterator[Expression]:
    yield one.value
    for clause in one.clauses:
        yield from expressions_of(clause)


def _together(outer: FunctionPiece, place: int, inner: FunctionPiece) -> FunctionPiece | None:
    """Two pieces as one; None where no function says it."""
    whole = composed(outer.function, place, inner.function, strict=not outer.exact)
    if whole is None:
        return None
    count = len(inner.function.operands)

    def term(operands: Sequence[str], mark: str) -> str:
        made = inner.term(operands[place : place + count], f"{mark}a_")
        return outer.term([*operands[:place], made, *operands[place + count :]], f"{mark}b_")

    return FunctionPiece(whole, term, outer.declared or inner.declared, outer.exact and inner.exact)


def _law(piece: FunctionPiece, name: str) -> str:
    """The law of the operator of a piece: the term that it computes is the operator."""
    function = piece.function
    variables = [f"x{number}" for number in range(len(function.operands))]
    right = f"{name}({', '.join([*variables, *(f'{one}={one}' for one in function.needs)])})"
    conditions = [] if piece.exact else operand_conditions(function, variables)
    return f"{piece.term(variables, '')} => {right}" + (f" if {', '.join(conditions)}" if conditions else "")


def declare_compositions(graph: Graph) -> tuple[str, ...]:
    """The operators of functions that a graph could call in place of several, declared with the laws that say so.

    A function, or an operator that is as simple, is put into the one that alone reads what it makes, and so are those
    before it, where one of them at least is a function.
    """
    declared: dict[str, None] = {}
    for node in graph.nodes:
        for piece in _compositions(graph, node):
            if len(declared) == _FUNCTIONS:
                return tuple(declared)
            declared[operator_of(piece.function, partial(_law, piece)).name] = None
    return tuple(declared)


def _piece_of(graph: Graph, node: Node) -> FunctionPiece | None:
    """A node as a piece: of a function, or of an operator that is written as one."""
    function = function_of(node.op)
    if function is not None:
        return _declared_piece(function, node.op)
    if len(node.outputs) != 1 or any(value is None for value in node.inputs):
        return None
    types = [graph.type(value) for value in node.inputs if value is not None]
    written = function_of_node(node, types, graph.type(node.outputs[0]))
    if written is None:
        return None
    fields = [f"{name}={value!r}" for name, value in node.attrs.items()]
    return FunctionPiece(
        written, lambda operands, _: f"{node.op}({', '.join([*operands, *fields])})", declared=False, exact=False
    )


def _declared_piece(function: TensorFunction, name: str) -> FunctionPiece:
    def term(operands: Sequence[str], mark: str) -> str:
        return f"{name}({', '.join([*operands, *(f'{one}={mark}{one}' for one in function.needs)])})"

    return FunctionPiece(function, term)


def _compositions(graph: Graph, node: Node) -> Iterator[FunctionPiece]:
    """The pieces that a node may be put together with the ones before it, each with one more of them."""
    piece = _piece_of(graph, node)
    inputs, place, kept = list(node.inputs), 0, {*graph.outputs.values()}
    while piece is not None and place < len(inputs):
        value = inputs[place]
        producer = graph.producers.get(value or "")
        alone = value is not None and value not in kept and inputs.count(value) == 1
        alone = alone and len(graph.consumers.get(value or "", ())) == 1
        inner = _piece_of(graph, producer) if producer is not None and alone else None
        made = None if inner is None else _together(piece, place, inner)
        if made is None or producer is None:
            place += 1
            continue
        piece, inputs[place : place + 1] = made, list(producer.inputs)
        if piece.declared:
            yield piece
            # What is declared stands for its term in the law of what it goes into.
            piece = _declared_piece(piece.function, operator_of(piece.function).name)
