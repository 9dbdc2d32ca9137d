"""The definition of a function by the operators that ship: the right side of a law, in the syntax of rules."""

from __future__ import annotations

import re
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from eqsat.language.comprehension.definitions.elements import indices_of
from eqsat.language.comprehension.definitions.parts import UNIT, AxedTerm, tuple_of
from eqsat.language.comprehension.definitions.statement import NoDefinition, StatementContext, TermNames
from eqsat.language.comprehension.definitions.transposed import transposed_convolution
from eqsat.language.comprehension.definitions.trials import SizeTrial, formulas_of, size_text, trials_of
from eqsat.language.comprehension.definitions.values import ValueTerms
from eqsat.language.comprehension.definitions.windows import convolution, pooled
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.graphs.products import ProductSum
from eqsat.language.comprehension.meaning.constants import constant
from eqsat.language.comprehension.meaning.typed import ElementTypes
from eqsat.language.comprehension.text.syntax import Applied, Binary, Conditional, Expression, walk
from eqsat.language.terms import Dim, DType, Sym

_REDUCED = {"+": "reduce_sum", "*": "reduce_prod", "max": "reduce_max", "min": "reduce_min"}
_UPDATED = {"+": "add({}, {})", "*": "mul({}, {})", "max": "maximum({}, {})", "min": "minimum({}, {})"}


@dataclass(frozen=True)
class FunctionDefinition:
    """A function in terms of standard operators, of variables x0, x1, … for its operands and n0, … for its scalars.

    `text` is the law's right side with the names of what it repeats, `conditions` are on shapes and scalars, and
    `reason` says why there is none.
    """

    text: str = ""
    conditions: tuple[str, ...] = ()
    reason: str = ""


def definition_of(function: TensorFunction, *, exact: bool = True, passed: int = 0) -> FunctionDefinition:
    """The definition of a function, a term for each result; `exact` ones do with NaN what the function does.

    So many tensors are `passed` to be updated, behind the operands, the others of these are 0.

    >>> from eqsat.language.comprehension.engine import comprehension
    >>> f = comprehension("def f(float(N,M) x) -> (y) { s(i) +=! x(i,j)  y(i,j) = x(i,j) / s(i) }").f
    >>> definition_of(f).text
    'div(x0, reduce_sum(x0, axes=(1,), keepdims=True))'
    """
    trials = trials_of(function)
    if not trials:
        return FunctionDefinition(reason="few sizes are found that it takes")
    try:
        definer = _Definer(function, trials, exact, passed)
        return FunctionDefinition(definer.text(), tuple(definer.names.conditions))
    except NoDefinition as reason:
        return FunctionDefinition(reason=str(reason))


