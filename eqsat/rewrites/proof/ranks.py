"""Ranks up to which a proof has to go for a rule to hold at every rank."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Iterator
from functools import cache
from typing import TypeGuard

from eqsat.language.declaration import OpSpec
from eqsat.language.ops import spec
from eqsat.language.terms import Expression
from eqsat.language.terms.pattern import ABSENT, App, Pattern, Siblings, Spread, Var
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.axes.rules import works_axis_by_axis
from eqsat.rewrites.proof.naturality.claims import keeps_rank
from eqsat.rewrites.proof.opaque.ranks import has_other_rank, own_ranks
from eqsat.rewrites.proof.removal.bound import bound_by_removal
from eqsat.rewrites.proof.removal.fills import bound_of_fill
from eqsat.rewrites.proof.removal.frames import NotRemovable
from eqsat.rewrites.proof.removal.reshapes import bound_beside_reshape
from eqsat.rewrites.proof.removal.statements import OF_ONE_RANK, part_length
from eqsat.rewrites.rules.rule import Rule, applications

#: The rank up to which rules of single elements are looked at: along each axis operands have one element or as many as
#: the result, and an axis that is there or not is one of these; two axes show that they do not matter to each other.
_POINTWISE = 2
#: That of rules which say of each axis by itself what they say.
_AXIS_BY_AXIS = 1
#: Conditions that hold of a whole where they hold along each axis, or ask nothing of axes.
_ALONG_EACH_AXIS = frozenset(
    {
        "spans",
        "same_shape",
        "static",
        "floating",
        "wide",
        "numeric",
        "finite",
        "constant",
        "is_all",
        "rounds",
        "is_uniform",
        "is_positive",
        "is_nonnegative",
        "invertible",
    }
)
#: The ranks that conditions ask of all their operands, and the most that `mask_spans` asks of masks.
_AGREED = {"heads_agree": 4, "stacks_agree": 3}
_HEADS = 4
#: Functions that ask nothing of axes or elements, so that any statement of them is one of the whole.
_OF_NO_AXES = frozenset({"dtype", "number", "representable"})


def sufficient_rank(rule: Rule, opaque: frozenset[str] = frozenset()) -> int | None:
    """The rank up to which a proof has to go for the rule to hold at every rank; None where none is known.

    Conditions leave operands no higher rank, or all operators work on single elements of broadcast operands, or along
    each axis by itself, so that one axis is like another, or an instance of a higher rank that refutes the rule may
    lose an axis (`proof/removal`). Of operators that are `opaque` a proof uses no more than their index form.
    """
    if any(of == "kernel" for _, of in open_lengths(rule)):
        return None
    if works_axis_by_axis(rule):
        return _AXIS_BY_AXIS
    if _is_pointwise(rule):
        return _POINTWISE
    ranks = _bounded_ranks(rule)
    lengths = {f"len {name}" for name, of in open_lengths(rule) if of == "shape"}
    names = rule.tensors | rule.tensor_groups | lengths
    if names <= ranks.keys():
        return max(ranks.values(), default=0)
    for known in (bound_beside_reshape(rule), bound_of_fill(rule)):
        if known is not None:
            return known
    try:
        return bound_by_removal(rule, ranks, names, opaque)
    except NotRemovable:
        return None


def _is_pointwise(rule: Rule) -> bool:
    """True if a rule says the same of each axis: of its operators, and of all that its conditions ask."""
    if isinstance(rule.left, Siblings) or rule.tensor_groups or rule.attr_groups:
        return False
    apps = [app for side in (rule.roots, rule.right) for root in side for app in applications(root)]
    for app in apps:
        declared = spec(app.op)
        of_shape = app.op in ("expand", "fill") and _is_of_a_result(app)
        if not (declared.pointwise or of_shape) or any("axis" in name or "axes" in name for name in declared.attrs):
            return False
        fields = [e for name, e in app.fields.items() if not (of_shape and name == "shape")]
        if any(isinstance(e, Expression) and _asks_of_axes(e.tree) for e in fields):
            return False
    return not any(_asks_of_axes(condition.tree) for condition in rule.conditions)


def _is_of_a_result(app: App) -> bool:
    """True if the shape that an operator spreads over is that of nothing, or of broadcast operands."""
    shape = app.fields.get("shape")
    if not isinstance(shape, Expression):
        return False
    if isinstance(shape.tree, ast.Tuple):
        return not shape.tree.elts
    tree = shape.tree
    return (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id == "shape"
        and all(_is_broadcast(argument) for argument in tree.args)
    )


def _is_broadcast(tree: ast.expr) -> bool:
    if isinstance(tree, ast.Name):
        return True
    return (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and spec(tree.func.id).pointwise
        and all(_is_broadcast(argument) for argument in tree.args)
    )


def _asks_of_axes(tree: ast.expr) -> bool:
    """True if a condition asks something that may not be said of each axis by itself."""
    return not all(_is_said_of_each_axis(part) for part in conjuncts(tree))


def _is_said_of_each_axis(tree: ast.expr) -> bool:
    """True of a statement that holds of a whole where it holds along each axis, and of one about no axes at all.

    What is made of such statements, as one that does not hold, may hold of the whole and along no axis.
    """
    called = {name for name, _ in calls(tree)}
    if called <= _OF_NO_AXES:
        return True
    return (
        isinstance(tree, ast.Call)
        and not tree.keywords
        and isinstance(tree.func, ast.Name)
        and tree.func.id in _ALONG_EACH_AXIS
        and all(_is_broadcast(argument) or not calls(argument) for argument in tree.args)
    )


def calls(tree: ast.expr) -> list[tuple[str, ast.Call]]:
    """The calls inside an expression by the functions' names."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [(call.func.id if isinstance(call.func, ast.Name) else "", call) for call in calls]


