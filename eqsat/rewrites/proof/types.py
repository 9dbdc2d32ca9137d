"""Types of elements that rules tell apart."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from random import Random
from typing import TypeGuard

from eqsat.errors import GraphError
from eqsat.language.ops import spec
from eqsat.language.parametric.integers import NotParametric
from eqsat.language.parametric.sums.ranges import limits_of
from eqsat.language.terms import DType, Expression, TensorType
from eqsat.language.terms.pattern import App
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.ranks import calls
from eqsat.rewrites.rules.rule import Rule, applications

#: How many samples of an operator are looked at.
_SAMPLES = 20
#: Functions of element types, and those that hold of float32 wherever they hold.
_KINDS = frozenset({"floating", "wide", "numeric"})
_OF_TYPES = _KINDS | {"dtype", "representable"}


#: Types of floats: the one that stands for all where a rule tells none apart, and others.
FLOATS = ("float32", "float64", "float16")
#: Types that are alike where a rule names none of them. Conditions tell wide floats from others.
_ALIKE = (
    FLOATS[:2],
    ("float16", "bfloat16"),
    ("int32", "int64", "int16", "int8"),
    ("uint8", "uint16", "uint32", "uint64"),
    ("bool",),
)
_INTEGERS = _ALIKE[2:4]
#: Types of numbers that are calculated with, and never are places of others.
EIGHT_BITS = frozenset({DType.INT8, DType.UINT8})


@cache
def element_types(rule: Rule) -> tuple[str, ...]:
    """The types that stand for all of numbers and truth values: those that a rule names, and one of each kind besides.

    Where none is named, two of wide floats, which may be told apart by being different.
    """
    if _tells_many_apart(rule):
        return tuple(kind for alike in _ALIKE for kind in alike)
    named = _named(rule)
    chosen = [kind for alike in _ALIKE for kind in alike if kind in named]
    chosen += [next((kind for kind in alike if kind not in named), "") for alike in _ALIKE]
    return tuple(dict.fromkeys(kind for kind in (*chosen, *FLOATS) if kind))


@cache
def _named(rule: Rule) -> frozenset[str]:
    """The texts that a rule writes, names of types among them."""
    return frozenset(
        node.value
        for expression in rule.expressions()
        for node in ast.walk(expression.tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _tells_many_apart(rule: Rule) -> bool:
    """True if a rule may tell apart types of one kind that it does not name: by limits, or several by each other."""
    nodes = [node for expression in rule.expressions() for node in ast.walk(expression.tree)]
    is_type = _is_type(rule)
    pairs = [node for node in nodes if isinstance(node, ast.Compare) and all(map(is_type, _sides(node)))]
    return len(pairs) > 1 or any(isinstance(n, ast.Name) and n.id == "representable" for n in nodes)


def _sides(node: ast.Compare) -> list[ast.expr]:
    return [node.left, *node.comparators]


def _is_type(rule: Rule) -> Callable[[ast.AST], bool]:
    """The test whether an expression is the element type of an operand, or an attribute that is one."""
    apps = [app for root in rule.roots for app in applications(root)]
    fields = [app.fields.get(name) for app in apps for name in ("to", "dtype")]
    names = {one.tree.id for one in fields if isinstance(one, Expression) and isinstance(one.tree, ast.Name)}

    def is_type(node: ast.AST) -> bool:
        is_asked = isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dtype"
        return is_asked or (isinstance(node, ast.Name) and node.id in names)

    return is_type


def refuse_inspected(rule: Rule) -> None:
    """NotParametric where more is asked of an element type than which one it is."""
    is_type = _is_type(rule)
    for expression in rule.expressions():
        plain = {id(expression.tree)}
        for node in ast.walk(expression.tree):
            if isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq | ast.In | ast.NotIn):
                plain |= {id(side) for side in _sides(node) if len(node.ops) == 1}
            elif isinstance(node, ast.keyword) and node.arg in ("to", "dtype"):
                plain.add(id(node.value))
            elif isinstance(node, ast.IfExp) and id(node) in plain:
                plain |= {id(node.body), id(node.orelse)}
        if any(is_type(node) and id(node) not in plain for node in ast.walk(expression.tree)):
            raise NotParametric("an element type that is looked into")


@cache
def widest_limits(rule: Rule) -> dict[str, tuple[int, int]]:
    """The limits of all types that each type of integers stands for."""
    kinds = [kind for kind in element_types(rule) if DType.of(kind).is_integer]
    return {kind: whole_limits(rule, kind, narrowest=False) for kind in kinds}


@cache
def told_apart(rule: Rule) -> tuple[str, ...]:
    """The types of floats that a rule may tell apart: by what it says of types, or where two types may meet."""
    apps = [app for side in (rule.roots, rule.right) for root in side for app in applications(root)]
    made = [app for root in rule.right for app in applications(root) if _is_of_the_type_of_another(app)]
    if any({"to", "dtype"} & spec(app.op).attrs.keys() and app not in made for app in apps):
        return _floats(rule)
    if any(name in _OF_TYPES for tree in _trees(rule, made) for name, _ in calls(tree)):
        return _floats(rule)
    # Where types are only handed on, they matter by which of them are the same: two are enough to tell any pair apart.
    apart = len(rule.roots) > 1 or bool(made) or any(mixes_types(app.op) or parts_types(app.op) for app in apps)
    return FLOATS[:2] if apart else FLOATS[:1]


def _is_of_the_type_of_another(app: App) -> bool:
    """True of what is made without operands, in the element type that an operand has."""
    dtype = app.fields.get("dtype")
    tree = dtype.tree if isinstance(dtype, Expression) else None
    return (
        not app.operands
        and "to" not in spec(app.op).attrs
        and isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id == "dtype"
        and all(isinstance(argument, ast.Name) for argument in tree.args)
    )


def _trees(rule: Rule, made: Sequence[App] = ()) -> list[ast.expr]:
    """All that a rule says, but for conditions that a type is wide, or one of floats or numbers: float32 among others.

    The type of what is `made` in that of an operand is left out, too.
    """
    apps = [app for side in (rule.roots, rule.right) for root in side for app in applications(root)]
    fields = [
        value.tree
        for app in apps
        for name, value in app.fields.items()
        if isinstance(value, Expression) and not (app in made and name == "dtype")
    ]
    parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
    return fields + [part for part in parts if not (isinstance(part, ast.Call) and calls(part)[0][0] in _KINDS)]


@cache
def _has_alike_floats(rule: Rule) -> bool:
    """True if a rule names no type, and no more than whether types are the same: float32 is then like each other."""
    apps = [app for side in (rule.roots, rule.right) for root in side for app in applications(root)]
    nodes = [node for tree in _trees(rule) for node in ast.walk(tree)]
    compared = {id(side) for node in nodes if _is_equation(node) for side in (node.left, *node.comparators)}
    named = {kind for alike in _ALIKE for kind in alike}
    return not (
        any({"to", "dtype"} & spec(app.op).attrs.keys() for app in apps)
        or any(value in named for app in apps for value in app.fields.values() if isinstance(value, str))
        or any(isinstance(node, ast.Constant) and node.value in named for node in nodes)
        or any(
            isinstance(node, ast.Call) and calls(node)[0][0] in _OF_TYPES and id(node) not in compared for node in nodes
        )
    )


def _is_equation(node: ast.AST) -> TypeGuard[ast.Compare]:
    """True of an equation of two types of operands."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.ops[0], ast.Eq | ast.NotEq)
        and all(isinstance(side, ast.Call) and calls(side)[0][0] == "dtype" for side in (node.left, *node.comparators))
    )


