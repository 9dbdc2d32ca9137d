"""The e-graph of a tensor program: e-nodes with types and facts, kept beside egglog's own."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from eqsat.egraph.constructors import constructor_name, is_variadic, presence_name
from eqsat.egraph.engine import Engine
from eqsat.egraph.facts.ranges import check_size, evaluated, leaves_range
from eqsat.egraph.nodes import EClass, ENode, ENodeTable, Firing, RuleUnion, check_types, tensor_in
from eqsat.egraph.view import TensorView
from eqsat.errors import ShapeError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, Constant
from eqsat.language.terms import Node as GraphNode
from eqsat.language.terms.types import DType, OpaqueType, TensorType, ValueType

#: Leaves and helpers that are no operators: a graph input, a constant, an operand left out, an opaque node, one output
#: of a node with several.
INPUT, CONST, ABSENT, OPAQUE, PROJECTION = "input", "const", "absent", "opaque", "projection"
#: E-nodes of more operands than this are packed in egglog, where no pattern that lists its operands matches them.
WIDE = 32
#: Constants of at most this many elements are evaluated while the e-graph grows, so that conditions can ask for them.
SMALL = 4096

_TUPLE = OpaqueType("several tensors")
_NOTHING = OpaqueType("left out")


class EGraph:
    """E-nodes numbered from 0, in egglog for matching and congruence, and here with types, facts and origins.

    Every e-node is added through `add`, so types are known at once; `rebuild` brings in the equalities that egglog
    found. Two tensors of different type in one class are an UnsoundRuleError that names the rule. With `finite_math`
    every tensor counts as finite, without it (False) only constants that are; where it is None inputs and results of
    opaque nodes do, but for values that are `doubted`, and results of operators without poles on finite operands.
    """

    def __init__(self, *, finite_math: bool | None = None, doubted: Collection[str] = ()) -> None:
        self.engine = Engine()
        self.finite_math, self.doubted = finite_math, frozenset(doubted)
        self.nodes: list[ENode] = []
        self.constants: list[Constant] = []
        self.opaque: list[GraphNode] = []
        self.applications: list[RuleUnion] = []
        self.steps: list[int] = []
        self.arities: dict[str, set[int]] = {}
        self._leader: list[int] = []
        self._classes: dict[int, EClass] = {}
        self._attr_ids: dict[tuple[str, Attrs], int] = {}
        self._attrs: list[tuple[str, Attrs]] = []
        #: The e-nodes as of when they were last brought in.
        self.table = ENodeTable()
        self._values: dict[int, Any] = {}
        self._constant_ids: dict[bytes | int, int] = {}
        self._hidden: set[int] = set()
        self._risen: set[int] = set()
        self._views: dict[int, TensorView] = {}
        #: What `facts_seen` says of each leader, below zero where it was not asked since the class changed.
        self.alike: list[int] = []
        self._fact_numbers: dict[tuple[object, ...], int] = {}
        #: What conditions that read tensors alone said, by their text, of classes by what is seen of them.
        self.answers: dict[str, dict[Any, str]] = {}
        self._brought: list[list[int]] | None = None
        #: The operands of one e-node of a class that are all less deep than it, as long as they are known to be.
        self.shallower: dict[int, tuple[int, ...]] = {}
        #: The class that stands for operands left out, once there is one.
        self.nothing: int | None = None

    # -- growing ------------------------------------------------------------------------------------------------------

    def add(
        self,
        op: str,
        attrs: Attrs,
        operands: Sequence[int],
        *,
        types: Sequence[ValueType] | None = None,
        generation: int = 0,
        steps: int = 0,
    ) -> int:
        """The number of the e-node that applies `op` to classes, made if it is new; ShapeError if it does not type.

        `generation` counts the merges and `steps` the firings that led to it; `types` states the types of leaves and
        opaque nodes, which no rule can infer.
        """
        children = tuple(self.find(k) for k in operands)
        key = (op, self.attr_id(op, attrs), children)
        known = self.table.get(key)
        if known is not None:
            self.steps[known] = min(self.steps[known], steps)
            return known
        if types is None:
            types = spec(op).result_types(self._tensors(children, op), attrs)
            check_size([self.type(k) for k in children], types, op)
            self._check_range(op, attrs, children, types)
        number = self.table.add(key)
        self.nodes.append(ENode(op, attrs, children, tuple(types)))
        self.steps.append(steps)
        self._leader.append(number)
        self.alike.append(-1)
        self._classes[number] = self._facts(number, generation)
        packed = len(children) > WIDE
        name = f"packed_{op}" if packed else constructor_name(op, len(children))
        if len(children) not in self.arities.setdefault(op, set()):
            if packed:
                self.engine.packed(name)
            else:
                self.arities[op].add(len(children))
                self.engine.constructor(name, len(children))
            if is_variadic(op):
                self.engine.presence(presence_name(op))
        self.engine.insert(number, name, key[1], children, packed=packed)
        if is_variadic(op):
            self.engine.mark(presence_name(op), number)
        return number

    def constant(self, constant: Constant, *, hidden: bool = False) -> int:
        """The leaf of a constant; equal constants share one. No rule is told that a `hidden` one is known."""
        # Hashing hundreds of megabytes to find a twin that the importer has already merged is not worth its time.
        key = constant.digest if constant.nbytes <= 1 << 16 else id(constant)
        index = self._constant_ids.setdefault(key, len(self.constants))
        if index == len(self.constants):
            self.constants.append(constant)
        if hidden:
            self._hidden.add(index)
        return self.add(CONST, Attrs(index=index), (), types=(constant.type,))

    def absent(self) -> int:
        """The leaf that stands for an operand left out."""
        self.nothing = self.add(ABSENT, Attrs(), (), types=(_NOTHING,))
        return self.nothing

    def union(self, left: int, right: int, rule: str, firing: Firing | None = None, root: int = 0) -> bool:
        """Make two e-nodes equal on the word of a rule; False where they already are.

        Types must agree: static shapes that differ are an UnsoundRuleError, named dims that may differ a refusal.
        """
        a, b = self.find(left), self.find(right)
        if a == b:
            return False
        check_types(self._classes[a].type, self._classes[b].type, rule)
        self.applications.append(RuleUnion(rule, left, right, firing, root))
        self.engine.union(left, right)
        self._join(a, b)
        return True

    def rebuild(
        self, relations: Iterable[tuple[str, int]] = (), limit: int | None = None
    ) -> dict[str, list[tuple[int, ...]]]:
        """Bring in egglog's equalities; return the matches recorded since the last time, classes by leader.

        Relations with more than `limit` matches are left out, and these forgotten.
        """
        classes, matches = self.engine.read(relations, limit)
        for members in classes if classes is not self._brought else ():
            first = min(members)
            for other in members if len(members) > 1 else ():
                self._join(self.find(first), self.find(other))
        self._brought = classes
        leaders = [self.find(members[0]) for members in classes] if matches else []
        self.table.rebuild(self.find, lambda leader: self._classes[leader].members)
        self._spread_facts()
        widths = dict(relations)
        return {
            name: sorted({(*(leaders[c] for c in row[: widths[name]]), *row[widths[name] :]) for row in rows})
            for name, rows in matches.items()
        }

    # -- asking -------------------------------------------------------------------------------------------------------

    def find(self, number: int) -> int:
        """The leader of an e-node's class: the lowest number in it."""
        leader = self._leader
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    def eclass(self, number: int) -> EClass:
        """The facts known of the class of an e-node."""
        return self._classes[self.find(number)]

    def type(self, number: int) -> ValueType:
        """The type of the class of an e-node."""
        return self._classes[self.find(number)].type

    def facts_seen(self, number: int) -> int:
        """A number for all that conditions see of a class; equal for classes that they cannot tell apart."""
        leader = self.find(number)
        if self.alike[leader] < 0:
            facts = self._classes[leader]
            # Conditions read the elements of constants, which are not compared here: each is like itself alone.
            seen = (facts.type, facts.finite) if not facts.constant else (facts.type, facts.finite, object())
            self.alike[leader] = self._fact_numbers.setdefault(seen, len(self._fact_numbers))
        return self.alike[leader]

    def leaders(self) -> list[int]:
        """One number for each e-class, in order."""
        return sorted(self._classes)

    def lookup(self, op: str, attr_id: int, operands: Sequence[int]) -> int | None:
        """The e-node with this operator, attributes and operand classes, if there is one."""
        return self.table.get((op, attr_id, tuple(self.find(k) for k in operands)))

    def representative(self, number: int) -> int:
        """The e-node that stands for an e-node and for all that are congruent to it."""
        node = self.nodes[number]
        known = self.lookup(node.op, self.attr_id(node.op, node.attrs), node.operands)
        return number if known is None else known

    def distinct(self) -> list[tuple[str, int, tuple[int, ...], int]]:
        """Each distinct e-node once: operator, attributes, operand classes, number; in the order they were made."""
        return self.table.distinct()

    def attr_id(self, op: str, attrs: Attrs) -> int:
        """The number that stands for an operator with a set of attributes."""
        number = self._attr_ids.setdefault((op, attrs), len(self._attrs))
        if number == len(self._attrs):
            self._attrs.append((op, attrs))
        return number

    def attrs(self, attr_id: int) -> Attrs:
        """The attributes a number stands for."""
        return self._attrs[attr_id][1]

    def operator(self, attr_id: int) -> str:
        """The operator a number stands for."""
        return self._attrs[attr_id][0]

    def value(self, number: int) -> Any | None:
        """The elements of a small constant class, else None."""
        leader = self.find(number)
        if leader not in self._values:
            self._values[leader] = None  # a class that asks for itself while it is evaluated has no value that way
            self._values[leader] = self._evaluate(leader)
        return self._values[leader]

    def stated(self, number: int) -> Constant | None:
        """The constant that the model states for the class of an e-node, if it does."""
        members = (self.nodes[n] for n in self.eclass(number).members) if self.eclass(number).constant else ()
        return next((self.constants[node.attrs["index"]] for node in members if node.op == CONST), None)

    def size(self) -> tuple[int, int]:
        """The number of distinct e-nodes and of e-classes."""
        return len(self.table), len(self._classes)

    def view(self, number: int) -> TensorView:
        """The class of an e-node as conditions see it."""
        leader = self.find(number)
        known = self._views.get(leader)
        if known is None:
            known = self._views[leader] = TensorView(self, leader)
        return known

    # -- inside -------------------------------------------------------------------------------------------------------

    def _facts(self, number: int, generation: int) -> EClass:
        node = self.nodes[number]
        below = [self.eclass(k) for k in node.operands]
        declared = OPS.get(node.op)
        hidden = node.op == CONST and node.attrs["index"] in self._hidden
        constant = not hidden and (
            node.op == CONST
            or (declared is not None and declared.is_foldable and all(c.constant or c.type is _NOTHING for c in below))
            or (node.op == PROJECTION and below[0].constant)
        )
        types = [c.type if isinstance(c.type, TensorType) else None for c in below]
        whole = node.op in (INPUT, ABSENT, OPAQUE, PROJECTION) or not (
            declared is None or declared.is_partial(types, node.attrs)
        )
        type = node.types[0] if len(node.types) == 1 else _TUPLE
        if node.op == CONST:
            finite = not hidden and self.constants[node.attrs["index"]].is_finite
        else:
            # What an opaque node makes of its operands is not known: it is given, as an input is.
            given = node.op == OPAQUE or all(c.finite for c in below)
            finite = whole and given and self._may_count_as_finite(node, type, constant)
            # Whatever truth values are made of, they are neither infinite nor NaN.
            finite |= isinstance(type, TensorType) and type.dtype is DType.BOOL
        return EClass(
            members=[number],
            type=type,
            constant=constant,
            finite=finite or (self.finite_math is True and not hidden),
            generation=max([generation, *(c.generation for c in below)]),
            depth=0 if constant else 1 + max((c.depth for c in below), default=-1),
        )

    def _may_count_as_finite(self, node: ENode, type: ValueType, constant: bool) -> bool:
        """Return whether the result of finite operands is assumed finite, even if inputs and results may overflow."""
        if constant or (not type.dtype.is_float if isinstance(type, TensorType) else node.op != OPAQUE):
            return True
        return self.finite_math is not False and self.doubted.isdisjoint(self._given_names(node))

    def _given_names(self, node: ENode) -> Sequence[str]:
        """The names of values that come from outside of what rules know: an input, or what an opaque node makes."""
        if node.op == OPAQUE:
            return tuple(self.opaque[node.attrs["index"]].outputs)
        return (node.attrs["name"],) if node.op == INPUT else ()

    def _join(self, a: int, b: int) -> None:
        if a == b:
            return
        keep, drop = min(a, b), max(a, b)
        self._leader[drop] = keep
        self.table.join(keep, drop)
        self.shallower.pop(keep, None)
        self.shallower.pop(drop, None)
        one, two = self._classes[keep], self._classes.pop(drop)
        if (one.finite, one.constant) != (two.finite, two.constant):
            self._risen.add(keep)
        one.members = sorted([*one.members, *two.members])
        one.constant |= two.constant
        one.finite |= two.finite
        one.generation = min(one.generation, two.generation)
        one.depth = min(one.depth, two.depth)
        self.alike[keep] = self.alike[drop] = -1
        one.values += [v for v in two.values if v not in one.values]
        self._values.pop(keep, None)
        self._values.pop(drop, None)

    def _spread_facts(self) -> None:
        """Bring what an equality told of a class to the classes that are computed from it."""
        while self._risen:
            for number in self.table.readers(self.find(self._risen.pop())):
                known = self.eclass(number)
                if known.finite and known.constant:
                    continue
                told = self._facts(number, known.generation)
                if told.finite > known.finite or told.constant > known.constant:
                    known.finite |= told.finite
                    known.constant |= told.constant
                    leader = self.find(number)
                    self.alike[leader] = -1
                    self._values.pop(leader, None)
                    self._risen.add(leader)

    def _check_range(self, op: str, attrs: Attrs, operands: Sequence[int], types: Sequence[ValueType]) -> None:
        """Refuse a small constant outside its type's range, as rules over the real numbers make them."""
        if not operands or not self._is_small(types) or not all(self._is_known(k) for k in operands):
            return
        given = self._tensors(operands, op)
        arrays = [None if t is None else self.value(k) for k, t in zip(operands, given, strict=True)]
        if leaves_range(GraphNode(op, (), (), attrs), arrays, given, tensor_in(types[0], op)):
            raise ShapeError(f"a constant leaves the range of {types[0]}", where=op)

    def _tensors(self, operands: Sequence[int], op: str) -> list[TensorType | None]:
        """The types of an operator's operands, None for those left out; ShapeError where one is no tensor."""
        types = map(self.type, operands)
        return [None if type is _NOTHING else tensor_in(type, op) for type in types]

    def _is_known(self, number: int) -> bool:
        return self.type(number) is _NOTHING or (self.eclass(number).constant and self.value(number) is not None)

    def _is_small(self, types: Sequence[ValueType]) -> bool:
        type = types[0]
        return len(types) == 1 and isinstance(type, TensorType) and type.is_static and type.elements({}) <= SMALL

    def _evaluate(self, leader: int) -> Any | None:
        facts = self._classes[leader]
        if not facts.constant or not self._is_small([facts.type]):
            return None
        for number in facts.members:
            node = self.nodes[number]
            if node.op == CONST:
                return self.constants[node.attrs["index"]].array
            if node.op not in OPS or not spec(node.op).is_foldable or len(node.types) != 1:
                continue
            operands = [None if self.type(k) is _NOTHING else self.value(k) for k in node.operands]
            if any(o is None and self.type(k) is not _NOTHING for o, k in zip(operands, node.operands, strict=True)):
                continue
            step, types = GraphNode(node.op, (), (), node.attrs), self._tensors(node.operands, node.op)
            return evaluated(Floats(), step, operands, types, tensor_in(node.types[0], node.op))
        return None
