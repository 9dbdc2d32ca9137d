"""Statements of conditions about how many axes operands have."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from types import MappingProxyType

from eqsat.language.terms.pattern import Spread, Var
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.removal.frames import Frames
from eqsat.rewrites.rules.rule import Rule, applications

#: Conditions that hold of constants of one rank alone.
OF_ONE_RANK: Mapping[str, int] = MappingProxyType(
    {
        "is_eye": 2,
        "is_selection": 2,
        "is_triangle": 2,
        "is_even_beside": 2,
        "is_in_blocks": 2,
        "is_range": 1,
        "is_progression": 1,
    }
)


class RankStatements:
    """All that the conditions of one rule say of ranks: noted in its frames, before these are asked for."""

    def __init__(self, rule: Rule, frames: Frames) -> None:
        self.frames = frames
        self.parts = [part for condition in rule.conditions for part in conjuncts(condition.tree)]
        self._groups = rule.tensor_groups
        #: Sequences whose members are joined as they are.
        self.joined = {
            operand.item.name
            for root in rule.roots
            for app in applications(root)
            if app.op == "concat"
            for operand in app.operands
            if isinstance(operand, Spread) and isinstance(operand.item, Var) and not operand.over
        }
        self._places = {
            field.tree.id
            for root in rule.roots
            for app in applications(root)
            for name, field in app.fields.items()
            if name == "axis" and isinstance(field.tree, ast.Name)
        }
        #: Operands that vary along no axis but one that is kept.
        self.thin: set[str] = set()
        #: Operands of one element.
        self.single: set[str] = set()
        #: Sequences whose members have as many axes each, if they have some number of axes.
        self.uniform: dict[str, int] = {}
        #: Operands with an expression that is their shape.
        self.shapes: set[tuple[str, str]] = set()
        #: Permutations that conditions say move nothing.
        self.identities: set[str] = set()
        #: Sets of axes of which conditions say how many there are.
        self.counts: dict[str, int] = {}
        for part in self.parts:
            self._note_ranks(part)
        # Of members that have as many axes each, what is said of the first is said of all.
        for group in self.uniform.keys() | self.joined:
            self.frames.below |= {(group, f"{group}[0]"), (f"{group}[0]", group)}

    def _note_ranks(self, tree: ast.expr) -> None:
        """Note which operands have no more axes than others, and which are thin."""
        below = self.frames.below
        if isinstance(tree, ast.Compare):
            operands = [_ranked(one) for one in (tree.left, *tree.comparators)]
            for one, operation, other in zip(operands, tree.ops, operands[1:], strict=False):
                if one and other and isinstance(operation, ast.LtE | ast.Lt | ast.Eq):
                    below.add((one, other))
                if one and other and isinstance(operation, ast.GtE | ast.Gt | ast.Eq):
                    below.add((other, one))
            if len(tree.ops) == 1 and operands[0] and isinstance(tree.comparators[0], ast.Constant):
                least = tree.comparators[0].value
                if isinstance(tree.ops[0], ast.GtE | ast.Eq) and type(least) is int:
                    below |= {(f"#{count}", operands[0]) for count in range(1, least + 1)}
            if len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Lt):
                # An axis is no negative number, and one before some others leaves these.
                name, behind = _before_end(tree.comparators[0])
                if name and isinstance(tree.left, ast.Name) and tree.left.id in self._places:
                    below |= {(f"#{count}", name) for count in range(1, behind + 2)}
            if len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq):
                named, count = _asked(tree.left, "len"), tree.comparators[0]
                if named and isinstance(count, ast.Constant) and type(count.value) is int:
                    self.counts[named] = count.value
                if isinstance(tree.left, ast.Name) and isinstance(count, ast.Call):
                    self.identities |= {tree.left.id} if ast.unparse(count.func) == "identity_perm" else set()
                self._note_shapes(tree.left, tree.comparators[0])
                self._note_shapes(tree.comparators[0], tree.left)
                if _asked(tree.left, "size") and ast.unparse(tree.comparators[0]) == "1":
                    self.thin.add(_asked(tree.left, "size"))
                    self.single.add(_asked(tree.left, "size"))
        elif isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            names = [one.id if isinstance(one, ast.Name) else "" for one in tree.args]
            if tree.func.id == "spans" and all(names):
                below.add((names[1], names[0]))
            elif tree.func.id == "same_shape" and all(names):
                below |= {(a, b) for a in names for b in names if a != b}
            elif tree.func.id in OF_ONE_RANK and names[0]:
                below |= {(f"#{count}", names[0]) for count in range(1, OF_ONE_RANK[tree.func.id] + 1)}
            elif tree.func.id == "along_only" and names[0]:
                self.thin.add(names[0])
                rank = _asked(tree.args[2], "rank")
                if rank:
                    below |= {(names[0], rank), ("#1", rank)}
            elif tree.func.id == "all" and isinstance(tree.args[0], ast.GeneratorExp):
                self._note_members(tree.args[0])

    def _note_shapes(self, one: ast.expr, other: ast.expr) -> None:
        """Note that a shape which is that of another, or of it and more together, has as many axes."""
        of = _asked(one, "shape")
        if of:
            self.shapes.add((of, ast.unparse(other)))
        (name,) = shape_names(other) or ("",)
        if name and isinstance(one, ast.Call) and ast.unparse(one.func) == "broadcast":
            self.frames.below |= {(part, name) for argument in one.args for part in shape_names(argument)}
        elif name:
            self.frames.below |= {(part, name) for part in shape_names(one)}

    def _note_members(self, tree: ast.GeneratorExp) -> None:
        """Note the sequences whose members are said to have as many axes as the first."""
        (loop, *others) = tree.generators
        if others or loop.ifs or not (isinstance(loop.iter, ast.Name) and isinstance(loop.target, ast.Name)):
            return
        group, member = loop.iter.id, loop.target.id
        if group not in self._groups:
            return
        for part in conjuncts(tree.elt):
            wanted = (
                f"same_shape({member}, {group}[0])",
                f"rank({member}) == rank({group}[0])",
                f"shape({member}) == shape({group}[0])",
            )
            least = 0 if ast.unparse(part) in wanted else _without(part, member, group)
            least = _part(part, member, group) if least is None else least
            if least is not None:
                self.uniform[group] = min(least, self.uniform.get(group, least))


def _without(tree: ast.expr, member: str, group: str) -> int | None:
    """The axes that members need to have as many as the first if shapes without one are equal; None where they may not.

    That is ``without(shape(x), k) == without(shape(xs[0]), k)``: an axis that is none would be left out of neither.
    """
    if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq)):
        return None
    found = []
    for side, name in ((tree.left, member), (tree.comparators[0], f"{group}[0]")):
        if not (isinstance(side, ast.Call) and ast.unparse(side.func) == "without" and len(side.args) == 2):
            return None
        if ast.unparse(side.args[0]) != f"shape({name})":
            return None
        axis = side.args[1]
        if isinstance(axis, ast.Constant) and type(axis.value) is int and axis.value >= 0:
            found.append(axis.value + 1)
        elif isinstance(axis, ast.BinOp) and isinstance(axis.right, ast.Constant) and type(axis.right.value) is int:
            if ast.unparse(axis.left) != f"rank({name})" or not isinstance(axis.op, ast.Sub):
                return None
            found.append(axis.right.value)
        else:
            return None
    return max(found)


def _part(tree: ast.expr, member: str, group: str) -> int | None:
    """The axes that members need to have as many as the first if shapes without some first, or last, ones are equal.

    That is ``shape(x)[n:] == shape(xs[0])[n:]``: with fewer axes nothing would be left of either.
    """
    if not (isinstance(tree, ast.Compare) and len(tree.ops) == 1 and isinstance(tree.ops[0], ast.Eq)):
        return None
    one, other = tree.left, tree.comparators[0]
    if not (isinstance(one, ast.Subscript) and isinstance(other, ast.Subscript) and isinstance(one.slice, ast.Slice)):
        return None
    are_shapes = ast.unparse(one.value) == f"shape({member})" and ast.unparse(other.value) == f"shape({group}[0])"
    if not are_shapes or ast.unparse(one.slice) != ast.unparse(other.slice):
        return None
    return part_length(one.slice)


def part_length(part: ast.Slice) -> int | None:
    """The number of first, or last, elements that a slice leaves out, as written: ``[2:]`` or ``[:-2]``."""
    given = [end for end in (part.lower, part.upper) if end is not None]
    if len(given) != 1 or part.step is not None:
        return None
    try:
        end = ast.literal_eval(given[0])
    except ValueError:
        return None
    is_known = type(end) is int and end != 0 and (end > 0) == (part.upper is None)
    return abs(end) if is_known else None


def shape_names(tree: ast.expr) -> tuple[str, ...]:
    """The operand whose shape an expression is, or the attribute that is one, as frames name them."""
    if isinstance(tree, ast.Name):
        return (f"len {tree.id}",)
    name = _asked(tree, "shape")
    return (name,) if name else ()


def _before_end(tree: ast.expr) -> tuple[str, int]:
    """The operand and the number in ``rank(x) - 2``."""
    if not (isinstance(tree, ast.BinOp) and isinstance(tree.op, ast.Sub) and isinstance(tree.right, ast.Constant)):
        return "", 0
    number = tree.right.value
    return (_asked(tree.left, "rank"), number) if type(number) is int and number >= 0 else ("", 0)


def _ranked(tree: ast.expr) -> str:
    """The operand whose rank an expression is, or the attribute whose length, as frames name them."""
    name = _asked(tree, "len")
    return f"len {name}" if name else _asked(tree, "rank")


def _asked(tree: ast.expr, function: str) -> str:
    """The name of the operand, or of the sequence, that a call of a function is about; "" where it is of none."""
    if (
        isinstance(tree, ast.Call)
        and isinstance(tree.func, ast.Name)
        and tree.func.id == function
        and len(tree.args) == 1
    ):
        one = tree.args[0]
        if isinstance(one, ast.Subscript) and ast.unparse(one.slice) == "0":
            return f"{one.value.id}[0]" if isinstance(one.value, ast.Name) else ""
        return one.id if isinstance(one, ast.Name) else ""
    return ""
