"""Numbers in the text of rules: as operands, constants of the element type of what stands beside them; as attributes,
values of the kind that the operator declares."""

from __future__ import annotations

import ast
import copy
import math
import random
from collections.abc import Iterator, Mapping, Sequence

from eqsat.errors import EqsatError, RuleError
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS
from eqsat.language.terms import App, Expression, Shape, TensorType
from eqsat.rewrites.conditions.syntax import loop_parts, substituted

#: The element type of operands for which none is declared, other types for operands, and how many samples show which
#: of them a result has.
_FLOAT, _OTHER_FLOAT = "float32", {"float32": "float16"}
_OTHER = {"int32": "int64", "uint8": "int8", "uint32": "uint64"}
_SAMPLES = 20
#: Floats hold all whole numbers up to this one.
_WHOLE = 2**53
#: The largest number of int8, and the least and largest that float16 has with all digits.
_LEAST_MAXIMUM, _HALF = 127, (2.0**-14, 65504.0)
#: Attributes that name the element type of a result.
_TYPED_BY = ("to", "dtype")


def number_in(tree: ast.expr) -> int | float | None:
    """The number that a tree writes out, with its sign; None for any other tree.

    >>> number_in(ast.parse("-2.5", mode="eval").body), number_in(ast.parse("True", mode="eval").body)
    (-2.5, None)
    """
    negative = isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub)
    inner = tree.operand if isinstance(tree, ast.UnaryOp) and negative else tree
    value = inner.value if isinstance(inner, ast.Constant) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return -value if negative else value


def constant(tree: ast.expr, dtype: ast.expr | None, where: str) -> App:
    """The scalar that a number stands for, of an element type; RuleError where that is not known, or has no such one.

    Whole numbers are floats, as in all laws that name constants, as long as a float holds them.
    """
    number = _number(tree)
    if dtype is None or (isinstance(dtype, ast.Name) and not (_is_whole(number) and _is_common(number))):
        raise _untyped(tree, where)
    if not math.isfinite(number):
        raise _infinite(where)
    exact = float(number) if abs(number) <= _WHOLE else number
    fields = {"shape": ast.Tuple([], ast.Load()), "value": ast.Constant(exact), "dtype": dtype}
    return App("fill", (), {name: Expression(ast.unparse(value), value) for name, value in fields.items()})


def implied(tree: ast.expr, dtype: ast.expr | None) -> Iterator[Expression]:
    """The conditions on the tensor whose type a number has: it is of floats for a fraction, and has such numbers."""
    number = _number(tree)
    if not isinstance(dtype, ast.Call):
        return
    conditions = [] if _is_whole(number) else [ast.Call(ast.Name("floating", ast.Load()), dtype.args, [])]
    if not _is_common(number):
        conditions.append(ast.Call(ast.Name("representable", ast.Load()), [*dtype.args, tree], []))
    for condition in conditions:
        yield Expression(ast.unparse(condition), ast.fix_missing_locations(ast.copy_location(condition, tree)))


def everywhere(condition: Expression, loop: ast.comprehension) -> Expression:
    """A condition that holds in every turn of a loop, where it reads its variables; else as it is."""
    variables = {target.id for target in loop_parts(loop)[0] if isinstance(target, ast.Name)}
    if not any(isinstance(node, ast.Name) and node.id in variables for node in ast.walk(condition.tree)):
        return condition
    call = ast.Call(ast.Name("all", ast.Load()), [ast.GeneratorExp(condition.tree, [loop])], [])
    return Expression(ast.unparse(call), ast.fix_missing_locations(ast.copy_location(call, condition.tree)))


def _is_whole(number: float) -> bool:
    return not math.isfinite(number) or number == int(number)


def _is_common(number: float) -> bool:
    """True if every type of integers that operators compute with has a whole number, every one of floats a fraction."""
    return 0 <= number <= _LEAST_MAXIMUM if _is_whole(number) else _HALF[0] <= abs(number) <= _HALF[1]


def _number(tree: ast.expr) -> int | float:
    number = number_in(tree)
    if number is None:
        raise ValueError(f"{ast.unparse(tree)} is no number")
    return number


def attribute(op: str, name: str, tree: ast.expr) -> ast.expr:
    """The value of an attribute, where it is a whole number as the declaration has it: a truth value, or a float.

    >>> ast.unparse(attribute("reduce_sum", "keepdims", ast.Constant(1)))
    'True'
    """
    default = OPS[op].attrs.get(name) if op in OPS else None
    number = number_in(tree)
    if type(number) is int and isinstance(default, bool) and number in (0, 1):
        return ast.copy_location(ast.Constant(bool(number)), tree)
    if type(number) is int and isinstance(default, float) and abs(number) <= _WHOLE:
        return ast.copy_location(ast.Constant(float(number)), tree)
    return tree


def unmatched(tree: ast.expr, where: str) -> RuleError:
    """The error for a number on the left side of a rule to rewrite with: graphs hold constants, of any shape."""
    shown = ast.unparse(tree)
    return RuleError(
        f"the number {shown} on a left side matches no constant of a graph",
        where=where,
        expected="a variable for the constant",
        remedy=f"write a name, c, for it, and the condition is_all(c, {shown})",
    )


