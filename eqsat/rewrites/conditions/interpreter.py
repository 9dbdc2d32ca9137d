"""Expressions of rules as functions made of closures, one for each node of a checked syntax tree.

Nothing is ever handed to Python to evaluate. A name is what the rule binds or a loop's variable; a call is of a
function by a name in the table that it is given; a field is a key of a record. No name leads from a value to its class,
to a module, or to anything else that the rule did not bind.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from eqsat.rewrites.conditions.arithmetic import BEYOND, BINARY, LONGEST, Excess, negate

#: Iterations of all loops of an expression together.
MOST_STEPS = 1 << 13


#: The values of names and loop variables, by slot; slot 0 holds the iterations that are left.
Frame: TypeAlias = "list[Any]"
Evaluator: TypeAlias = "Callable[[Frame], Any]"

COMPARISONS: Mapping[type[ast.cmpop], Callable[[Any, Any], Any]] = MappingProxyType(
    {
        ast.Eq: operator.eq,
        ast.NotEq: operator.ne,
        ast.Lt: operator.lt,
        ast.LtE: operator.le,
        ast.Gt: operator.gt,
        ast.GtE: operator.ge,
        ast.Is: operator.is_,
        ast.IsNot: operator.is_not,
        ast.In: lambda a, b: a in b,
        ast.NotIn: lambda a, b: a not in b,
    }
)


def interpreted(
    tree: ast.expr, names: tuple[str, ...], functions: Mapping[str, Callable[..., Any]]
) -> Callable[..., Any]:
    """A checked tree as a function of its names, in their order."""
    slots = {name: place for place, name in enumerate(names, start=1)}
    builder = _Builder(slots, functions, len(names) + 1)
    body = builder.build(tree)
    spare = [None] * (builder.size - len(names) - 1)
    if not builder.loops:
        return lambda *values: body([None, *values])
    return lambda *values: body([[MOST_STEPS], *values, *spare])


class _Builder:
    """The closures of a tree's nodes, and the slots that its names and loop variables have."""

    def __init__(self, slots: dict[str, int], functions: Mapping[str, Callable[..., Any]], size: int) -> None:
        self.slots = slots
        self.functions = functions
        self.size = size
        self.loops = False

    def build(self, node: ast.expr) -> Evaluator:
        build: Callable[[Any], Evaluator] = getattr(self, f"_{type(node).__name__.lower()}")
        return build(node)

    def _constant(self, node: ast.Constant) -> Evaluator:
        value = node.value
        return lambda frame: value

    def _name(self, node: ast.Name) -> Evaluator:
        return operator.itemgetter(self.slots[node.id])

    def _tuple(self, node: ast.Tuple | ast.List) -> Evaluator:
        return self._items(node.elts)

    _list = _tuple

    def _items(self, elements: list[ast.expr]) -> Evaluator:
        """The values of elements as a tuple, those of a star spread."""
        if not any(isinstance(e, ast.Starred) for e in elements):
            parts = tuple(map(self.build, elements))
            if len(parts) == 1:
                (only,) = parts
                return lambda frame: (only(frame),)
            if len(parts) == 2:
                first, second = parts
                return lambda frame: (first(frame), second(frame))
            return lambda frame: tuple([part(frame) for part in parts])
        marked = [
            (self.build(e.value), True) if isinstance(e, ast.Starred) else (self.build(e), False) for e in elements
        ]

        def spread(frame: Frame) -> tuple[Any, ...]:
            values: list[Any] = []
            for part, starred in marked:
                if starred:
                    values.extend(part(frame))
                else:
                    values.append(part(frame))
                if len(values) > LONGEST:
                    raise Excess(f"a sequence of more than {LONGEST} elements")
            return tuple(values)

        return spread

    def _binop(self, node: ast.BinOp) -> Evaluator:
        left, right, compute = self.build(node.left), self.build(node.right), BINARY[type(node.op)]
        if isinstance(node.op, ast.Add | ast.Sub):
            quick = operator.add if isinstance(node.op, ast.Add) else operator.sub

            def summed(frame: Frame) -> Any:
                a, b = left(frame), right(frame)
                # Two integers within the bounds: checked here, since they are nearly all there is.
                if type(a) is int and type(b) is int and -BEYOND < (result := quick(a, b)) < BEYOND:
                    return result
                return compute(a, b)

            return summed
        return lambda frame: compute(left(frame), right(frame))

    def _unaryop(self, node: ast.UnaryOp) -> Evaluator:
        operand = self.build(node.operand)
        if isinstance(node.op, ast.Not):
            return lambda frame: not operand(frame)
        return lambda frame: negate(operand(frame))

    def _boolop(self, node: ast.BoolOp) -> Evaluator:
        *before, last = map(self.build, node.values)
        ends_at = isinstance(node.op, ast.Or)

        def joined(frame: Frame) -> Any:
            for part in before:
                value = part(frame)
                if bool(value) is ends_at:
                    return value
            return last(frame)

        return joined

    def _compare(self, node: ast.Compare) -> Evaluator:
        first = self.build(node.left)
        if len(node.ops) == 1:
            compare, second = COMPARISONS[type(node.ops[0])], self.build(node.comparators[0])
            return lambda frame: compare(first(frame), second(frame))
        links = [(COMPARISONS[type(o)], self.build(c)) for o, c in zip(node.ops, node.comparators, strict=True)]

        def chained(frame: Frame) -> Any:
            left, result = first(frame), None
            for compare, part in links:
                right = part(frame)
                result = compare(left, right)
                if not result:
                    return result
                left = right
            return result

        return chained

    def _ifexp(self, node: ast.IfExp) -> Evaluator:
        test, body, other = self.build(node.test), self.build(node.body), self.build(node.orelse)
        return lambda frame: body(frame) if test(frame) else other(frame)

    def _attribute(self, node: ast.Attribute) -> Evaluator:
        record, key = self.build(node.value), node.attr
        return lambda frame: _field(record(frame), key)

    def _subscript(self, node: ast.Subscript) -> Evaluator:
        sequence, place = self.build(node.value), self.build(node.slice)
        return lambda frame: _element(sequence(frame), place(frame))

    def _slice(self, node: ast.Slice) -> Evaluator:
        lower, upper, step = (
            self.build(part) if part is not None else (lambda frame: None)
            for part in (node.lower, node.upper, node.step)
        )
        return lambda frame: slice(lower(frame), upper(frame), step(frame))

    def _call(self, node: ast.Call) -> Evaluator:
        assert isinstance(node.func, ast.Name)
        function = self.functions[node.func.id]
        if not node.keywords and not any(isinstance(a, ast.Starred) for a in node.args):
            return self._plain_call(function, node.args)
        arguments = self._items(node.args)
        keywords = [(k.arg, self.build(k.value)) for k in node.keywords]

        def called(frame: Frame) -> Any:
            named: dict[str, Any] = {}
            for name, part in keywords:
                if name is not None:
                    named[name] = part(frame)
                else:
                    named.update(_record(part(frame)))
            return function(*arguments(frame), **named)

        return called

    def _plain_call(self, function: Callable[..., Any], given: list[ast.expr]) -> Evaluator:
        """A call with arguments by place alone, nearly all there are."""
        parts = tuple(map(self.build, given))
        if len(parts) == 1:
            (only,) = parts
            return lambda frame: function(only(frame))
        if len(parts) == 2:
            first, second = parts
            return lambda frame: function(first(frame), second(frame))
        return lambda frame: function(*[part(frame) for part in parts])

    def _generatorexp(self, node: ast.GeneratorExp) -> Evaluator:
        loop = self._loops(node.generators, node.elt)
        # Each has a frame of its own, since two may be gone through by turns.
        return lambda frame: loop(frame.copy())

    def _listcomp(self, node: ast.ListComp) -> Evaluator:
        loop = self._loops(node.generators, node.elt)

        def listed(frame: Frame) -> tuple[Any, ...]:
            result = tuple(loop(frame.copy()))
            if len(result) > LONGEST:
                raise Excess(f"a sequence of {len(result)} elements; expected at most {LONGEST}")
            return result

        return listed

    def _loops(self, generators: list[ast.comprehension], element: ast.expr) -> Callable[[Frame], Iterator[Any]]:
        """The elements of nested loops: the first sequence is read outside the scope of the loops' variables."""
        self.loops = True
        outer = self.slots
        self.slots = dict(outer)
        first, *others = generators
        sequence = self.build(first.iter)
        assign = self._target(first.target)
        tests = tuple(map(self.build, first.ifs))
        inner: Callable[[Frame], Iterator[Any]] | None = self._loops(others, element) if others else None
        value = self.build(element) if inner is None else None
        self.slots = outer

        def iterate(frame: Frame) -> Iterator[Any]:
            steps = frame[0]
            for item in sequence(frame):
                steps[0] -= 1
                if steps[0] < 0:
                    raise Excess(f"more than {MOST_STEPS} steps of its loops")
                assign(frame, item)
                if tests and not all(test(frame) for test in tests):
                    continue
                if value is not None:
                    yield value(frame)
                elif inner is not None:
                    yield from inner(frame)

        return iterate

    def _target(self, target: ast.expr) -> Callable[[Frame, Any], None]:
        """Put an item into the slots of a loop's variables, which are new ones."""
        if isinstance(target, ast.Name):
            place = self.size
            self.size += 1
            self.slots[target.id] = place
            return lambda frame, item: frame.__setitem__(place, item)
        assert isinstance(target, ast.Tuple | ast.List)
        parts = [self._target(e) for e in target.elts]

        def unpack(frame: Frame, item: Any) -> None:
            for part, value in zip(parts, item, strict=True):
                part(frame, value)

        return unpack


def _field(record: Any, key: str) -> Any:
    return _record(record)[key]


def _record(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"a {type(value).__name__} is no record")
    return value


def _element(sequence: Any, place: Any) -> Any:
    if type(sequence) is tuple and type(place) in (int, slice):
        return sequence[place]
    if isinstance(sequence, tuple | list | str | bytes | range | Mapping):
        return sequence[place]
    if isinstance(sequence, np.ndarray) and isinstance(place, int | slice | tuple):
        if isinstance(place, tuple) and not all(isinstance(p, int | slice) for p in place):
            raise TypeError("an array is indexed by integers and ranges")
        return sequence[place]
    raise TypeError(f"a {type(sequence).__name__} is not indexed by a {type(place).__name__}")
