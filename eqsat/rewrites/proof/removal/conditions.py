"""Conditions that still hold where all tensors lose one axis."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.removal.frames import Frames, NotRemovable
from eqsat.rewrites.proof.removal.sorts import OF_ELEMENTS, Sort, Sorts, is_of_numbers
from eqsat.rewrites.proof.removal.statements import RankStatements, shape_names
from eqsat.rewrites.rules.rule import Rule

#: Conditions on elements, types and shapes that hold of parts of tensors where they hold of the whole.
_OF_PARTS = OF_ELEMENTS | {
    "is_all",
    "is_uniform",
    "is_zero",
    "is_positive",
    "is_nonnegative",
    "invertible",
    "spans",
    "same_shape",
}


class Conditions:
    """The conditions of one rule: what they say of frames, and whether they bear the loss of an axis."""

    def __init__(self, rule: Rule, frames: Frames, said: RankStatements) -> None:
        self.frames, self.said = frames, said
        self._groups = rule.tensor_groups
        #: Operands that do not vary along sets of axes, and those that have all elements along them, with what else is
        #: broadcast there.
        self.thin_at: set[tuple[str, str]] = set()
        self.full_at: dict[tuple[str, str], frozenset[str]] = {}
        #: Slices and sets of axes that have none in common, and sets with the number of their axes.
        self.apart: set[tuple[str, str]] = set()
        self.counted: dict[str, int] = {}
        #: Sets that are not empty.
        self.filled: set[str] = set()
        #: How many axes conditions keep beside those with names.
        self.witnesses = 0

    def check(self, sorts: Sorts) -> None:
        """NotRemovable where a condition may not hold of what is left of an instance."""
        sorts.thin = frozenset(self.said.thin)
        for part in self.said.parts:
            self._check(part, sorts)

    def _check(self, tree: ast.expr, sorts: Sorts) -> None:
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            self._check_call(tree, tree.func.id, sorts)
        elif isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            self._check_not(tree.operand, sorts)
        elif isinstance(tree, ast.Compare):
            self._check_compare(tree, sorts)
        elif isinstance(tree, ast.BoolOp):
            self._check_some(tree.values, sorts)
        else:
            sorts.number(tree)

    def _check_some(self, parts: Sequence[ast.expr], sorts: Sorts) -> None:
        """Check that one of some statements holds, each of them of numbers and ranks: that one still does."""
        for part in parts:
            if isinstance(part, ast.BoolOp):
                self._check_some(part.values, sorts)
            elif isinstance(part, ast.Compare):
                if not {sorts.of(one).kind for one in (part.left, *part.comparators)} <= {"number", "rank"}:
                    raise NotRemovable(ast.unparse(part))
                self._check_compare(part, sorts)
            else:
                raise NotRemovable(ast.unparse(part))

    def _check_call(self, tree: ast.Call, name: str, sorts: Sorts) -> None:
        if name in _OF_PARTS:
            if name in ("spans", "same_shape"):
                self._check_broadcast(tree, sorts)
            for one in tree.args:
                if isinstance(one, ast.Name) and one.id in sorts.known:
                    sorts.number(one)
                elif not isinstance(one, ast.Constant | ast.UnaryOp):
                    sorts.frame(one)
        elif name == "along_only":
            frame = sorts.of(tree.args[2])
            sorts.number(tree.args[3])
            if frame.kind == "rank" and not frame.offset:
                sorts.place(sorts.of(tree.args[1]), frame.frame)
            else:
                rank = frame.literal
                if rank is None and isinstance(tree.args[2], ast.Call) and ast.unparse(tree.args[2].func) == "rank":
                    rank = sorts.frame(tree.args[2].args[0]).fixed
                if rank is None or rank < 0:
                    raise NotRemovable(ast.unparse(tree))
                if sorts.of(tree.args[1]).kind not in ("number", "place"):
                    raise NotRemovable(ast.unparse(tree))
                sorts.frames.keep_right(sorts.frame(tree.args[0]), rank)  # it has no more axes
        elif name == "off_axis":
            self._check_off_axis(tree, sorts)
        elif name == "positive_dims":
            sorts.places(sorts.of(tree.args[1]), sorts.frame(tree.args[0]))
        elif name in ("all", "any") and isinstance(tree.args[0], ast.GeneratorExp):
            self._check_each(tree.args[0], name, sorts)
        else:
            sorts.number(tree)

    def _check_broadcast(self, tree: ast.Call, sorts: Sorts) -> None:
        """Check a statement of several shapes: none of a bounded operand beside one that is not known to be longer."""
        frames = [sorts.frame(one) for one in tree.args]
        sorts.frames.join(frames)
        is_bounded = {frame.fixed is not None for frame in frames}
        if ast.unparse(tree.func) == "same_shape" and len(is_bounded) > 1:
            raise NotRemovable(ast.unparse(tree))

    def _check_off_axis(self, tree: ast.Call, sorts: Sorts) -> str:
        """Check that an operand does not vary along an axis; its name."""
        operand, axis, rank = tree.args
        frame = sorts.of(rank)
        if frame.kind != "rank" or frame.offset or not isinstance(operand, ast.Name):
            raise NotRemovable(ast.unparse(tree))
        sorts.place(sorts.of(axis), frame.frame)
        sorts.frames.join([sorts.frame(operand), frame.frame])
        return operand.id

    def _check_not(self, tree: ast.expr, sorts: Sorts) -> None:
        """Check the opposite of a condition: that its operands share no axis, or what proofs leave out."""
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "any":
            inner = tree.args[0]
            if isinstance(inner, ast.GeneratorExp) and isinstance(inner.elt, ast.Compare):
                negated = ast.GeneratorExp(ast.UnaryOp(ast.Not(), inner.elt), inner.generators)
                self._check_each(negated, "all", sorts)
                return
        called = tree.func.id if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) else ""
        if called in ("constant", "is_all", "is_zero", "is_uniform", "is_positive", "is_nonnegative", "invertible"):
            return  # of elements, which no proof uses
        if called == "spans" and isinstance(tree, ast.Call):
            # There is an axis along which the second has more elements, or which it has alone: that one is kept.
            self._check_broadcast(tree, sorts)
            self.witnesses += 1
            return
        sorts.number(tree)

    def _check_each(self, tree: ast.GeneratorExp, name: str, sorts: Sorts) -> None:
        """Check a condition on each member of a sequence, or on each of some axes."""
        (loop, *others) = tree.generators
        if others or loop.ifs or not isinstance(loop.target, ast.Name):
            raise NotRemovable(ast.unparse(tree))
        target = loop.target.id
        if isinstance(loop.iter, ast.Name) and loop.iter.id in self._groups and name == "all":
            sorts.members[target] = loop.iter.id
            for part in conjuncts(tree.elt):
                self._check(part, sorts)
            return
        places = sorts.of(loop.iter)
        if places.kind == "dims" and name == "all" and ast.unparse(tree.elt) == f"{target} == 1":
            return  # of each size, so that it is of those that are left
        if places.kind != "places" or places.side or target in sorts.known:
            raise NotRemovable(ast.unparse(tree))
        sorts.known[target] = Sort("place", places.frame)
        try:
            if name == "any":
                sorts.is_size_one(tree.elt, target)
                self.witnesses, sorts.by_size = self.witnesses + 1, True
            else:
                for part in conjuncts(tree.elt):
                    self._check_axis(part, target, places, sorts)
        finally:
            del sorts.known[target]

    def _check_axis(self, tree: ast.expr, target: str, places: Sort, sorts: Sorts) -> None:
        """Check what is said of each of some axes."""
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "off_axis":
            self.thin_at.add((self._check_off_axis(tree, sorts), places.name))
            return
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.operand, ast.Compare):
            tree = tree.operand
            if isinstance(tree.ops[0], ast.In) and ast.unparse(tree.left) == target:
                other = sorts.places(sorts.of(tree.comparators[0]), places.frame)
                if other.side:
                    raise NotRemovable(ast.unparse(tree))
                self.apart |= {(places.name, other.name), (other.name, places.name)}
                return
            raise NotRemovable(ast.unparse(tree))
        if isinstance(tree, ast.Compare) and len(tree.ops) == 1:
            left, right, operation = tree.left, tree.comparators[0], tree.ops[0]
            if isinstance(operation, ast.Eq):
                sorts.size(left, target)
                sorts.size(right, target)
                self._note_full(left, right, places.name)
                self._note_full(right, left, places.name)
                return
            if isinstance(operation, ast.Gt) and sorts.of(right).literal == 0:
                sorts.size(left, target)
                return
            if isinstance(operation, ast.Lt) and ast.unparse(left) == target:
                cut = sorts.place(sorts.of(right), places.frame)
                self.apart |= {(places.name, cut.name), (cut.name, places.name)}
                return
        raise NotRemovable(ast.unparse(tree))

    def _note_full(self, one: ast.expr, other: ast.expr, places: str) -> None:
        """Note an operand that has all elements along axes: ``dim(x, i) == broadcast(shape(x), s)[…]``."""
        if not (isinstance(one, ast.Call) and isinstance(other, ast.Subscript) and isinstance(other.value, ast.Call)):
            return
        operand, broadcast = one.args[0], other.value
        if ast.unparse(one.func) == "dim" and isinstance(operand, ast.Name):
            parts = {name for argument in broadcast.args for name in shape_names(argument)}
            if ast.unparse(broadcast.func) == "broadcast" and operand.id in parts:
                self.full_at[operand.id, places] = frozenset(part.removeprefix("len ") for part in parts)

    def _check_compare(self, tree: ast.Compare, sorts: Sorts) -> None:
        parts = [tree.left, *tree.comparators]
        for one, operation, other in zip(parts, tree.ops, parts[1:], strict=False):
            self._check_pair(one, operation, other, sorts)

    def _check_pair(self, one: ast.expr, operation: ast.cmpop, other: ast.expr, sorts: Sorts) -> None:
        if isinstance(operation, ast.Eq) and _is_end_of_perm(one, other, sorts):
            return
        left, right = sorts.of(one), sorts.of(other)
        if isinstance(operation, ast.Eq) and _is_place_in_perm(one, sorts) and (right.literal or -1) > 0:
            sorts.frames.shared.add(f"{ast.unparse(one)} == {right.literal}")
        kinds = (left.kind, right.kind)
        text = f"{ast.unparse(one)} and {ast.unparse(other)}"
        if isinstance(operation, ast.In | ast.NotIn):
            if right.kind == "places":
                sorts.place(left, right.frame)
                return
            self._check_listed(left, operation, right, text)
        elif kinds == ("number", "number"):
            return
        elif left.kind == "place" or right.kind == "place":
            place, given = (left, right) if left.kind == "place" else (right, left)
            sorts.place(given, place.frame)
        elif kinds == ("rank", "number") or kinds == ("number", "rank"):
            rank, number = (left, right) if left.kind == "rank" else (right, left)
            turned = operation if left.kind == "rank" else _turned(operation)
            self._check_least(rank, number, turned, text)
        elif kinds == ("rank", "rank"):
            self._check_ranks(left, operation, right, text)
        elif "tail" in kinds:
            # Only what comes before the tail, or is in it and in the operand, is lost: the difference is never less.
            is_below = left.kind == "rank" and right.kind == "tail" and isinstance(operation, ast.LtE)
            if not is_below or left.offset or left.frame.moves != right.frame.moves:
                raise NotRemovable(text)
        elif left.kind == "count":
            self._check_count(left, operation, right, text)
        elif "places" in kinds and isinstance(operation, ast.Eq):
            places, given = (left, right) if left.kind == "places" else (right, left)
            sorts.places(given, places.frame)
            if given.kind == "tuple" and places.name:
                self._count(places, 0, text)  # all of them are kept one by one
        elif kinds == ("perm", "perm") and isinstance(operation, ast.Eq):
            if not sorts.frames.is_same(left.frame, right.frame):
                raise NotRemovable(text)
        elif "dims" in kinds and isinstance(operation, ast.Eq):
            self._check_shapes(left, right, text, sorts)
        elif kinds == ("tuple", "tuple") and isinstance(operation, ast.Eq):
            if not (is_of_numbers(left) and is_of_numbers(right)):
                raise NotRemovable(text)
        else:
            raise NotRemovable(text)

    def _check_listed(self, left: Sort, operation: ast.cmpop, right: Sort, text: str) -> None:
        """Check that a number is one of some, or a rank, none of whose axes is lost then.

        Of a rank that is none of these one more stays: above all of them it is none of them still.
        """
        if not is_of_numbers(right):
            raise NotRemovable(text)
        if left.kind == "rank" and not left.offset and all(item.literal is not None for item in right.items):
            most = max((item.literal or 0 for item in right.items), default=0)
            self.frames.keep_right(left.frame, most + isinstance(operation, ast.NotIn))
        elif left.kind != "number":
            raise NotRemovable(text)

    def _check_least(self, rank: Sort, number: Sort, operation: ast.cmpop, text: str) -> None:
        """Check a comparison of a rank with a number: of the axes that a lower bound asks for none is lost."""
        if number.literal is None or isinstance(operation, ast.NotEq):
            raise NotRemovable(text)
        least = number.literal - rank.offset + isinstance(operation, ast.Gt)
        if isinstance(operation, ast.Gt | ast.GtE):
            self.frames.ask(rank.frame, least)
        else:
            self.frames.keep_right(rank.frame, least)

    def _check_ranks(self, left: Sort, operation: ast.cmpop, right: Sort, text: str) -> None:
        """Check a comparison of ranks, of which the last axes go together."""
        if left.offset or right.offset or left.frame.moves != right.frame.moves:
            raise NotRemovable(text)
        if isinstance(operation, ast.Gt | ast.Lt):
            # The first axis of the longer one is in it alone.
            self.frames.keep_left(left.frame if isinstance(operation, ast.Gt) else right.frame, 1)
        elif not isinstance(operation, ast.GtE | ast.LtE | ast.Eq):
            raise NotRemovable(text)

    def _check_count(self, left: Sort, operation: ast.cmpop, right: Sort, text: str) -> None:
        """Check a comparison of the number of axes in a set: of a set with so many, none is taken for another."""
        if right.literal is None:
            raise NotRemovable(text)
        if isinstance(operation, ast.Eq):
            self._count(left, right.literal, text)
        elif isinstance(operation, ast.Gt) and right.literal == 0 and left.name and not left.side:
            self.filled |= set(left.name.split("+"))
        else:
            raise NotRemovable(text)

    def _count(self, places: Sort, number: int, text: str) -> None:
        """Note how many axes a set has, none of which is taken for another then: all are kept."""
        if not places.name or "+" in places.name or places.side:
            raise NotRemovable(text)
        self.counted[places.name] = max(number, self.counted.get(places.name, 0))

    def _check_shapes(self, left: Sort, right: Sort, text: str, sorts: Sorts) -> None:
        """Check that two shapes are equal, or two that lack one element at the same kept place."""
        if "tuple" in (left.kind, right.kind):
            dims, given = (left, right) if left.kind == "dims" else (right, left)
            if dims.kind != "dims" or dims.frame.fixed is None or not is_of_numbers(given):
                raise NotRemovable(text)
            return
        is_alike = (left.offset, left.side, left.name) == (right.offset, right.side, right.name)
        if not is_alike or not sorts.frames.is_same(left.frame, right.frame):
            raise NotRemovable(text)


def _turned(operation: ast.cmpop) -> ast.cmpop:
    opposite = {ast.Lt: ast.Gt, ast.Gt: ast.Lt, ast.LtE: ast.GtE, ast.GtE: ast.LtE}
    return opposite.get(type(operation), type(operation))()


def _is_end_of_perm(one: ast.expr, other: ast.expr, sorts: Sorts) -> bool:
    """True for a statement of where a permutation has its last axes: ``p[-2:] == (len(p) - 1, len(p) - 2)``."""
    if not (isinstance(one, ast.Subscript) and isinstance(one.slice, ast.Slice) and isinstance(one.value, ast.Name)):
        return False
    sort = sorts.known.get(one.value.id)
    lower = sorts.of(one.slice.lower).literal if one.slice.lower is not None and one.slice.upper is None else None
    if sort is None or sort.kind != "perm" or lower is None or lower >= 0 or not isinstance(other, ast.Tuple):
        return False
    sorts.frames.keep_right(sort.target, -lower)
    places = [sorts.of(item) for item in other.elts]
    for place in places:
        if place.kind != "rank" or not sorts.frames.is_same(place.frame, sort.target) or place.offset >= 0:
            return False
        sorts.frames.keep_right(sort.frame, -place.offset)
    if {place.offset for place in places} == set(range(lower, 0)):
        sorts.frames.ends[sort.target.moves] = (sort.frame.moves, -lower)
    return True


def _is_place_in_perm(tree: ast.expr, sorts: Sorts) -> bool:
    """True of one element of a permutation, by a number from the left above 0."""
    if not (isinstance(tree, ast.Subscript) and isinstance(tree.value, ast.Name)):
        return False
    sort = sorts.known.get(tree.value.id)
    is_open = sort is not None and sort.kind == "perm" and sort.frame.fixed is None and sort.target.fixed is None
    # One that moves nothing has one frame, in which no axis is counted twice.
    is_moved = sort is not None and sort.frame != sort.target
    return is_open and is_moved and (sorts.of(tree.slice).literal or -1) > 0
