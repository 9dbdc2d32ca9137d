"""Frames of what operators make that move elements."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from eqsat.language.declaration import OpSpec
from eqsat.language.terms.pattern import ABSENT, App, Spread, Var
from eqsat.rewrites.proof.removal.frames import Frame, NotRemovable
from eqsat.rewrites.proof.removal.patterns import PatternFrames, Sized
from eqsat.rewrites.proof.removal.sorts import NUMBER, ONES, Sort
from eqsat.rewrites.rules.rule import SPLICE


def _bound(patterns: PatternFrames, tree: ast.expr, sort_of: Callable[[str], Sort]) -> Sort:
    """The sort of an attribute, which a name that stands there first on the left side is bound to."""
    if isinstance(tree, ast.Name) and tree.id not in patterns.sorts.known and patterns.is_left:
        patterns.sorts.known[tree.id] = sort_of(tree.id)
    return patterns.sorts.of(tree)


def _transpose(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    ((frame, keys),) = terms
    expression = app.fields.get("perm")
    if expression is None:
        raise NotRemovable("transpose by a record")
    still = patterns.said.identities
    sort = _bound(
        patterns,
        expression.tree,
        lambda name: Sort("perm", frame, frame if name in still else frame.moved(name), name=name),
    )
    if sort.kind == "tuple" and frame.fixed is not None:
        return frame, keys
    if sort.kind != "perm" or not patterns.frames.is_same(sort.frame, frame):
        raise NotRemovable("transpose of another frame")
    return sort.target, keys


def _concat(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    frames = [frame for frame, _ in terms]
    patterns.demand_same(frames, "concat")
    if patterns.is_left:
        # Members have as many axes each, as a concatenation has no other type.
        spreads = [(o, f) for o, f in zip(app.operands, frames, strict=True) if isinstance(o, Spread)]
        patterns.uniform |= {name for _, f in spreads if len(f.longest) == 1 for name in f.longest}
    patterns.attributes(app, declared, {"axis": frames[0]})
    return frames[0], frozenset().union(*(keys for _, keys in terms))


def _split(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    patterns.attributes(app, declared, {"axis": terms[0][0]})
    return terms[0]


def _slice(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    ((frame, keys),) = terms
    splice = app.fields.get(SPLICE)
    if splice is not None:
        record = patterns.sorts.of(splice.tree)
        if record.kind != "slice" or not patterns.frames.is_same(record.frame, frame) or app.record is not None:
            raise NotRemovable("a slice of another frame")
        if not record.name:
            return frame, keys
        name = record.name
    elif app.record is not None:
        if app.fields:
            raise NotRemovable("a slice of a record and more")
        patterns.record(app, declared, Sort("slice", frame, name=app.record), {"axes": frame})
        name = app.record
    else:
        axes = patterns.attributes(app, declared, {"axes": frame}, frame)["axes"]
        if not axes.name:
            return frame, keys
        name = ", ".join(ast.unparse(field.tree) for _, field in sorted(app.fields.items()))
    patterns.sliced.add(name)
    patterns.cuts[id(app)] = name
    return frame, keys


def _tile(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    ((frame, keys),) = terms
    expression = app.fields.get("repeats")
    if expression is None or app.record is not None:
        raise NotRemovable("tile by a record")
    tree = expression.tree
    repeats = _bound(patterns, tree, lambda _: Sort("dims", frame))
    if not patterns.frames.is_same(patterns.sorts.dims(repeats), frame):
        raise NotRemovable("tile of another frame")
    patterns.sliced.add(f"tile {ast.unparse(tree)}")
    patterns.cuts[id(app)] = f"tile {ast.unparse(tree)}"
    return frame, keys


def _gather(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    (frame, keys), (inner, more) = terms
    named = patterns.attributes(app, declared, {"axis": frame}, frame)["axis"]
    if inner.exact and inner.fixed == 1:
        return frame, keys  # along an axis that is kept, as a slice
    if frame.fixed is not None or not named.name or not isinstance(app.operands[1], Var):
        raise NotRemovable("gather along an axis that is counted, or by what is made")
    if keys & more:
        raise NotRemovable("indices at two places at once")
    # The axes of the indices are in place of the one that is named, and each may be lost as any other.
    return frame.moved(f"gathered {named.name} by {app.operands[1].name}"), keys | more


def _eye(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    patterns.attributes(app, declared, {})
    return Frame(fixed=2, exact=True), frozenset()


def _expand(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    ((frame, keys),) = terms
    shape, more = _shape(patterns, app)
    return patterns.spread([frame, shape], [keys, more])


def _fill(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    shape = _shape(patterns, app)
    for name, expression in app.fields.items():
        if name != "shape":
            _bound(patterns, expression.tree, lambda _: NUMBER)
            patterns.sorts.number(expression.tree)
    return shape


def _shape(patterns: PatternFrames, app: App) -> Sized:
    """The frame of the attribute `shape`, and the operands on whose sizes it depends."""
    expression = app.fields.get("shape")
    if expression is None or app.record is not None:
        raise NotRemovable(f"{app.op} by a record")
    tree = expression.tree
    frame = patterns.sorts.dims(_bound(patterns, tree, lambda name: Sort("dims", patterns.frame_of(f"len {name}"))))
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    operands = {patterns.members.get(name, name) for name in names} - patterns.said.thin
    return frame, frozenset() if frame.fixed is not None else frozenset(operands & patterns.sized_names)


def _reshape(patterns: PatternFrames, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
    ((frame, keys),) = terms
    expression = app.fields.get("shape")
    if expression is None or app.record is not None:
        raise NotRemovable("reshape by a record")
    sort = _bound(patterns, expression.tree, lambda name: Sort("dims", patterns.frame_of(f"len {name}")))
    inner = app.operands[0]
    target = patterns.sorts.dims(sort)
    if not keys and patterns.is_thin(inner):
        if target.fixed is None and sort.name != ONES and not patterns.is_single(inner):
            raise NotRemovable("reshape of several elements along axes that may be lost")
        return target, keys
    if isinstance(inner, Var) and (inner.name, ast.unparse(expression.tree)) in patterns.said.shapes:
        return frame, keys  # its own shape
    # Only the axes of the very tensor that is reduced come back, each as long as it was.
    is_same = _shape_of(expression.tree) == (inner.operands[0] if isinstance(inner, App) and inner.operands else ABSENT)
    reduction = inner.fields.get("axes") if isinstance(inner, App) and inner.op.startswith("reduce_") else None
    if reduction is not None and is_same and isinstance(inner, App) and inner.fields.get("keepdims") is not None:
        name = patterns.sorts.of(reduction.tree).name
        drops, ones = sort.name == "dropped", sort.name == f"ones at {name}"
        moved = patterns.frames.plain(frame).moved(f"without {name}")
        if name and drops and patterns.frames.plain(target) == moved and target != frame:
            return target, keys
        if name and ones and patterns.frames.is_same(target.moved(f"without {name}"), frame):
            return target, keys
    raise NotRemovable("reshape")


def _shape_of(tree: ast.expr) -> Var | None:
    """The operand whose shape, without elements at some axes, an expression is."""
    shape = tree.args[0] if isinstance(tree, ast.Call) and tree.args else None
    of = shape.args[0] if isinstance(shape, ast.Call) and ast.unparse(shape.func) == "shape" and shape.args else None
    return Var(of.id) if isinstance(of, ast.Name) else None


#: The operators that are followed, by name.
MOVEMENTS: Mapping[str, Callable[[PatternFrames, App, OpSpec, Sequence[Sized]], Sized]] = MappingProxyType(
    {
        "transpose": _transpose,
        "concat": _concat,
        "split": _split,
        "slice": _slice,
        "tile": _tile,
        "gather": _gather,
        "eye": _eye,
        "expand": _expand,
        "fill": _fill,
        "reshape": _reshape,
    }
)