def is_stood_for(rule: Rule, types: Iterable[TensorType]) -> bool:
    """True of a path whose floats are all of one type that is as float32 is, which another path is of."""
    floats = {one.dtype.value for one in types if one.dtype.is_float}
    return len(floats) == 1 and floats != {FLOATS[0]} and _has_alike_floats(rule)


def _floats(rule: Rule) -> tuple[str, ...]:
    return tuple(kind for kind in element_types(rule) if DType.of(kind).is_float)


def stands_for(rule: Rule, kind: str) -> tuple[str, ...]:
    """The types that one stands for in a proof of a rule: its own where the rule names it, else all alike."""
    named = _named(rule)
    alike = next((alike for alike in _ALIKE if kind in alike and kind not in named), (kind,))
    return tuple(one for one in alike if one not in named) or (kind,)


def whole_limits(rule: Rule, kind: str, *, narrowest: bool) -> tuple[int, int]:
    """The limits of all types of integers that one stands for: of the narrowest of them, or of the widest."""
    limits = [limits_of(DType.of(one)) for one in stands_for(rule, kind)]
    least, most = zip(*limits, strict=True)
    return (max(least), min(most)) if narrowest else (min(least), max(most))


@cache
def tells_integers(rule: Rule) -> bool:
    """True if a rule asks for element types, or names one of integers."""
    asks = any(name == "dtype" for one in rule.expressions() for name, _ in calls(one.tree))
    return asks or any(kind in alike for kind in _named(rule) for alike in _INTEGERS)


