"""Terms, attributes and conditions as first-order logic over uninterpreted sorts of tensors and of values.

An operator with a number of operands is one function of its attributes and operands; every function that conditions
call is one function or predicate, for it is deterministic. Only what makes no doubt is interpreted: equality, and, or,
not, literals that differ, and the facts in `facts_of`.
"""

from __future__ import annotations

import ast
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from eqsat.errors import GraphError
from eqsat.language.ops import OPS, spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.conditions.syntax import loop_parts
from eqsat.rewrites.proof.chains.symbols import literal

#: How often an operator's sample rule is asked when its type rule is tried.
_SAMPLES = 24
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
}


class Logic:
    """The vocabulary: sorts, functions and literals, each made once, in a context of its own."""

    def __init__(self) -> None:
        import z3

        self.z3 = z3
        self.context = z3.Context()
        self.tensor = z3.DeclareSort("Tensor", self.context)
        self.values = z3.DeclareSort("Value", self.context)
        self.boolean = z3.BoolSort(self.context)
        self.literals: dict[str, Any] = {}
        self._functions: dict[tuple[Any, ...], Any] = {}

    # -- terms --------------------------------------------------------------------------------------------------------

    def apply(self, op: str, fields: Mapping[str, Any], operands: Iterable[Any]) -> Any:
        """An operator with its attributes, as values, over operands."""
        return self.call(f"op {op}", [*(fields[k] for k in sorted(fields)), *operands], self.tensor)

    def call(self, name: str, arguments: Iterable[Any], result: Any) -> Any:
        """A function of terms and values; it is another one for other sorts of arguments."""
        flat = [a for argument in arguments for a in self._flat(argument)]
        key = (name, tuple(a.sort().name() for a in flat), result.name())
        if key not in self._functions:
            label = f"{name}/{len(flat)}#{len(self._functions)}"
            self._functions[key] = self.z3.Function(label, *(a.sort() for a in flat), result)
        function = self._functions[key]
        return function(*flat) if flat else function()

    def constant(self, name: str, sort: Any) -> Any:
        """A symbol for something arbitrary."""
        return self.z3.Const(name, sort)

    def literal(self, value: Any) -> Any:
        """A value written out; a tuple is that function of its elements that expressions make tuples with."""
        if isinstance(value, tuple | list):
            return self.call(f"tuple{len(value)}", [self.literal(v) for v in value], self.values)
        if isinstance(value, bool | float) and value == int(value if value == value and abs(value) < 1e15 else 0):
            value = int(value)  # Python holds 1, 1.0 and True equal
        text = literal(value).text
        if text not in self.literals:
            self.literals[text] = self.z3.Const(f"'{text}'", self.values)
        return self.literals[text]

    def shape(self, tensor: Any) -> Any:
        """The shape of a term."""
        return self.call("shape", [tensor], self.values)

    def dtype(self, tensor: Any) -> Any:
        """The element type of a term."""
        return self.call("dtype", [tensor], self.values)

    def joined(self, value: Any) -> Any:
        """One value, of a list or a record the one that all of it determines."""
        return self.call("all of", [value], self.values) if isinstance(value, list | dict) else value

    def number(self, value: Any) -> Any:
        """One value that is no truth value."""
        one = self.joined(value)
        return self.z3.If(one, self.literal(1), self.literal(0)) if one.sort() == self.boolean else one

    def distinct(self) -> list[Any]:
        """That literals differ, and that 1 is true and 0 false."""
        literals = list(self.literals.values())
        facts = [self.z3.Distinct(*literals)] if len(literals) > 1 else []
        return [*facts, self.truth(self.literal(1)), self.z3.Not(self.truth(self.literal(0)))]

    def truth(self, value: Any) -> Any:
        """True if a value counts as true."""
        return value if value.sort() == self.boolean else self.call("truth", [value], self.boolean)

    def typed(self, tensor: Any) -> Any:
        """That a term is well-typed: rules say nothing of others."""
        return self.call("typed", [tensor], self.boolean)

    def _flat(self, argument: Any) -> list[Any]:
        if isinstance(argument, dict):
            return [argument[k] for k in sorted(argument)]
        if isinstance(argument, list):
            return [a for one in argument for a in self._flat(one)]
        return [self.number(argument)]


