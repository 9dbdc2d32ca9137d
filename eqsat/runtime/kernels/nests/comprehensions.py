"""Functions of comprehensions as computations: their expressions as values of C, in the types that calls compute in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from typing import cast as cast_type

import numpy as np

from eqsat.language.comprehension.extents.affine import Affine, Range, affine
from eqsat.language.comprehension.extents.bounds import is_inside
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.language.comprehension.meaning import mathematics
from eqsat.language.comprehension.meaning.element_types import NAMED, ElementType, is_float, promoted, settled
from eqsat.language.comprehension.meaning.scopes import ResolvedEquation, Scope
from eqsat.language.comprehension.text.syntax import (
    Applied,
    Binary,
    Conditional,
    Expression,
    Name,
    Number,
    Truth,
    Unary,
)
from eqsat.language.terms import DType
from eqsat.language.terms.dims import Sym
from eqsat.runtime.kernels.expressions.coordinates import INT_LIMIT, AffineIndex
from eqsat.runtime.kernels.expressions.expression import NARROW, Expr, UnsupportedError, cast, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.nests.computation import (
    Computation,
    Coordinate,
    ElementRead,
    KernelBuffer,
    KernelStatement,
    LoopAxis,
    Reduction,
    Role,
    rebuilt,
    same_places,
)
from eqsat.runtime.kernels.nests.extents import Extent, extent_of, largest, sum_of
from eqsat.runtime.kernels.nests.functions import call, checked_division

#: Names that text of C or of CUDA C++ has another meaning for.
_RESERVED = re.compile(
    r"(auto|bool|break|case|char|const|continue|default|do|double|else|enum|extern|float|for|goto|if|inline|int|long|"
    r"register|restrict|return|short|signed|sizeof|static|struct|switch|typedef|union|unsigned|void|volatile|while|"
    r"asm|typeof|true|false|failed|workspace|acc|lanes|lane_values|at|part|once|begin|count|[iutxyz]\d+|f16|bf16|f8|"
    r"sum|difference|product|quotient|cut_remainder|"
    r"maximum|minimum|magnitude|signum|widen|power|entry|main|INLINE|CHECKED|INSIDE|CACHED|cached|NAN|INFINITY|M_.*|_.*|.*_|"
    r".*_(\d+|[tulrfpqv])|[jy][01n]|"
    r"alignas|alignof|and|and_eq|bitand|bitor|catch|char\d+_t|class|compl|concept|consteval|constexpr|constinit|"
    r"const_cast|co_await|co_return|co_yield|decltype|delete|dynamic_cast|explicit|export|friend|mutable|namespace|new|"
    r"noexcept|not|not_eq|nullptr|operator|or|or_eq|private|protected|public|reinterpret_cast|requires|static_assert|"
    r"static_cast|template|this|thread_local|throw|try|typeid|typename|using|virtual|wchar_t|xor|xor_eq|linux|unix|"
    r"(thread|block)(Idx|Dim)|gridDim|warpSize|DEVICE|EMULATED|narrow|truncated|inside|divisor|block_reduce|"
    r"Sum|Product|Least|Greatest|emulator)$"
)
#: Operators by the names that NumPy has for them.
_NAMES = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
    "==": "equal",
    "!=": "not_equal",
    "&&": "logical_and",
    "||": "logical_or",
}
#: A value, or a literal that has met no type, and its type.
Typed = tuple[Any, ElementType]


def lowered(function: TensorFunction, inferred: Inferred, given: frozenset[str] = frozenset()) -> Computation:
    """The computation of a function for shapes; `given` are the results that calls pass values of, to be updated.

    Sizes that shapes leave free are those of the computation, whatever calls give for them, as long as no extent is 0.
    UnsupportedError for element types and functions that have no C, and extents that are no sums of sizes.
    """
    scope = function.scope
    names = _spelled(scope)
    free = {dim.names() for dim in inferred.known.values() if isinstance(dim, Sym)}
    sizes = _size_names(scope, names, [name for name in scope.sizes if {name} in free])
    parameters = [one.name for one in scope.function.parameters]
    buffers = {}
    for name in (*parameters, *scope.defined):
        shape = tuple(extent_of(dim, sizes) for dim in inferred.shapes[name])
        role: Role = "operand" if name in parameters else "result" if name in function.results else "temporary"
        computed(function.types[name])
        buffers[names[name]] = KernelBuffer(names[name], function.types[name], shape, role)
    statements: list[KernelStatement] = []
    begun = set(given)
    for one, ranges in zip(scope.statements, inferred.ranges, strict=True):
        lowering = _StatementLowering(scope, function.types, inferred, one, ranges, names, sizes)
        made = lowering.statement()
        target = buffers[made.target]
        whole = all(axis.extent == extent for axis, extent in zip(made.kept, target.shape, strict=True))
        if one.statement.target not in begun and not (made.is_fresh and whole):
            statements.append(_zeros(target))
        begun.add(one.statement.target)
        if any(read.buffer == made.target and not same_places(read.subscripts, made.place) for read in lowering.read):
            copy, made = _copied(made, target)
            buffers[copy.target] = KernelBuffer(copy.target, target.dtype, target.shape, "temporary")
            statements.append(copy)
        statements.append(made)
    return Computation(
        names[scope.function.name],
        buffers,
        tuple(statements),
        tuple(names[name] for name in parameters),
        tuple(names[name] for name in function.results),
        tuple(sizes.values()),
    )


def _spelled(scope: Scope) -> Mapping[str, str]:
    """The names of tensors and of the function in C."""
    names = [*(one.name for one in scope.function.parameters), *scope.defined]
    known = {name: _safe(name) for name in names}
    return known | {scope.function.name: _safe(scope.function.name)}


def _size_names(scope: Scope, names: Mapping[str, str], sizes: Sequence[str]) -> Mapping[str, str]:
    """The names of sizes in C; a name may be a size and a tensor."""
    indices = {index for one in scope.statements for index in one.every_index}
    taken = {*names.values(), *indices, *(f"{index}_i" for index in indices)}
    known = {}
    for size in sizes:
        name = _safe(size)
        while name in taken:
            name = f"{name}_size"
        taken.add(name)
        known[size] = name
    return known


def _safe(name: str) -> str:
    return f"{name.strip('_') or 'x'}_v" if _RESERVED.match(name) or mathematics.function(name) else name


def _zeros(target: KernelBuffer) -> KernelStatement:
    axes = tuple(LoopAxis(f"z{number}", extent) for number, extent in enumerate(target.shape))
    zero = number(0, computed(target.dtype))
    return KernelStatement(target.name, tuple(axis.variable for axis in axes), axes, "", True, zero)


def _copied(made: KernelStatement, target: KernelBuffer) -> tuple[KernelStatement, KernelStatement]:
    """A copy of a target that is read elsewhere than where it is written, and the statement that reads the copy."""
    name = f"{target.name}_before"
    axes = tuple(LoopAxis(f"z{number}", extent) for number, extent in enumerate(target.shape))
    place = tuple(axis.variable for axis in axes)
    copy = KernelStatement(name, place, axes, "", True, ElementRead.of(target.name, computed(target.dtype), place))

    def change(one: Expr) -> Expr | None:
        if isinstance(one, ElementRead) and one.buffer == target.name:
            return ElementRead.of(name, one.dtype, one.subscripts, one.checked)
        return None

    return copy, KernelStatement(
        made.target, made.place, made.axes, made.reduction, made.is_fresh, rebuilt(made.value, change)
    )


@dataclass
class _StatementLowering:
    """A statement, whose expressions become values of C as `evaluation` computes them."""

    scope: Scope
    types: Mapping[str, DType]
    inferred: Inferred
    one: ResolvedEquation
    ranges: Mapping[str, Range]
    names: Mapping[str, str]
    sizes: Mapping[str, str]

    def __post_init__(self) -> None:
        self.read: list[ElementRead] = []
        self._conditions = 0
        self.indices = {name: f"{name}_i" if _RESERVED.match(name) else name for name in self.one.every_index}

    def statement(self) -> KernelStatement:
        """The statement over axes that begin at 0."""
        one, statement = self.one, self.one.statement
        dtype = self.types[statement.target]
        axes = tuple(
            LoopAxis(self.indices[index], self._extent(index), index in one.reduced) for index in one.every_index
        )
        value, given = self.value(one.value)
        reduction = cast_type(Reduction, statement.reduction)
        wide = computed(dtype) if reduction in ("+", "*") else dtype
        made = convert(_cast(value, given, wide), computed(dtype))
        place = tuple(self._index(index) for index in one.indices)
        return KernelStatement(self.names[statement.target], place, axes, reduction, statement.is_definition, made)

    def _extent(self, index: str) -> Extent:
        low, high = self.ranges[index]
        extent = extent_of(high - low, self.sizes)
        return max(extent, 0) if isinstance(extent, int) else extent

    def _index(self, name: str) -> AffineIndex:
        first = extent_of(self.ranges[name][0], self.sizes)
        return AffineIndex.variable(self.indices[name], largest(self._extent(name))) + first

    def _sum(self, form: Affine) -> AffineIndex:
        total = sum_of(extent_of(form.constant, self.sizes))
        for name, factor in form.factors.items():
            total = total + self._index(name) * factor
        return total

    def value(self, expression: Expression, whole: bool = False) -> Typed:
        """An expression and its type; `whole` ones are subscripts, whose integers have 64 bits."""
        form = affine(expression, self.inferred.known) if whole else None
        if form is not None and form.factors.keys() <= self.ranges.keys():
            index = self._sum(form)
            if max(abs(index.low), abs(index.high)) >= 2**62:
                raise UnsupportedError("subscripts beyond 64 bits")
            return (Coordinate.of(index, DType.INT64) if index.terms else index.constant), DType.INT64
        match expression:
            case Number(value=literal):
                return literal, "integer" if expression.is_integer else "float"
            case Truth(value=truth):
                return truth, DType.BOOL
            case Name(name=name):
                return self._named(name)
            case Applied():
                return self._called(expression, whole)
            case Unary(operator="!", operand=operand):
                return FUNCTIONS["logical_not"](_cast(*self.value(operand, whole), DType.BOOL)), DType.BOOL
            case Unary(operand=operand):
                inner, given = self.value(operand, whole)
                return (FUNCTIONS["negative"](inner) if isinstance(inner, Expr) else -inner), given
            case Binary(operator=("&&" | "||") as operator, left=left, right=right):
                pair = [_cast(*self.value(left, whole), DType.BOOL), _cast(*self._under(right, whole), DType.BOOL)]
                return FUNCTIONS[_NAMES[operator]](*pair), DType.BOOL
            case Binary():
                return self._binary(expression, whole)
            case Conditional(condition=condition, yes=yes, no=no):
                chosen = _cast(*self.value(condition, whole), DType.BOOL)
                (a, type_a), (b, type_b) = self._under(yes, whole), self._under(no, whole)
                joined = _joined(type_a, type_b)
                a, b = _cast(a, type_a, settled(joined)), _cast(b, type_b, settled(joined))
                return FUNCTIONS["where"](chosen, a, b), settled(joined)
        raise AssertionError(expression)

    def _under(self, expression: Expression, whole: bool) -> Typed:
        """An expression that is computed under a condition."""
        self._conditions += 1
        made = self.value(expression, whole)
        self._conditions -= 1
        return made

    def _named(self, name: str) -> Typed:
        if name in self.ranges:
            index = self._index(name)
            if index.low < -INT_LIMIT or index.high >= INT_LIMIT:
                raise UnsupportedError("indices beyond 32 bits as numbers")
            made = Coordinate.of(index, DType.INT32) if index.terms else number(index.constant, DType.INT32)
            return made, DType.INT32
        if name in self.scope.sizes:
            size = extent_of(self.inferred.known[name], self.sizes)
            if isinstance(size, AffineIndex):
                return Coordinate.of(size, DType.INT32), DType.INT32
            if size >= INT_LIMIT:
                raise UnsupportedError("sizes beyond 32 bits as numbers")
            return number(size, DType.INT32), DType.INT32
        return self._element(name, (), ()), self.types[name]

    def _element(self, name: str, subscripts: Sequence[Any], checked: Sequence[bool]) -> ElementRead:
        made = ElementRead.of(self.names[name], computed(self.types[name]), tuple(subscripts), tuple(checked))
        self.read.append(made)
        return made

    def _called(self, expression: Applied, whole: bool) -> Typed:
        name = expression.name
        if name in self.scope.ranks:
            read, dtype = self._read(expression), self.types[name]
            return _whole(read, dtype) if whole else (read, dtype)
        given = [self.value(one, whole) for one in expression.arguments]
        if name in NAMED:
            made = _cast(*given[0], NAMED[name])
            return _whole(made, NAMED[name]) if whole else (made, NAMED[name])
        joined = given[0][1]
        for _, other in given[1:]:
            joined = _joined(joined, other)
        if name in mathematics.CHOOSING:
            dtype = settled(joined)
            choose = FUNCTIONS[f"{name}imum"]
            return choose(*(_cast(one, own, dtype) for one, own in given)), dtype
        known = mathematics.function(name)
        assert known is not None
        result = joined if is_float(joined) else "float" if joined == "integer" else DType.FLOAT32
        if isinstance(result, str):
            return known.compute(*(value for value, _ in given)), result
        operands = [_cast(one, own, computed(result)) for one, own in given]
        return _cast(call(known.name, operands), computed(result), result), result

    def _binary(self, expression: Binary, whole: bool) -> Typed:
        (a, type_a), (b, type_b) = (self.value(one, whole) for one in (expression.left, expression.right))
        operator, joined = expression.operator, _joined(type_a, type_b)
        if not isinstance(a, Expr) and not isinstance(b, Expr) and isinstance(joined, str):
            return self._folded(operator, a, b, joined)
        dtype = settled(joined)
        a, b = _cast(a, type_a, dtype), _cast(b, type_b, dtype)
        if operator in _NAMES:
            made = FUNCTIONS[_NAMES[operator]](a, b)
            if operator not in ("+", "-", "*"):
                return made, DType.BOOL
        else:
            made = FUNCTIONS["divide"](a, b) if dtype.is_float else checked_division(operator, a, b)
        return (cast(made, dtype) if dtype in NARROW else made), dtype

    @staticmethod
    def _folded(operator: str, a: Any, b: Any, joined: ElementType) -> Typed:
        """An operator of two literals."""
        if operator in _NAMES:
            made = getattr(np, _NAMES[operator])(a, b).item()
            return made, joined if operator in ("+", "-", "*") else DType.BOOL
        if joined == "float":
            with np.errstate(all="ignore"):
                return np.divide(a, b).item(), joined
        if not b:
            raise UnsupportedError("a division by 0")
        quotient = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
        return (quotient if operator == "/" else a - b * quotient), joined

    def _read(self, expression: Applied) -> ElementRead:
        shape = self.inferred.shapes[expression.name]
        subscripts: list[AffineIndex | Expr] = []
        checked = []
        for subscript, extent in zip(expression.arguments, shape, strict=True):
            value, given = self.value(subscript, whole=True)
            if isinstance(value, Coordinate):
                subscripts.append(value.index)
            elif isinstance(value, Expr):
                subscripts.append(convert(_cast(value, given, DType.INT64), DType.INT64))
            else:
                subscripts.append(AffineIndex.number(int(value)))
            # A call holds sums of indices that no condition decides about against its sizes before.
            is_known = bool(self.sizes) and not self._conditions and isinstance(subscripts[-1], AffineIndex)
            checked.append(not is_known and not is_inside(subscript, extent, self.ranges, self.inferred.known))
        return self._element(expression.name, subscripts, checked)


def _whole(value: Any, given: ElementType) -> Typed:
    """A value inside a subscript, where integers have 64 bits."""
    whole = isinstance(given, DType) and not given.is_float and given is not DType.BOOL
    return (_cast(value, given, DType.INT64), DType.INT64) if whole else (value, given)


def _joined(a: ElementType, b: ElementType) -> ElementType:
    return promoted(a, b) or DType.INT64


def _cast(value: Any, given: ElementType, wanted: DType) -> Expr:
    """A value in an element type; narrow floats are held in float32, rounded."""
    if not isinstance(value, Expr):
        if wanted is DType.BOOL:
            return number(bool(value), DType.BOOL)
        with np.errstate(all="ignore"):
            return number(np.asarray(value).astype(wanted.numpy), computed(wanted))
    if given == wanted:
        return value
    if isinstance(given, DType) and given in NARROW and wanted is DType.FLOAT32:
        return value
    return cast(value, wanted) if wanted in NARROW else convert(value, wanted)
