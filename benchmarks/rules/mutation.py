"""Mutants of rules: each is a rule changed in one place, for trying whether the verifier refuses what is false."""

from __future__ import annotations

import ast
import copy
import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from eqsat.errors import EqsatError
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

#: Operators that people and generators take for one another.
_NEAR = {
    "add": ("sub", "mul"),
    "sub": ("add",),
    "mul": ("add", "div"),
    "div": ("mul",),
    "pow": ("mul",),
    "maximum": ("minimum", "add"),
    "minimum": ("maximum",),
    "relu": ("abs", "identity"),
    "abs": ("relu",),
    "neg": ("identity", "reciprocal"),
    "exp": ("log",),
    "sqrt": ("reciprocal",),
    "reciprocal": ("neg",),
    "sigmoid": ("tanh",),
    "tanh": ("sigmoid",),
    "softmax": ("log_softmax",),
    "log_softmax": ("softmax",),
    "reduce_sum": ("reduce_mean",),
    "reduce_mean": ("reduce_sum",),
    "reduce_max": ("reduce_min",),
    "reduce_min": ("reduce_max",),
    "max_pool": ("avg_pool",),
    "avg_pool": ("max_pool",),
    "silu": ("gelu",),
    "gelu": ("silu",),
}
_SYMBOLS: dict[type[ast.operator], ast.operator] = {
    ast.Add: ast.Sub(),
    ast.Sub: ast.Add(),
    ast.Mult: ast.Add(),
    ast.Div: ast.Mult(),
    ast.MatMult: ast.Mult(),
}
_ORDERED = (ast.Sub, ast.Div, ast.MatMult, ast.Pow)


@dataclass(frozen=True)
class Mutant:
    """A rule changed in one place: which rule it came from, and what kind of change it was."""

    rule: Rule
    origin: str
    kind: str


#: A change of one node: the kind, and the node in its place.
Change: TypeAlias = tuple[str, ast.AST]


def mutants(rules: Sequence[Rule]) -> Iterator[Mutant]:
    """Every mutant of the rules that parses, none of which says what a rule or an earlier mutant says."""
    seen = {rule.text for rule in rules}
    for rule in rules:
        for kind, text in _texts(rule):
            try:
                (mutant,) = parse_rules(f"mutant: {text}", origin="candidate")
            except EqsatError:
                continue
            if mutant.text not in seen:
                seen.add(mutant.text)
                yield Mutant(mutant, rule.name, kind)


def sample(candidates: Iterable[Mutant], count: int, seed: int = 0) -> list[Mutant]:
    """So many mutants from all over, the same ones each time for a seed."""
    return sorted(candidates, key=lambda m: hashlib.blake2b(f"{seed} {m.rule.text}".encode()).digest())[:count]


def _texts(rule: Rule) -> Iterator[tuple[str, str]]:
    head, _, tail = rule.text.partition(" => ")
    right, _, conditions = _parted(tail)
    right, _, named = right.partition(" where ")
    tests = list(_tuple(conditions)) if conditions else []
    side = ast.parse(f"({right})", mode="eval").body
    naming = f" where {named}" if named else ""
    names = sorted(rule.tensors)
    ending = " if " + ", ".join(map(ast.unparse, tests)) if tests else ""
    for kind, changed in _changed(side, lambda node: _of_right(node, names)):
        yield kind, f"{head} => {_shown(changed)}{naming}{ending}"
    for kind, changed in _changed(ast.parse(f"({named})", mode="eval").body, lambda node: _of_right(node, names)):
        yield kind, f"{head} => {right} where {_shown(changed)}{ending}"
    for index in range(len(tests)):
        rest = [ast.unparse(t) for i, t in enumerate(tests) if i != index]
        yield "condition dropped", f"{head} => {right}{naming}" + (" if " + ", ".join(rest) if rest else "")
    for index, test in enumerate(tests):
        for kind, changed in _changed(test, _of_condition):
            others = [ast.unparse(changed if i == index else t) for i, t in enumerate(tests)]
            yield kind, f"{head} => {right}{naming} if {', '.join(others)}"


def _parted(tail: str) -> tuple[str, str, str]:
    """The right side and the conditions: the first `if` that is no part of a conditional expression."""
    place = tail.find(" if ")
    while place >= 0:
        try:
            for part in tail[:place].split(" where "):
                ast.parse(f"({part})", mode="eval")
            ast.parse(f"({tail[place + 4 :]},)", mode="eval")
        except SyntaxError:
            place = tail.find(" if ", place + 1)
        else:
            return tail[:place], " if ", tail[place + 4 :]
    return tail, "", ""