def _bounded_ranks(rule: Rule) -> dict[str, int]:
    """The highest ranks that operands may have, of those of which operators or conditions say one."""
    ranks: dict[str, int] = {}
    apps = [app for root in rule.roots for app in applications(root)]
    #: Names that stand for members of sequences, and may be those of operands, too.
    loops = {name for app in apps for one in app.operands if isinstance(one, Spread) for name, _ in one.over}
    for app in apps:
        for name, rank in _said_by(app):
            if name not in loops:
                ranks[name] = min(ranks.get(name, rank), rank)
    parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
    #: The length of a record is how many attributes it has.
    records = {f"len {app.record}" for app in apps}
    for _ in range(len(parts) + 1):
        for part in parts:
            said = [one for one in _said_by_condition(part, ranks) if one[0] not in records]
            for name, rank in said:
                ranks[name] = min(ranks.get(name, rank), rank)
    return ranks


def open_lengths(rule: Rule) -> list[tuple[str, str]]:
    """The attributes of a left side that are as long as they like: names with the attribute's own, "shape" or "sizes",
    and "kernel" of what has no operands, where it has as many axes besides as batches and channels are.

    One that is a part of a record has the record's name.
    """
    found = []
    for app in (app for root in rule.roots for app in applications(root)):
        for attribute in ("shape", "sizes", *(() if app.operands else ("kernel",))):
            field = app.fields.get(attribute)
            if isinstance(field, Expression) and isinstance(field.tree, ast.Name):
                found.append((field.tree.id, attribute))
            elif field is None and attribute in spec(app.op).attrs and app.record is not None:
                found.append((app.record, attribute))
    return found


def _said_by(app: App) -> Iterator[tuple[str, int]]:
    for operand, rank in zip(app.operands, own_ranks(spec(app.op)), strict=False):
        if rank is not None:
            yield from ((name, rank) for name in _of_no_more_axes(operand))
    space = _counted_space(app)
    if space is not None:
        for operand, rank in zip(app.operands, _ranks_of_windows(spec(app.op), space), strict=False):
            if rank is not None:
                yield from ((name, rank) for name in _of_no_more_axes(operand))
    perm = app.fields.get("perm")
    first = app.operands[0] if app.operands else ABSENT
    if isinstance(first, Var):
        if isinstance(perm, Expression) and _is_counted(perm.tree):
            yield first.name, len(perm.tree.elts)
        elif isinstance(perm, tuple):
            yield first.name, len(perm)


def _counted_space(app: App) -> int | None:
    """The axes along which windows move, where an attribute is written with a number for each of them."""
    for name in ("kernel", "strides", "dilations"):
        field = app.fields.get(name)
        if spec(app.op).windowed and isinstance(field, Expression) and _is_counted(field.tree) and field.tree.elts:
            return len(field.tree.elts)
    return None


def _ranks_of_windows(declared: OpSpec, space: int) -> Iterator[int | None]:
    """The ranks of operands with so many axes of space: None of one that has none of these."""
    terms = () if declared.form is None else declared.form.terms
    for term in terms:
        yield term.fixed + space if term.open and not term.broadcasts else None


def _of_no_more_axes(operand: Pattern | Spread) -> Iterator[str]:
    """The operands that have no more axes than something that is made of them."""
    if isinstance(operand, Spread):
        if not operand.over:
            yield from _of_no_more_axes(operand.item)
    elif isinstance(operand, Var):
        yield operand.name
    elif operand != ABSENT:
        declared = spec(operand.op)
        alike = operand.op == "concat" or (declared.movement and declared.max_operands == 1 and keeps_rank(declared))
        for inner in operand.operands if declared.pointwise or alike else ():
            yield from _of_no_more_axes(inner)


def _is_counted(tree: ast.expr) -> TypeGuard[ast.Tuple]:
    """True of a tuple that is written with all its elements."""
    return isinstance(tree, ast.Tuple) and not any(isinstance(e, ast.Starred) for e in tree.elts)