class Translator:
    """Expressions under names that stand for terms, values, records (dicts by field) or lists of these."""

    def __init__(self, logic: Logic, env: Mapping[str, Any]) -> None:
        self.logic, self.env = logic, env

    def condition(self, tree: ast.expr) -> Any:
        """The formula for a condition."""
        logic, z3 = self.logic, self.logic.z3
        if isinstance(tree, ast.BoolOp):
            parts = [self.condition(v) for v in tree.values]
            return z3.And(*parts) if isinstance(tree.op, ast.And) else z3.Or(*parts)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return z3.Not(self.condition(tree.operand))
        if isinstance(tree, ast.Compare):
            sides = [tree.left, *tree.comparators]
            pairs = zip(tree.ops, sides[:-1], sides[1:], strict=True)
            parts = [self._comparison(op, a, b) for op, a, b in pairs]
            return parts[0] if len(parts) == 1 else z3.And(*parts)
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            return self._predicate(tree, tree.func.id)
        return logic.truth(self.logic.joined(self.value(tree)))

    def value(self, tree: ast.expr) -> Any:
        """A value, a term, a record or a list of these."""
        logic = self.logic
        if isinstance(tree, ast.Constant):
            return logic.literal(tree.value)
        if isinstance(tree, ast.Name):
            return self.env[tree.id]
        if isinstance(tree, ast.Attribute):
            return self._field(self.value(tree.value), tree.attr)
        if isinstance(tree, ast.Tuple | ast.List) and not any(isinstance(e, ast.Starred) for e in tree.elts):
            parts = [self.value(e) for e in tree.elts]
            return logic.call(f"tuple{len(parts)}", parts, logic.values)
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub) and isinstance(tree.operand, ast.Constant):
            return logic.literal(-tree.operand.value)  # type: ignore[operator]
        if isinstance(tree, ast.BinOp):
            return logic.call(type(tree.op).__name__, [self.value(tree.left), self.value(tree.right)], logic.values)
        if isinstance(tree, ast.Subscript) and not isinstance(tree.slice, ast.Slice):
            return self._item(self.value(tree.value), tree.slice)
        if isinstance(tree, ast.Compare | ast.BoolOp) or (
            isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not)
        ):
            return self._whole(tree, logic.boolean)
        if isinstance(tree, ast.ListComp):
            elements = self._elements(tree.elt, tree.generators)
            return (
                self._whole(tree) if elements is None else logic.call(f"tuple{len(elements)}", elements, logic.values)
            )
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
            return self._call(tree, tree.func.id)
        return self._whole(tree)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Any:
        z3, logic = self.logic.z3, self.logic
        a, b = self.logic.joined(self.value(left)), self.logic.joined(self.value(right))
        if isinstance(op, ast.Eq | ast.NotEq | ast.Is | ast.IsNot):
            if a.sort() == logic.boolean or b.sort() == logic.boolean:
                a, b = logic.truth(a), logic.truth(b)
            same = a == b if a.sort() == b.sort() else logic.call("==", [a, b], logic.boolean)
            return z3.Not(same) if isinstance(op, ast.NotEq | ast.IsNot) else same
        if isinstance(op, ast.NotIn):
            return z3.Not(logic.call("in", [a, b], logic.boolean))
        return logic.call(_COMPARISONS[type(op)], [a, b], logic.boolean)

    def _predicate(self, tree: ast.Call, name: str) -> Any:
        z3, logic = self.logic.z3, self.logic
        if name in ("all", "any") and len(tree.args) == 1 and isinstance(tree.args[0], ast.GeneratorExp | ast.ListComp):
            loop = tree.args[0]
            parts = self._elements(loop.elt, loop.generators, as_condition=True)
            if parts is not None:
                return z3.And(*parts) if name == "all" else z3.Or(*parts)
            return self._whole(tree, logic.boolean)
        if tree.keywords or any(isinstance(a, ast.Starred) for a in tree.args):
            return self._whole(tree, logic.boolean)
        arguments = [self.value(a) for a in tree.args]
        each = [one for a in arguments for one in (a if isinstance(a, list) else [a])]
        if name in ("finite", "constant", "static") and all(a.sort() == logic.tensor for a in each):
            return z3.And(*(logic.call(name, [a], logic.boolean) for a in each))
        if name in ("wide", "floating", "numeric") and all(a.sort() == logic.tensor for a in each):
            return z3.And(*(logic.call(name, [self.logic.dtype(a)], logic.boolean) for a in each))
        if name == "same_shape":
            return z3.And(*(self.logic.shape(a) == self.logic.shape(each[0]) for a in each[1:]))
        return logic.call(name, arguments, logic.boolean)

    def _call(self, tree: ast.Call, name: str) -> Any:
        logic = self.logic
        if name in OPS and all(not isinstance(a, ast.Starred) for a in tree.args):
            given = {k.arg: self.value(k.value) for k in tree.keywords if k.arg is not None}
            if len(given) == len(tree.keywords):
                defaults = {k: logic.literal(v) for k, v in spec(name).attrs.items() if k not in given}
                return logic.apply(name, {**defaults, **given}, [self.value(a) for a in tree.args])
        if tree.keywords or any(isinstance(a, ast.Starred | ast.GeneratorExp) for a in tree.args):
            return self._whole(tree)
        arguments = [self.value(a) for a in tree.args]
        if len(arguments) == 1 and not isinstance(arguments[0], list | dict):
            if name == "shape":
                return self.logic.shape(arguments[0])
            if name == "dtype":
                return self.logic.dtype(arguments[0])
            if name == "rank":
                return logic.call("len", [self.logic.shape(arguments[0])], logic.values)
        if name == "dim" and len(arguments) == 2:
            return logic.call("item", [self.logic.shape(arguments[0]), arguments[1]], logic.values)
        if name == "len" and isinstance(arguments[0], list):
            return logic.literal(len(arguments[0]))
        return logic.call(name, arguments, logic.values)

    def _item(self, whole: Any, index: ast.expr) -> Any:
        if isinstance(whole, list):
            if isinstance(index, ast.Constant) and isinstance(index.value, int):
                return whole[index.value]
            return self.logic.call("item", [*whole, self.value(index)], self.logic.values)
        return self.logic.call("item", [whole, self.value(index)], self.logic.values)

    def _elements(
        self, element: ast.expr, generators: list[ast.comprehension], *, as_condition: bool = False
    ) -> list[Any] | None:
        """The elements that a loop over sequences of known length gives; None for any other loop."""
        if len(generators) != 1 or generators[0].ifs:
            return None
        targets, sources = loop_parts(generators[0])
        groups = [self.env.get(s.id) if isinstance(s, ast.Name) else None for s in sources]
        names = [t.id for t in targets if isinstance(t, ast.Name)]
        if len(names) != len(groups) or not all(isinstance(g, list) for g in groups):
            return None
        elements = []
        for things in zip(*groups, strict=False):
            inner = Translator(self.logic, {**self.env, **dict(zip(names, things, strict=True))})
            elements.append(inner.condition(element) if as_condition else inner.value(element))
        return elements

    def _whole(self, tree: ast.expr, sort: Any = None) -> Any:
        """An expression taken whole, as a function of the names in it."""
        names = sorted({n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in self.env})
        shape = tuple((n, _layout(self.env[n])) for n in names)
        return self.logic.call(
            f"λ {ast.unparse(tree)} {shape}", [self.env[n] for n in names], self.logic.values if sort is None else sort
        )

    def _field(self, record: Any, key: str) -> Any:
        if isinstance(record, dict):
            return record[key]
        return self.logic.call(f"field {key}", [record], self.logic.values)