class _Definer:
    """The terms that the tensors of a function are, statement by statement."""

    def __init__(self, function: TensorFunction, trials: Sequence[SizeTrial], exact: bool, passed: int) -> None:
        self.function, self.trials, self.exact = function, trials, exact
        self.symbolic = formulas_of(function, trials)
        scope = function.scope
        operands = {name: f"x{place}" for place, name in enumerate(function.operands)}
        updated = {name: f"x{len(operands) + place}" for place, name in enumerate(scope.updated[:passed])}
        self.parts = {
            name: AxedTerm(variable, tuple(map(str, range(scope.ranks[name]))))
            for name, variable in (operands | updated).items()
        }
        self.sizes: dict[str, str] = {}
        for name, variable in operands.items():
            for axis, extent in enumerate(scope.parameters[name].extents):
                if isinstance(extent, str):
                    self.sizes.setdefault(extent, f"dim({variable}, {axis})")
        self.sizes |= {name: f"n{place}" for place, name in enumerate(function.needs)}
        self.dtypes: dict[DType, str] = {}
        for name, variable in (operands | updated).items():
            self.dtypes.setdefault(function.types[name], f"dtype({variable})")
        self.names = TermNames()
        for name in scope.updated[passed:]:
            self.parts[name] = ValueTerms(self.statement(0), exact).number(0, function.types[name])

    def text(self) -> str:
        """The right side of the law."""
        scope = self.function.scope
        for number in range(len(scope.statements)):
            self.define(number)
        whole = self.statement(len(scope.statements) - 1)
        terms = [self.result(whole, one).text for one in self.function.results]
        final = ", ".join(terms)
        used = _used(final, self.names.given)
        named = ", ".join(f"{name} := {self.names.given[name]}" for name in used)
        return f"{final} where {named}" if named else final

    def result(self, statement: StatementContext, name: str) -> AxedTerm:
        """A result with all its axes, in their order."""
        held, axes = statement.held(name), [str(axis) for axis in range(self.function.scope.ranks[name])]
        symbolic = self.symbolic
        dims: Sequence[Dim | None] = [None] * len(axes) if symbolic is None else symbolic.shapes[name]
        if {*held.named} == {*axes}:
            texts = {axis: size_text(dim, self.sizes) for axis, dim in zip(axes, dims, strict=True) if dim is not None}
            known = {axis: text for axis, text in texts.items() if text is not None}
            return held if held.axes == tuple(axes) else statement.shared(held).turned(axes, known)
        sizes = [[trial.inferred.shapes[name][int(axis)] for trial in self.trials] for axis in axes]
        counts = [
            statement.text_of([one for one in size if isinstance(one, int)], dim)
            for size, dim in zip(sizes, dims, strict=True)
        ]
        return AxedTerm(f"expand({statement.laid(held, axes).text}, shape={tuple_of(counts)})", tuple(axes))

    def statement(self, number: int) -> StatementContext:
        """A statement with the terms before it."""
        return StatementContext(
            self.function.scope,
            ElementTypes(self.function.scope, self.function.types),
            number,
            self.trials,
            self.symbolic,
            self.parts,
            self.names,
            self.sizes,
            self.dtypes,
        )

    def define(self, number: int) -> None:
        """Take in the term that a statement makes its target."""
        statement = self.statement(number)
        one, target = statement.one, statement.one.statement.target
        for index in one.every_index:
            self.require_some(statement, index)
        values = ValueTerms(statement, self.exact)
        made = self.value(statement, values)
        if not one.statement.is_definition:
            before = statement.held(target).renamed(lambda axis: one.indices[int(axis)])
            made = statement.together(_UPDATED[one.statement.reduction], [before, made])
        made = self.within(statement, made)
        self.parts[target] = AxedTerm(self.shared(statement, made.text), made.axes)

    def require_some(self, statement: StatementContext, index: str) -> None:
        """Let the definition hold where a range is not empty, unless it is that of a whole axis read by nothing else.

        What a subscript of several indices reaches is told from ranges that have a value.
        """
        found, one = statement.symbolic_range(index), statement.one
        if found is None:
            if index in one.ranges:
                count = statement.count_text(index)
                if not count.isdecimal():
                    statement.require(f"{count} > 0")
            return
        length = found[1] - found[0]
        read = [indices_of(statement, part) for call in one.reads for part in call.arguments]
        is_size = isinstance(length, Sym) and length in map(Sym.named, self.sizes)
        if isinstance(length, int) or (is_size and all(len(names) == 1 for names in read if index in names)):
            return
        text = size_text(length, self.sizes)
        if text is not None:
            statement.require(f"{text} > 0")

    def within(self, statement: StatementContext, made: AxedTerm) -> AxedTerm:
        """The whole of a target of which a statement defines some, along its axes; the rest is as before, or 0."""
        one, target, dtype = statement.one, statement.one.statement.target, self.function.types
        place = {index: str(axis) for axis, index in enumerate(one.indices)}
        inside: list[AxedTerm] = []
        for axis, index in enumerate(one.indices):
            found = [trial.inferred.shapes[target][axis] for trial in self.trials]
            sizes = [size for size in found if isinstance(size, int)]
            if self.is_whole(statement, axis, index, sizes):
                continue
            low, high, size = self.ends(statement, axis, index, sizes)
            if index in made.named:
                at = made.axes.index(index)
                pads = ["0"] * (2 * len(made.axes))
                pads[at], pads[len(made.axes) + at] = low, f"{size} - {high}"
                made = AxedTerm(f'pad({made.text}, pads={tuple_of(pads)}, mode="constant", value=0.0)', made.axes)
            for bound, pattern in ((low, "greater_equal({}, {})"), (high, "less({}, {})")):
                if bound not in ("0", size):
                    end = f"fill(shape=(), value={bound}, dtype='int64')"
                    iota = f"iota(size={size}, dtype='int64')"
                    inside.append(AxedTerm(pattern.format(iota, end), (str(axis),)))
        made = made.renamed(lambda index: place[index])
        if not inside:
            return made
        before = self.parts.get(target) or ValueTerms(statement, self.exact).number(0, dtype[target])
        here, axes = inside[0], [*place.values()]
        for more in inside[1:]:
            here = statement.together("and_({}, {})", [here, more], axes)
        return statement.together("where({}, {}, {})", [here, made, before], axes)

    def is_whole(self, statement: StatementContext, axis: int, index: str, sizes: Sequence[int]) -> bool:
        """True where an index walks the whole of an axis of the target."""
        found, symbolic = statement.symbolic_range(index), statement.symbolic
        if found is not None and symbolic is not None:
            return found == (0, symbolic.shapes[statement.one.statement.target][axis])
        if index in statement.one.ranges and index not in statement.plain_ranges:
            raise NoDefinition("a range that integer scalars decide")
        return all(ends == (0, size) for ends, size in zip(statement.ranges(index), sizes, strict=True))

    def ends(self, statement: StatementContext, axis: int, index: str, sizes: Sequence[int]) -> tuple[str, str, str]:
        """The first index that a statement defines, the one behind its last, and the size of the axis."""
        target, symbolic = statement.one.statement.target, statement.symbolic
        low, high = statement.symbolic_range(index) or (None, None)
        lows, highs = zip(*statement.ranges(index), strict=True)
        size = statement.text_of(sizes, None if symbolic is None else symbolic.shapes[target][axis])
        texts = statement.text_of(lows, low), statement.text_of(highs, high), size
        first, last, whole = (f"({text})" if " " in text else text for text in texts)
        return first, last, whole

    def shared(self, statement: StatementContext, text: str) -> str:
        """A term as later statements refer to it: by a name where several do."""
        target, number = statement.one.statement.target, statement.number
        later = self.function.scope.statements[number + 1 :]
        reads = sum(call.name == target for one in later for call in one.reads)
        reads += sum(one.statement.target == target and not one.statement.is_definition for one in later)
        reads += target in self.function.results
        return statement.named(text) if reads > 1 else text

    def value(self, statement: StatementContext, values: ValueTerms) -> AxedTerm:
        """The value of a statement along the indices of its target; it may lack those that it does not depend on."""
        one, dtype = statement.one, self.function.types[statement.one.statement.target]
        if not one.reduced:
            return values.of(one.value, dtype)
        if one.statement.reduction == "+" and dtype.is_float:
            weights = partial(values.of, dtype=dtype)
            made = transposed_convolution(statement, one.value, weights, exact=self.exact)
            made = made or self.product(statement, values, one.value, dtype)
            if made is not None:
                return made
        source = values.source(one.value) if one.statement.reduction in ("max", "min") else None
        if source is not None and dtype.is_float and values.type(one.value) == dtype:
            made = pooled(statement, source, one.statement.reduction)
            if made is not None:
                return made
        part = values.of(one.value, dtype)
        part = spread(statement, part, [*part.named, *(index for index in one.reduced if index not in part.axes)])
        axes = tuple_of(str(place) for place, axis in enumerate(part.axes) if axis in one.reduced)
        left = tuple(UNIT if axis in one.reduced else axis for axis in part.axes)
        return AxedTerm(f"{_REDUCED[one.statement.reduction]}({part.text}, axes={axes}, keepdims=True)", left)

    def product(
        self, statement: StatementContext, values: ValueTerms, value: Expression, dtype: DType
    ) -> AxedTerm | None:
        """A sum of products as a convolution, a pool or einsum; None of one that is none."""
        factors, divisors = _factors(values, value, self.exact)
        if any(values.type(factor) not in (dtype, "integer", "float") for factor in (*factors, *divisors)):
            return None
        read = {name for one in divisors for name in indices_of(statement, one)}
        if read & {*statement.one.reduced}:
            return None
        scales = [one for one in factors if not {*indices_of(statement, one)} & {*statement.one.reduced}]
        if self.exact and any(isinstance(part, Applied) for one in scales for part in walk(one)):
            return None  # an infinity before a sum is not one in each of its terms
        summed = [one for one in factors if one not in scales]
        made = self.summed(statement, values, summed, dtype)
        if made is None:
            return None
        for scale in scales:
            made = statement.together("mul({}, {})", [made, values.of(scale, dtype)])
        for divisor in divisors:
            made = statement.together("div({}, {})", [made, values.of(divisor, dtype)])
        return made

    def summed(
        self, statement: StatementContext, values: ValueTerms, factors: Sequence[Expression], dtype: DType
    ) -> AxedTerm | None:
        """The sum of a product of factors that all depend on what is summed over."""
        sources = [values.source(factor) for factor in factors]
        for place, source in enumerate(sources):
            if source is None or len(factors) > 2:
                continue
            if len(factors) == 1:
                made = pooled(statement, source, "+")
            else:
                made = convolution(statement, source, partial(values.of, factors[1 - place], dtype))
            if made is not None:
                return made
        if len(factors) < 2:
            return None
        parts = [values.of(factor, dtype) for factor in factors]
        tensors = [statement.bare(part) for part in parts]
        read = dict.fromkeys(index for part in tensors for index in part.axes)
        if not {*statement.one.reduced} <= {*read} or len(read) > len(string.ascii_letters):
            return None
        result = tuple(index for index in statement.one.indices if index in read)
        summed = ProductSum(tuple(one.text for one in tensors), tuple(one.axes for one in tensors), result)
        return AxedTerm(summed.einsum, result)