def index_types(rule: Rule, stated: str) -> tuple[str, ...]:
    """The types of an operand that holds what its operator says: of indices also the narrower, if asked for.

    Where a rule does not tell integers from each other, one of eight bits stands for those of all types.
    """
    if DType.of(stated) in EIGHT_BITS:
        kinds = [kind for kind in element_types(rule) if DType.of(kind).is_integer]
        return (stated, *(kind for kind in kinds if kind != stated)) if tells_integers(rule) else (stated,)
    asks = any(name == "dtype" for one in rule.expressions() for name, _ in calls(one.tree))
    return (stated, "int32") if asks and stated == "int64" else (stated,)


@cache
def names_of_type(rule: Rule, operand: str) -> tuple[str, ...]:
    """The attributes that a condition says are the element type of an operand."""
    attributes = {
        field.tree.id
        for root in rule.roots
        for app in applications(root)
        for name, field in app.fields.items()
        if name in ("to", "dtype") and isinstance(field, Expression) and isinstance(field.tree, ast.Name)
    }
    found = []
    for part in (part for condition in rule.conditions for part in conjuncts(condition.tree)):
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            sides = (part.left, part.comparators[0])
            for one, other in (sides, sides[::-1]):
                if isinstance(other, ast.Name) and ast.unparse(one) == f"dtype({operand})":
                    found.append(other.id)
    return tuple(name for name in found if name in attributes - rule.tensors)


@cache
def parts_types(op: str) -> bool:
    """True if an operator may make others than floats of floats, so that its results say nothing of their type.

    That is seen on samples; of an operator that has none nothing is known.
    """
    declared = spec(op)
    rng = Random(f"types {op}")
    typed = False
    for _ in range(_SAMPLES):
        drawn = declared.drawn(rng, [None] * max(declared.min_operands, 1), {})
        if drawn is None:
            continue
        types = [TensorType.of(declared.dtypes.get(p) or FLOATS[0], shape) for p, shape in enumerate(drawn[0])]
        try:
            results = declared.result_types(types, declared.complete(drawn[1]))
        except (GraphError, TypeError, ValueError, LookupError, AttributeError):
            continue
        typed = True
        if any(t.dtype.is_float for t in types) and not all(t.dtype.is_float for t in results):
            return True
    return not typed


@cache
def mixes_types(op: str) -> bool:
    """True if an operator takes floats of two types together, as its shape rule says of some operands."""
    declared = spec(op)
    if declared.max_operands is not None and declared.max_operands < 2:
        return False
    most = max(declared.min_operands, 2) if declared.max_operands is None else declared.max_operands
    try:
        attrs = declared.complete({name: 0 for name in ("axis",) if name in declared.attrs})
    except GraphError:
        return True  # of one with attributes of its own nothing is known
    for rank in range(5):
        for count in range(max(declared.min_operands, 2), most + 1):
            for odd in range(count):
                kinds = ["float64" if place == odd else "float32" for place in range(count)]
                dtypes = [DType.of(declared.dtypes.get(place) or kind) for place, kind in enumerate(kinds)]
                if len({d for place, d in enumerate(dtypes) if place not in declared.dtypes}) < 2:
                    continue
                try:
                    declared.result_types([TensorType(kind, (2,) * rank) for kind in dtypes], attrs)
                except (GraphError, TypeError, ValueError, LookupError, AttributeError):
                    continue
                return True
    return False