def _untyped(tree: ast.expr, where: str) -> RuleError:
    """The error for a number beside which nothing tells its element type."""
    shown = ast.unparse(tree)
    return RuleError(
        f"no operand beside the number {shown} tells its element type",
        where=where,
        expected="a tensor beside it",
        remedy=f"write the constant with its type, as fill(shape=(), value={shown}, dtype='float32')",
    )


def _infinite(where: str) -> RuleError:
    """The error for a number too large for any float."""
    return RuleError(
        "a number is too large for a float",
        where=where,
        expected="a finite number",
        remedy="write an infinity as a constant, as fill(shape=(), value=1e309, dtype=dtype(x))",
    )


def alone(tree: ast.expr, where: str) -> RuleError:
    """The error for a number that is a whole side."""
    shown = ast.unparse(tree)
    return RuleError(
        f"the number {shown} stands alone",
        where=where,
        expected="an operand beside it, whose element type it has",
        remedy=f"write the tensor that is meant, as fill(shape=shape(x), value={shown}, dtype=dtype(x))",
    )


def type_beside(op: str, place: int, operands: Sequence[ast.expr]) -> ast.expr | None:
    """The element type of the operand at a place of an operator, as an expression; None where nothing tells it.

    It is that of the first other operand of the same kind that has one, or the one declared for that place.
    """
    declared = OPS.get(op)
    if declared is None:
        return None
    own = declared.dtypes.get(place)
    beside = [o for i, o in enumerate(operands) if i != place and declared.dtypes.get(i) == own]
    known = (t for t in map(element_type, beside) if t is not None)
    return next(known, None if own is None else ast.Constant(own))


def element_type(tree: ast.expr) -> ast.expr | None:
    """The element type of a term as an expression over its variables; None where it has a number's, or is no term.

    >>> ast.unparse(element_type(ast.parse("relu(2 * x) @ y", mode="eval").body))
    'dtype(x)'
    """
    if isinstance(tree, ast.Name):
        return ast.Call(ast.Name("dtype", ast.Load()), [tree], [])
    if isinstance(tree, ast.Starred) and isinstance(tree.value, ast.Name):
        first = ast.Subscript(tree.value, ast.Constant(0), ast.Load())
        return ast.Call(ast.Name("dtype", ast.Load()), [first], [])
    if isinstance(tree, ast.Starred) and isinstance(tree.value, ast.ListComp):
        targets, sequences = loop_parts(tree.value.generators[0])
        firsts = [ast.Subscript(sequence, ast.Constant(0), ast.Load()) for sequence in sequences]
        known = {t.id: first for t, first in zip(targets, firsts, strict=False) if isinstance(t, ast.Name)}
        inner = element_type(tree.value.elt)
        return None if inner is None else substituted(copy.deepcopy(inner), known)
    if isinstance(tree, ast.UnaryOp):
        return element_type(tree.operand)
    if isinstance(tree, ast.BinOp):
        return element_type(tree.left) or element_type(tree.right)
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.func.id not in OPS:
        return None
    declared = OPS[tree.func.id]
    typed_by = next((name for name in _TYPED_BY if name in declared.attrs), None)
    if typed_by is not None:
        stated = (k.value for k in tree.keywords if k.arg == typed_by)
        default = declared.attrs[typed_by]
        return next(stated, ast.Constant(default) if isinstance(default, str) else None)
    told = _result_type(declared)
    if isinstance(told, int):
        alike = (o for i, o in enumerate(tree.args) if declared.dtypes.get(i) == declared.dtypes.get(told))
        return next((t for t in map(element_type, alike) if t is not None), None)
    return None if told is None else ast.Constant(told)


def _result_type(declared: OpSpec) -> int | str | None:
    """The operand whose element type an operator's first result has, or the type that it always has; None for neither.

    Of operands that share it, it is the first.
    """
    rng = random.Random(0)
    for _ in range(_SAMPLES):
        drawn = declared.drawn(rng, [None] * declared.min_operands, {})
        if drawn is None:
            continue
        for other in (_OTHER, {}):
            try:
                attrs = declared.complete(drawn[1])
                rows = [_types(declared, drawn[0], change) for change in ({}, {**other, **_OTHER_FLOAT})]
                results = [declared.result_types(row, attrs)[0].dtype for row in rows]
            except EqsatError:
                continue
            pairs = list(zip(*rows, strict=True))
            same = (
                k for k, pair in enumerate(pairs) if [t.dtype for t in pair] == results and results[0] != results[1]
            )
            fixed = results[0].value if results[0] == results[1] else None
            return next(same, fixed)
    return None


def _types(declared: OpSpec, shapes: Sequence[Shape], change: Mapping[str, str]) -> list[TensorType]:
    dtypes = [declared.dtypes.get(i, _FLOAT) for i in range(len(shapes))]
    return [TensorType.of(change.get(d, d), s) for d, s in zip(dtypes, shapes, strict=True)]
