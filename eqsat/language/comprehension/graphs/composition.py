"""Functions of which one makes an operand of the other, as one: a kernel of its own, chosen where it is faster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.errors import EqsatError
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.operators import function_of, operator_of
from eqsat.language.comprehension.meaning.resolver import resolve
from eqsat.language.comprehension.text.printer import print_function
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Clause,
    ExistsClause,
    Expression,
    Function,
    IndexEquation,
    LetClause,
    Name,
    Number,
    Parameter,
    RangeClause,
    Returned,
    rebuilt,
    walk,
)
from eqsat.language.terms import Dim, Graph, Node, Sym

#: The most statements of a function that others are put into, and the most such functions of one graph.
_STATEMENTS, _FUNCTIONS = 32, 16


@dataclass(frozen=True)
class Composition:
    """A function on the operands of another, one of which a third one makes, and the law that says so."""

    function: TensorFunction
    law: Callable[[str], str]


def composed(outer: TensorFunction, place: int, inner: TensorFunction) -> Composition | None:
    """Two functions as one, where the inner one makes the operand of the outer at a place; None where none says it.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> c = comprehension('''def twice(float(N) x) -> (y) { y(i) = 2 * x(i) }
    ...                      def total(float(M) v) -> (s) { s +=! v(j) }''')
    >>> print(composed(c.total, 0, c.twice).function)
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
    sizes = _sizes(outer, operand, inner)
    if sizes is None:
        return None
    within = _Renaming(inner, "a_", {}, {})
    around = _Renaming(outer, "b_", sizes, {operand: within.tensor(made)})
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
    except EqsatError:
        return None
    return Composition(whole, _law(outer, place, inner, whole))


def _sizes(outer: TensorFunction, operand: str, inner: TensorFunction) -> Mapping[str, Expression] | None:
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
        if shown is None and (used or stated) and not any(extent in one.extents for one in others):
            return None
    return known


def _expressions(one: IndexEquation) -> Iterator[Expression]:
    yield one.value
    for clause in one.clauses:
        match clause:
            case RangeClause(low=low, high=high):
                yield from (low, high)
            case LetClause(value=value):
                yield value
            case ExistsClause(access=access):
                yield access


@dataclass(frozen=True)
class _Renaming:
    """A function under other names: each with a mark before it, but for those that are given."""

    function: TensorFunction
    mark: str
    sizes: Mapping[str, Expression]
    tensors: Mapping[str, str]

    def tensor(self, name: str) -> str:
        return self.tensors.get(name, self.mark + name)

    def extents(self, extents: tuple[str | int, ...] | None) -> tuple[str | int, ...]:
        return tuple(self._extent(one) for one in extents or ())

    def _extent(self, extent: str | int) -> str | int:
        if isinstance(extent, int):
            return extent
        match self.sizes.get(extent):
            case Name(name=name):
                return name
            case Number(value=int() as value):
                return value
        return self.mark + extent

    def parameters(self, names: Sequence[str] | None = None) -> Iterator[Parameter]:
        for one in self.function.scope.function.parameters:
            if names is None or one.name in names:
                yield replace(one, name=self.tensor(one.name), extents=self.extents(one.extents))

    def result(self, one: Returned) -> Returned:
        return replace(one, name=self.tensor(one.name), extents=one.extents and self.extents(one.extents))

    def statements(self) -> Iterator[IndexEquation]:
        for one in self.function.scope.function.statements:
            yield replace(
                one,
                target=self.tensor(one.target),
                subscripts=tuple(map(self.expression, one.subscripts)),
                value=self.expression(one.value),
                clauses=tuple(map(self.clause, one.clauses)),
            )

    def expression(self, expression: Expression) -> Expression:
        match expression:
            case Name(name=name):
                known = self.sizes.get(name) if name in self.function.scope.sizes else None
                return known if known is not None else Name(self.tensor(name))
            case Applied(name=name, arguments=arguments) if name in self.function.scope.ranks:
                return Applied(self.tensor(name), tuple(map(self.expression, arguments)))
        return rebuilt(expression, self.expression)

    def clause(self, clause: Clause) -> Clause:
        match clause:
            case RangeClause(index=index, low=low, high=high):
                return replace(clause, index=self.mark + index, low=self.expression(low), high=self.expression(high))
            case LetClause(name=name, value=value):
                return replace(clause, name=self.mark + name, value=self.expression(value))
            case ExistsClause(access=access):
                made = self.expression(access)
                assert isinstance(made, Applied)
                return replace(clause, access=made)


def _law(outer: TensorFunction, place: int, inner: TensorFunction, whole: TensorFunction) -> Callable[[str], str]:
    """The law of a composition, given the name of its operator: the outer function of the inner one is the whole."""
    count = len(inner.operands)
    variables = [f"x{number}" for number in range(len(outer.operands) - 1 + count)]
    marks = ((inner, "m"), (outer, "n"))
    scalars = [[f"{name}={mark}{number}" for number, name in enumerate(one.needs)] for one, mark in marks]
    called = f"{operator_of(inner).name}({', '.join([*variables[place : place + count], *scalars[0]])})"
    operands = [*variables[:place], called, *variables[place + count :]]
    left = f"{operator_of(outer).name}({', '.join([*operands, *scalars[1]])})"
    renamed = [f"a_{one}" for one in scalars[0]] + [f"b_{one}" for one in scalars[1]]
    return lambda name: f"{left} => {name}({', '.join([*variables, *renamed])})"


def declare_compositions(graph: Graph) -> tuple[str, ...]:
    """The operators of functions that a graph could call in place of several, declared with the laws that say so.

    A function is put into the one that alone reads what it makes, and so are those before it.
    """
    read = {value: len(nodes) for value, nodes in graph.consumers.items()}
    kept = {*graph.outputs.values()}
    declared: dict[str, None] = {}
    for node in graph.nodes:
        found = function_of(node.op)
        for composition in _compositions(graph, node, found, read, kept) if found is not None else ():
            if len(declared) == _FUNCTIONS:
                return tuple(declared)
            declared[operator_of(composition.function, composition.law).name] = None
    return tuple(declared)


def _compositions(
    graph: Graph, node: Node, function: TensorFunction, read: Mapping[str, int], kept: set[str]
) -> Iterator[Composition]:
    """The functions that one may be put together with the ones before it, each with one more of them."""
    inputs = list(node.inputs)
    place = 0
    while place < len(inputs):
        value = inputs[place]
        producer = graph.producers.get(value or "")
        inner = None if producer is None else function_of(producer.op)
        alone = value is not None and read.get(value) == 1 and inputs.count(value) == 1 and value not in kept
        made = composed(function, place, inner) if inner is not None and alone else None
        if made is None or producer is None:
            place += 1
            continue
        yield made
        function, inputs[place : place + 1] = made.function, list(producer.inputs)