def _layout(thing: Any) -> str:
    """The number of values a name stands for, which tells functions of expressions apart."""
    if isinstance(thing, dict):
        return "{" + ",".join(sorted(thing)) + "}"
    return "[" + ",".join(map(_layout, thing)) + "]" if isinstance(thing, list) else "."


def facts_of(logic: Logic, op: str, fields: Mapping[str, Any], operands: list[Any]) -> list[Any]:
    """The facts known of every well-typed application of an operator: its type follows from those of its operands."""
    z3 = logic.z3
    whole = logic.apply(op, fields, operands)
    shapes = [logic.shape(x) for x in operands]
    dtypes = [logic.dtype(x) for x in operands]
    attrs = [fields[k] for k in sorted(fields)]
    facts = [
        logic.shape(whole) == logic.call(f"shape of {op}", [*attrs, *shapes], logic.values),
        logic.dtype(whole)
        == (dtypes[0] if keeps_dtype(op) else logic.call(f"dtype of {op}", [*attrs, *dtypes], logic.values)),
    ]
    if not operands and "dtype" in fields:
        facts[1] = logic.dtype(whole) == fields["dtype"]
    if op == "cast":
        facts[1] = logic.dtype(whole) == fields["to"]
    alike = of_one_dtype(op, len(operands))
    same = [dtypes[i] == dtypes[alike[0]] for i in alike[1:]]
    facts += [z3.Implies(logic.typed(whole), z3.And(*same))] if same else []
    if keeps_shape(op):
        facts[0] = z3.And(facts[0], logic.shape(whole) == shapes[0])
    if operands:
        facts.append(z3.Implies(logic.typed(whole), z3.And(*(logic.typed(x) for x in operands))))
        if not spec(op).partial:
            finite = [logic.call("finite", [x], logic.boolean) for x in operands]
            facts.append(z3.Implies(z3.And(*finite), logic.call("finite", [whole], logic.boolean)))
    return facts


