"""Sorts of expressions: what becomes of their values where all tensors lose one axis."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from inspect import signature
from typing import Any, Literal, TypeAlias

from eqsat.language.ops import OPS
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.proof.removal.frames import PRODUCTS, SCALAR, Frame, Frames, NotRemovable
from eqsat.rewrites.rules.rule import Rule

#: A `number` is the same without the axis, and so is an `opaque` one, which is not looked at. A `place` is one axis,
#: `places` are some and `count` their number, `perm` takes axes of a target to those of a frame. `dims` has an element
#: for each axis, but for as many at a `side`, by `offset`. A `rank` is a number of axes, with an offset; a `gap`
#: is between two frames, a `tail` the number of axes from a place on. A `slice` is a record of one, `attributes` is any
#: other.
Kind: TypeAlias = Literal[
    "number",
    "opaque",
    "place",
    "places",
    "perm",
    "dims",
    "rank",
    "gap",
    "tail",
    "count",
    "tuple",
    "slice",
    "attributes",
]


@dataclass(frozen=True, slots=True)
class Sort:
    """The sort of an expression, for places and shapes with the frame of which it is."""

    kind: Kind
    frame: Frame = SCALAR
    target: Frame = SCALAR
    name: str = ""
    offset: int = 0
    side: str = ""
    items: tuple[Sort, ...] = ()
    #: The number, where it is a literal.
    literal: int | None = None


NUMBER = Sort("number")
#: The name of a shape that is 1 along all axes but kept ones.
ONES = "ones"


def is_of_numbers(sort: Sort) -> bool:
    """True of a sequence of numbers."""
    return sort.kind == "tuple" and all(item.kind == "number" for item in sort.items)


#: What functions are declared to make that is no sequence.
_OF_ONE = frozenset({"int", "float", "bool", "str", "Dim", "bool | Fail"})

#: Functions of elements and types alone: what they say of tensors they say of parts of these.
OF_ELEMENTS = frozenset({"number", "dtype", "wide", "finite", "floating", "numeric", "constant", "static"})


class Sorts:
    """The sorts of the expressions of one rule."""

    def __init__(
        self,
        rule: Rule,
        frames: Frames,
        frame_of: Callable[[str], Frame],
        functions: Mapping[str, Callable[..., Sort]],
    ) -> None:
        self.rule, self.frames, self._frame_of, self._functions = rule, frames, frame_of, functions
        self.known: dict[str, Sort] = {}
        #: The operands that names in loops stand for members of.
        self.members: dict[str, str] = {}
        #: Operands that vary along no axis but kept ones.
        self.thin: frozenset[str] = frozenset()
        #: How many axes conditions say that sets have.
        self.counts: Mapping[str, int] = {}
        #: Whether sets of axes are told apart by the sizes along these.
        self.by_size = False
        #: The names that occur where sizes along sets of axes are asked for.
        self.sized: set[str] = set()
        #: Sets of axes along which sizes are multiplied.
        self.multiplied: set[str] = set()

    def of(self, tree: ast.expr) -> Sort:
        """The sort of an expression; NotRemovable where it may depend on the axis."""
        handler: Callable[[Any], Sort] | None = getattr(self, f"_{type(tree).__name__.lower()}", None)
        if handler is None:
            raise unknown(tree)
        return handler(tree)

    def number(self, tree: ast.expr) -> None:
        """Demand a number that the axis does not change."""
        if self.of(tree).kind != "number":
            raise unknown(tree)

    def place(self, sort: Sort, frame: Frame) -> Sort:
        """A sort as that of an axis of a frame."""
        if frame.fixed is not None and (
            sort.kind == "number" or (sort.kind == "place" and sort.frame.fixed is not None)
        ):
            return Sort("place", frame)
        if sort.kind == "number" and sort.literal is not None:
            if sort.literal < 0:
                self.frames.keep_right(frame, -sort.literal)
            else:
                self.frames.keep_left(frame, sort.literal + 1)
            return Sort("place", frame)
        if sort.kind == "rank" and sort.offset < 0 and self.frames.is_same(sort.frame, frame):
            self.frames.keep_right(frame, -sort.offset)
            return Sort("place", frame)
        if sort.kind == "place" and sort.side == "right" and frame.fixed is None:
            # Counted from the last axis, at which operands are aligned.
            is_moved = sort.frame.moves != frame.moves
            if not is_moved and self.frames.is_same(self.frames.join([sort.frame, frame]), frame):
                return sort
        elif sort.kind == "place" and self.frames.is_same(sort.frame, frame):
            return sort
        raise NotRemovable(f"{sort.kind} as an axis")

    def places(self, sort: Sort, frame: Frame) -> Sort:
        """A sort as that of a set of axes of a frame, all of which are of one operand."""
        if not frame.is_counted:
            raise NotRemovable("axes of several operands")
        if sort.kind == "tuple":
            for item in sort.items:
                self.place(item, frame)
            return Sort("places", frame)
        if sort.kind == "places" and self.frames.is_same(sort.frame, frame):
            return sort
        raise NotRemovable(f"{sort.kind} as axes")

    def dims(self, sort: Sort) -> Frame:
        """The frame of a sort as that of a shape."""
        if is_of_numbers(sort):
            return Frame(fixed=len(sort.items), exact=True)
        if sort.kind == "dims" and not sort.offset:
            return sort.frame
        if sort.kind == "dims" and sort.offset < 0 and sort.side in ("right", "left"):
            if not self.frames.has_at_least(sort.frame, -sort.offset):
                raise NotRemovable("a shape without sizes that it may not have")
            if sort.side == "left":
                return sort.frame.without_first(-sort.offset)
            shorter = sort.frame
            for _ in range(-sort.offset):
                shorter = shorter.without_end(-1)
            return shorter
        raise NotRemovable(f"{sort.kind} as a shape")

    def frame(self, tree: ast.expr) -> Frame:
        """The frame of an operand that an expression names, or of some that it broadcasts."""
        if isinstance(tree, ast.Name):
            return self._frame_of(self.members.get(tree.id, tree.id))
        if isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name):
            self.number(tree.slice)
            if tree.value.id in self.rule.tensor_groups:
                return self._frame_of(tree.value.id)
        name = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""
        if not (isinstance(tree, ast.Call) and name in OPS) or tree.keywords:
            raise unknown(tree)
        frames = list(map(self.frame, tree.args))
        if name in PRODUCTS:
            return self.frames.product(frames, name)
        if not OPS[name].pointwise:
            raise unknown(tree)
        return self.frames.join(frames)

    def _constant(self, tree: ast.Constant) -> Sort:
        return replace(NUMBER, literal=tree.value if type(tree.value) is int else None)

    def _name(self, tree: ast.Name) -> Sort:
        if tree.id not in self.known:
            raise unknown(tree)
        return self.known[tree.id]

    def _unaryop(self, tree: ast.UnaryOp) -> Sort:
        sort = self.of(tree.operand)
        if sort.kind != "number":
            raise unknown(tree)
        negative = isinstance(tree.op, ast.USub) and sort.literal is not None
        return replace(NUMBER, literal=-sort.literal) if negative and sort.literal is not None else NUMBER

    def _tuple(self, tree: ast.Tuple) -> Sort:
        return Sort("tuple", items=tuple(map(self.of, tree.elts)))

    _list = _tuple

    def _listcomp(self, tree: ast.ListComp) -> Sort:
        loop = tree.generators[0]
        group, member = loop.iter, loop.target
        if not (isinstance(group, ast.Name) and isinstance(member, ast.Name)) or loop.ifs or len(tree.generators) > 1:
            raise unknown(tree)
        if group.id not in self.rule.tensor_groups:
            raise unknown(tree)
        self.members[member.id] = group.id
        self.number(tree.elt)
        return Sort("opaque", name=ast.unparse(tree))

    def _ifexp(self, tree: ast.IfExp) -> Sort:
        self.number(tree.test)
        one, other = self.of(tree.body), self.of(tree.orelse)
        are_alike = is_of_numbers(one) and is_of_numbers(other) and len(one.items) == len(other.items)
        if not (are_alike or one.kind == other.kind == "number"):
            raise unknown(tree)
        return Sort("tuple", items=(NUMBER,) * len(one.items)) if are_alike else NUMBER

    def _compare(self, tree: ast.Compare) -> Sort:
        for part in (tree.left, *tree.comparators):
            self.number(part)
        return NUMBER

    def _attribute(self, tree: ast.Attribute) -> Sort:
        record = self.of(tree.value)
        name = f"{record.name}.{tree.attr}"
        if record.kind not in ("slice", "attributes") or name not in self.known:
            raise unknown(tree)
        return self.known[name]

    def _subscript(self, tree: ast.Subscript) -> Sort:
        sort = self.of(tree.value)
        if isinstance(tree.slice, ast.Slice):
            return self._part(tree, sort, tree.slice)
        index = self.of(tree.slice)
        if sort.kind == "tuple" and index.literal is not None and -len(sort.items) <= index.literal < len(sort.items):
            return sort.items[index.literal]
        if sort.kind == "dims" and not sort.offset:
            self.place(index, sort.frame)
            return NUMBER
        count = self.counts.get(sort.name, 0) if sort.kind == "places" and not sort.side else 0
        if index.literal is not None and 0 <= index.literal < count:
            # None of a set with so many axes is lost.
            return Sort("place", sort.frame, name=f"{sort.name}[{index.literal}]")
        if sort.kind == "perm":
            place = self.place(index, sort.target)
            return Sort("place", sort.frame, name=place.name)
        raise unknown(tree)

    def _part(self, tree: ast.Subscript, sort: Sort, part: ast.Slice) -> Sort:
        """The sort of all elements of a shape but some first or last ones."""
        ends = [None if end is None else self.of(end).literal for end in (part.lower, part.upper)]
        if sort.kind != "dims" or sort.offset or part.step is not None:
            raise unknown(tree)
        lower, upper = ends
        if part.lower is None and upper is not None and upper < 0:
            self.frames.keep_right(sort.frame, -upper)
            return replace(sort, offset=upper, side="right")
        if part.upper is None and lower is not None and lower > 0:
            self.frames.keep_left(sort.frame, lower)
            return replace(sort, offset=-lower, side="left")
        raise unknown(tree)

    def _binop(self, tree: ast.BinOp) -> Sort:
        one, other = self.of(tree.left), self.of(tree.right)
        if one.kind == other.kind == "number":
            return NUMBER
        if isinstance(tree.op, ast.Sub):
            if one.kind == "rank" and other.literal is not None:
                return replace(one, offset=one.offset - other.literal)
            if one.kind == other.kind == "rank" and one.offset == other.offset and one.frame.moves == other.frame.moves:
                return Sort("gap", one.frame, other.frame)
            is_same = self.frames.is_same(one.frame, other.frame)
            if (one.kind, other.kind) == ("place", "rank") and not other.offset and is_same:
                return replace(one, side="right")
            if (one.kind, other.kind) == ("rank", "place") and not one.offset and other.name and is_same:
                return Sort("tail", one.frame, name=other.name)
        if isinstance(tree.op, ast.Add):
            return self._joined(tree, one, other)
        raise unknown(tree)

    def _joined(self, tree: ast.BinOp, one: Sort, other: Sort) -> Sort:
        """The sort of a shape after another."""
        if one.kind == other.kind == "tuple":
            return Sort("tuple", items=(*one.items, *other.items))
        if one.kind == "tuple" and other.kind == "dims" and other.side in ("left", "any"):
            count = len(self._numbers(tree, one))
            if other.offset <= -count and self.frames.has_at_least(other.frame, -other.offset):
                self.frames.keep_left(other.frame, -other.offset)
                return replace(other, offset=0, side="", frame=other.frame.without_first(-other.offset - count))
            if other.offset == -count:
                self.frames.keep_left(other.frame, count)
                return replace(other, offset=0, side="")
        if one.kind == "dims" and other.kind == "tuple" and one.side == "right":
            count = len(self._numbers(tree, other))
            if one.offset == -count:
                return replace(one, offset=0, side="")
        is_spread = (one.kind, one.side, other.kind) == ("gap", "ones", "dims") and not other.offset
        if is_spread and self.frames.is_within(other.frame, one.frame) and self.frames.is_same(one.target, other.frame):
            return replace(other, frame=one.frame)
        raise unknown(tree)

    def _numbers(self, tree: ast.expr, sort: Sort) -> Sequence[Sort]:
        if not is_of_numbers(sort):
            raise unknown(tree)
        return sort.items

    def _generatorexp(self, tree: ast.GeneratorExp) -> Sort:
        """Some of a set of axes, or their sizes."""
        loop = tree.generators[0]
        found = self.of(loop.iter)
        if found.kind != "places" or not isinstance(loop.target, ast.Name) or len(tree.generators) > 1:
            raise unknown(tree)
        before = self.known.get(loop.target.id)
        self.known[loop.target.id] = Sort("place", found.frame)
        try:
            for condition in loop.ifs:
                self.is_size_one(condition, loop.target.id)
                self.by_size = True
            inner = self.of(tree.elt)
            if inner.kind == "number":
                self.size(tree.elt, loop.target.id)
        finally:
            if before is None:
                del self.known[loop.target.id]
        if isinstance(tree.elt, ast.Name) and tree.elt.id == loop.target.id:
            return replace(found, side="filtered") if loop.ifs else found
        if inner.kind == "number" and not loop.ifs:
            return replace(found, kind="opaque", side="sizes")
        raise unknown(tree)

    def size(self, tree: ast.expr, target: str) -> None:
        """Demand the size along the axis that a loop is at: for two axes taken for one it is their product."""
        index: ast.expr | None = None
        if isinstance(tree, ast.Subscript) and self.of(tree.value).kind == "dims":
            index = tree.slice
        elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "dim":
            index = tree.args[1] if len(tree.args) == 2 else None
        if index is None or target not in {node.id for node in ast.walk(index) if isinstance(node, ast.Name)}:
            raise unknown(tree)
        self.number(tree)
        self.sized |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}

    def is_size_one(self, tree: ast.expr, target: str) -> None:
        """Demand that a condition asks whether the size along the axis that a loop is at is 1, or is not."""
        if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq | ast.NotEq)):
            raise unknown(tree)
        self.size(tree.left, target)
        if self.of(tree.comparators[0]).literal != 1:
            raise unknown(tree)

    def _call(self, tree: ast.Call) -> Sort:
        if not isinstance(tree.func, ast.Name) or tree.keywords:
            raise unknown(tree)
        function = self._functions.get(tree.func.id)
        if function is not None:
            try:
                given = signature(function).bind(self, tree, *tree.args)
            except TypeError:
                raise unknown(tree) from None
            return function(*given.args)
        if tree.func.id in OF_ELEMENTS and all(isinstance(one, ast.Name | ast.Subscript) for one in tree.args):
            for one in tree.args:
                self.frame(one)
            return NUMBER
        if tree.func.id in FUNCTIONS and _makes_number(tree.func.id) and all(map(self._is_kept, tree.args)):
            return NUMBER
        raise unknown(tree)

    def _is_kept(self, tree: ast.expr) -> bool:
        """True of an operand that never loses an axis, and of a number that does not depend on one."""
        if isinstance(tree, ast.Name) and tree.id in self.rule.tensors:
            frame = self.frame(tree)
            return frame.fixed is not None and frame.exact
        return self.of(tree).kind == "number"


def _makes_number(name: str) -> bool:
    """True of a function that makes one number or statement: a sequence would say of how many axes it is."""
    return FUNCTIONS[name].__annotations__.get("return") in _OF_ONE


def unknown(tree: ast.expr) -> NotRemovable:
    """The refusal of an expression."""
    return NotRemovable(ast.unparse(tree))