def _said_by_condition(tree: ast.expr, known: dict[str, int]) -> Iterator[tuple[str, int]]:
    """Ranks that one condition bounds: by a number, some numbers, or the rank of another operand."""
    if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
        left, right, operation = tree.left, tree.comparators[0], tree.ops[0]
        if isinstance(operation, ast.Eq):
            for one, other in ((left, right), (right, left)):
                yield from _bound(one, other, known)
        elif isinstance(operation, ast.LtE | ast.Lt):
            yield from _bound(left, right, known, is_equation=False)
        elif isinstance(operation, ast.GtE | ast.Gt):
            yield from _bound(right, left, known, is_equation=False)
        elif isinstance(operation, ast.In) and isinstance(right, ast.Tuple):
            numbers = [e.value for e in right.elts if isinstance(e, ast.Constant) and isinstance(e.value, int)]
            name = _asked(left, "rank")
            if name is not None and numbers and len(numbers) == len(right.elts):
                yield name, max(numbers)
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _AGREED:
        yield from _agreed(tree, tree.func.id)
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in OF_ONE_RANK:
        yield from ((a.id, OF_ONE_RANK[tree.func.id]) for a in tree.args[:1] if isinstance(a, ast.Name))
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "mask_spans":
        yield from ((a.id, _HEADS) for a in tree.args[2:] if isinstance(a, ast.Name))
    elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "same_shape":
        names = [a.id for a in tree.args if isinstance(a, ast.Name)]
        least = min((known[n] for n in names if n in known), default=None)
        if least is not None:
            yield from ((name, least) for name in names)


def _agreed(tree: ast.Call, condition: str) -> Iterator[tuple[str, int]]:
    return ((a.id, _AGREED[condition]) for a in tree.args if isinstance(a, ast.Name))


@cache
def stated_operands(rule: Rule) -> dict[str, tuple[App, int, int]]:
    """The operands that have one rank, by their names: the application that takes one first, its place and the rank.

    Only those of which conditions say something together with others: what these say may be asked before all else.
    """
    if isinstance(rule.left, Siblings):
        return {}
    parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
    apps = [app for root in rule.roots for app in applications(root)]
    members = {name for app in apps for one in app.operands if isinstance(one, Spread) for name, _ in one.over}
    ranks = {name: rank for part in parts for name, rank in _stated_ranks(part)}
    together = set[str]()
    for part in parts:
        names = {node.id for node in ast.walk(part) if isinstance(node, ast.Name)} & rule.tensors
        together |= names if len(names) > 1 else set()
    found: dict[str, tuple[App, int, int]] = {}
    for app in apps:
        counted = itertools.takewhile(lambda one: not isinstance(one, Spread), app.operands)
        for place, operand in enumerate(counted):
            if isinstance(operand, Var) and operand.name in together - members:
                rank = ranks.get(operand.name, _taken_rank(app, place))
                if rank is not None:
                    found.setdefault(operand.name, (app, place, rank))
    return found


def _stated_ranks(tree: ast.expr) -> Iterator[tuple[str, int]]:
    """The ranks of operands that have one each by a condition."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in _AGREED:
        yield from _agreed(tree, tree.func.id)
    elif isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq):
        name, by = _asked(tree.left, "rank"), tree.comparators[0]
        if name is not None and isinstance(by, ast.Constant) and type(by.value) is int:
            yield name, by.value


def _taken_rank(app: App, place: int) -> int | None:
    """The one rank that an application takes at a place; None where it takes several."""
    declared, perm = spec(app.op), app.fields.get("perm")
    if place == 0 and isinstance(perm, Expression) and _is_counted(perm.tree):
        return len(perm.tree.elts)
    if place == 0 and isinstance(perm, tuple):
        return len(perm)
    own = own_ranks(declared)
    rank = own[place] if place < len(own) else None
    others = range(rank or 0)  # a rank of its own is the highest
    return rank if all(has_other_rank(declared, place, other) for other in others) else None


def _bound(
    asked: ast.expr, by: ast.expr, known: dict[str, int], *, is_equation: bool = True
) -> Iterator[tuple[str, int]]:
    name, shaped, counted = (_asked(asked, function) for function in ("rank", "shape", "len"))
    name = name if counted is None else f"len {counted}"  # of a sequence no operand has that name
    other = _asked(by, "rank")
    if name is not None and isinstance(by, ast.Constant) and isinstance(by.value, int):
        yield name, by.value
    elif name is not None and other in known:
        yield name, known[other]
    elif shaped is not None and is_equation and _is_counted(by):
        yield shaped, len(by.elts)
    elif is_equation and _is_counted(by) and by.elts:
        yield from _bound_by_part(asked, len(by.elts))


def _bound_by_part(asked: ast.expr, count: int) -> Iterator[tuple[str, int]]:
    """The ranks of an operand whose shape without some first, or last, sizes has so many, or of such an attribute."""
    if isinstance(asked, ast.Name):
        yield f"len {asked.id}", count
    if not isinstance(asked, ast.Subscript) or not isinstance(asked.slice, ast.Slice):
        return
    name = _asked(asked.value, "shape")
    left_out = part_length(asked.slice)
    if name is not None and left_out is not None:
        yield name, count + left_out


def _asked(tree: ast.expr, function: str) -> str | None:
    """The name of the operand that a call of a function is about."""
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == function and tree.args:
        first = tree.args[0]
        return first.id if isinstance(first, ast.Name) else None
    return None