def _tuple(text: str) -> list[ast.expr]:
    tree = ast.parse(f"({text},)", mode="eval").body
    return list(tree.elts) if isinstance(tree, ast.Tuple) else [tree]


def _shown(tree: ast.AST) -> str:
    return ", ".join(map(ast.unparse, tree.elts)) if isinstance(tree, ast.Tuple) else ast.unparse(tree)


def _changed(tree: ast.AST, changes: Callable[[ast.AST], Iterable[Change]]) -> Iterator[Change]:
    """The tree with one node changed, for every node and change."""
    for place, node in enumerate(ast.walk(tree)):
        for kind, new in changes(node):
            changed = copy.deepcopy(tree)
            target = next(n for i, n in enumerate(ast.walk(changed)) if i == place)
            yield kind, ast.fix_missing_locations(_Replacer(target, new).visit(changed))


class _Replacer(ast.NodeTransformer):
    def __init__(self, target: ast.AST, new: ast.AST) -> None:
        self._target, self._new = target, new

    def visit(self, node: ast.AST) -> ast.AST:
        return copy.deepcopy(self._new) if node is self._target else super().generic_visit(node)


def _of_right(node: ast.AST, names: Sequence[str]) -> Iterator[Change]:
    if isinstance(node, ast.BinOp):
        yield from _of_symbol(node)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in OPS:
        yield from _of_call(node, node.func.id)
    elif isinstance(node, ast.Name) and node.id in names and isinstance(node.ctx, ast.Load):
        for name in names:
            if name != node.id:
                yield "another variable", ast.Name(name, ast.Load())
    elif isinstance(node, ast.Constant):
        yield from _of_literal(node)


def _of_symbol(node: ast.BinOp) -> Iterator[Change]:
    if isinstance(node.op, _ORDERED):
        yield "operands swapped", ast.BinOp(node.right, node.op, node.left)
    if type(node.op) in _SYMBOLS:
        yield "another operator", ast.BinOp(node.left, _SYMBOLS[type(node.op)], node.right)
    yield "term dropped", node.left
    yield "term dropped", node.right


def _of_call(node: ast.Call, op: str) -> Iterator[Change]:
    plain = [a for a in node.args if not isinstance(a, ast.Starred)]
    if len(plain) == len(node.args) >= 2 and not OPS[op].commutative:
        swapped = [node.args[1], node.args[0], *node.args[2:]]
        yield "operands swapped", ast.Call(node.func, swapped, node.keywords)
    for near in _NEAR.get(op, ()):
        yield "another operator", ast.Call(ast.Name(near, ast.Load()), node.args, node.keywords)
    if len(plain) == len(node.args):
        for operand in plain[:2]:
            yield "term dropped", operand
    for place, keyword in enumerate(node.keywords):
        for kind, value in _of_attribute(keyword):
            rest = [*node.keywords]
            rest[place] = ast.keyword(keyword.arg, value)
            yield kind, ast.Call(node.func, node.args, rest)


def _of_attribute(keyword: ast.keyword) -> Iterator[tuple[str, ast.expr]]:
    value = keyword.value
    if keyword.arg == "perm":
        yield "another permutation", ast.Call(ast.Name("inverse", ast.Load()), [value], [])
    elif keyword.arg == "axis":
        yield "another axis", ast.BinOp(value, ast.Sub(), ast.Constant(1))
        if isinstance(value, ast.Subscript):
            yield "another axis", value.slice
        elif not isinstance(value, ast.Constant):
            yield "another axis", ast.Constant(0)


def _of_literal(node: ast.Constant) -> Iterator[Change]:
    if isinstance(node.value, bool):
        yield "another literal", ast.Constant(not node.value)
    elif isinstance(node.value, int):
        yield "another literal", ast.Constant(node.value + 1)
    elif isinstance(node.value, float):
        yield "another literal", ast.Constant(node.value + 0.5)


def _of_condition(node: ast.AST) -> Iterator[Change]:
    """Bounds moved by one, and what is compared with what else."""
    if isinstance(node, ast.Constant):
        yield from _of_literal(node)
    elif isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        yield "equation denied", ast.Compare(node.left, [ast.NotEq()], node.comparators)