def _factors(values: ValueTerms, value: Expression, exact: bool) -> tuple[list[Expression], list[Expression]]:
    """The factors of a product and what it is divided by.

    A product under a condition that is 0 elsewhere has its first factor there, unless it is to be `exact`: 0 times an
    infinity is none.
    """
    if values.type(value) == "integer":
        return [value], []  # quotients of integers round
    match value:
        case Binary(operator="*", left=left, right=right):
            (first, below), (second, under) = _factors(values, left, exact), _factors(values, right, exact)
            return [*first, *second], [*below, *under]
        case Binary(operator="/", left=left, right=right):
            factors, divisors = _factors(values, left, exact)
            return factors, [*divisors, right]
        case Conditional(yes=Binary(operator="*") as yes, no=no) if constant(no) == 0 and not exact:
            factors, divisors = _factors(values, yes, exact)
            return [Conditional(value.condition, factors[0], no), *factors[1:]], divisors
    return [value], []


def spread(statement: StatementContext, part: AxedTerm, order: Sequence[str]) -> AxedTerm:
    """A part along indices: what does not depend on one is repeated along it."""
    if {*part.named} == {*order}:
        return part
    dims = tuple_of(statement.count_text(index) for index in order)
    return AxedTerm(f"expand({statement.laid(part, order).text}, shape={dims})", tuple(order))


def _used(text: str, names: Mapping[str, str]) -> list[str]:
    """The names that a term uses, and that those use, each after those that it uses."""
    used: dict[str, None] = {}

    def visit(part: str) -> None:
        for name in names:
            if name not in used and _mentions(part, name):
                visit(names[name])
                used[name] = None

    visit(text)
    return list(used)


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{name}\b", text) is not None