def general_facts(logic: Logic) -> list[Any]:
    """The facts known of element types: wide ones are floating, floating ones are numbers."""
    z3 = logic.z3
    kind = z3.Const("kind", logic.values)
    wide, floating, number = (logic.call(n, [kind], logic.boolean) for n in ("wide", "floating", "numeric"))
    return [
        z3.ForAll([kind], z3.Implies(wide, floating), patterns=[wide]),
        z3.ForAll([kind], z3.Implies(floating, number), patterns=[floating]),
    ]


@cache
def keeps_shape(op: str) -> bool:
    """True if the result has the shape of the one operand."""
    declared = spec(op)
    return declared.pointwise and declared.min_operands == declared.max_operands == 1


@cache
def keeps_dtype(op: str) -> bool:
    """True if the result has the element type of the first operand, tried with three types on shapes that are drawn."""
    declared = spec(op)
    if declared.min_operands == 0 or 0 in declared.dtypes:
        return False
    tried = 0
    for shapes, attrs in _samples(op, max(1, declared.min_operands)):
        for name in ("float32", "float64", "float16"):
            results = _result_types(op, shapes, attrs, [name] * len(shapes))
            if results is None:
                continue
            if any(r.dtype.value != name for r in results):
                return False
            tried += 1
    return tried >= 12


@cache
def of_one_dtype(op: str, count: int) -> tuple[int, ...]:
    """The operands that the operator takes in one element type only, tried with two types on shapes that are drawn."""
    declared = spec(op)
    free = [i for i in range(count) if i not in declared.dtypes]
    if len(free) < 2:
        return ()
    tried, refused = 0, set(free[1:])
    for shapes, attrs in _samples(op, count):
        if len(shapes) != count or _result_types(op, shapes, attrs, ["float32"] * count) is None:
            continue
        tried += 1
        for place in list(refused):
            names = ["float64" if i == place else "float32" for i in range(count)]
            if _result_types(op, shapes, attrs, names) is not None:
                refused.discard(place)
    return (free[0], *sorted(refused)) if tried >= 4 and refused else ()


def _samples(op: str, count: int) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
    """Operand shapes and attributes that the operator's sample rule proposes."""
    declared = spec(op)
    rng = random.Random(op)
    for _ in range(_SAMPLES if declared.sample is not None else 0):
        drawn = declared.sample(rng, [None] * count, {}) if declared.sample is not None else None
        if drawn is not None:
            yield drawn


def _result_types(
    op: str, shapes: Sequence[Any], attrs: Mapping[str, Any], names: Sequence[str]
) -> tuple[TensorType, ...] | None:
    """The types of the results for operands of these element types; None where the operator refuses them."""
    declared = spec(op)
    types = [TensorType.of(declared.dtypes.get(i, n), s) for i, (n, s) in enumerate(zip(names, shapes, strict=True))]
    try:
        return declared.result_types(types, declared.complete(attrs))
    except GraphError:
        return None
