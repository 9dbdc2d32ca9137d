"""A graph of known sizes as one Python function: its references called in order, with nothing looked up in between."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.faults import check_results, declaration_at_fault
from eqsat.language.graphs.interpret import LONG, OpaqueRunner, expected_seconds, last_uses, node_types
from eqsat.language.ops import spec
from eqsat.language.terms import OPAQUE, Graph, Node, Sym, TensorType
from eqsat.system.deadline import check, expect

#: Seconds of nodes between two looks at the deadline, and those that a node takes at least.
_STRETCH, _LEAST = 1e-3, 1e-6


def has_call_list(graph: Graph) -> bool:
    """True if every value is a tensor of known sizes and no attribute is a named dim."""
    types = (graph.type(v) for v in (*graph.inputs, *(o for n in graph.nodes for o in n.outputs if o)))
    attrs = (one for node in graph.nodes for one in node.attrs.values())
    return all(isinstance(t, TensorType) and t.is_static for t in types) and not any(map(_is_named, attrs))


def _is_named(attr: Any) -> bool:
    return any(map(_is_named, attr)) if isinstance(attr, tuple) else isinstance(attr, Sym)


class CallList:
    """The calls of a graph's references, prepared once: called with the inputs in their order, it returns the outputs.

    The calls are the body of one generated function. Its local names are the values; references with their attributes,
    constants and element types are its globals. A value is given up after the last call that reads it, unless all are
    `kept`. Where the run may take long, it looks at the deadline about once in a millisecond. What a reference of a
    user's operator raises, and shapes other than declared, are a DeclarationError.
    """

    def __init__(self, graph: Graph, opaque: OpaqueRunner, *, kept: bool = False) -> None:
        self._writer = _CallWriter(graph, opaque, kept)
        self._file = "<calls of a graph>"
        made: dict[str, Any] = self._writer.bound
        exec(compile("\n".join(self._writer.lines), self._file, "exec"), made)
        # Taken out of its own globals, so that it goes with its program, and the constants with it.
        self._function: Callable[..., tuple[Any, ...]] = made.pop("calls")

    @property
    def text(self) -> str:
        """The generated function."""
        return "\n".join(self._writer.lines)

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        """The outputs in the graph's order, for checked inputs in theirs."""
        try:
            return self._function(*inputs)
        except Exception as error:
            self._blame(error)
            raise

    def _blame(self, error: Exception) -> None:
        """DeclarationError where it is a user's reference that failed."""
        trace = error.__traceback__
        while trace is not None and trace.tb_frame.f_code.co_filename != self._file:
            trace = trace.tb_next
        node = None if trace is None else self._writer.called.get(trace.tb_lineno)
        if node is not None and node.op != OPAQUE and not spec(node.op).is_shipped:
            types, _ = node_types(self._writer.graph, node)
            with declaration_at_fault(spec(node.op), "reference", types, node.attrs):
                raise error


class _CallWriter:
    """The lines of the function, the names that they use, and the node that each line of a reference calls."""

    def __init__(self, graph: Graph, opaque: OpaqueRunner, kept: bool) -> None:
        self.graph = graph
        self.lines: list[str] = []
        self.called: dict[int, Node] = {}
        self.bound: dict[str, Any] = {"asarray": np.asarray, "check": check, "expect": expect, "opaque": opaque}
        self._floats = Floats()
        self._names: dict[str, str] = {}
        self._globals: dict[tuple[str, Any], str] = {}
        #: The line of the last look at the deadline, and the nodes and seconds since.
        self._looked, self._nodes, self._seconds = 0, 0, math.inf
        self._write(kept)

    def _write(self, kept: bool) -> None:
        graph = self.graph
        self.lines.append(f"def calls({', '.join(self._new('x', name) for name in graph.inputs)}):")
        last = {} if kept else last_uses(graph, frozenset((*graph.outputs.values(), *graph.inputs, *graph.constants)))
        for index, node in enumerate(graph.nodes):
            if node.op == OPAQUE:
                self._opaque(node)
            else:
                self._declared(node)
            if index in last:
                self.lines.append(f" del {', '.join(self._names[value] for value in last[index])}")
        self.lines.append(f" return ({''.join(f'{self._value(value)}, ' for value in graph.outputs.values())})")

    def _new(self, letter: str, value: str) -> str:
        self._names[value] = f"{letter}{len(self._names)}"
        return self._names[value]

    def _value(self, value: str | None) -> str:
        """The name of a value; constants are bound where they are first read."""
        if value is None:
            return "None"
        if value not in self._names:
            constant = self.graph.constants[value]
            self.bound[self._new("c", value)] = self._floats.constant(constant.array, constant.type)
        return self._names[value]

    def _global(self, letter: str, key: Any, made: Any) -> str:
        """The name of an object, one for all that have this key."""
        if (letter, key) not in self._globals:
            name = self._globals[letter, key] = f"{letter}{len(self._globals)}_"
            self.bound[name] = made
        return self._globals[letter, key]

    def _opaque(self, node: Node) -> None:
        self._look(math.inf)
        operands = ", ".join(map(self._value, node.inputs))
        results = self._results(node, len(node.outputs))
        made = "".join(f"{name}, " for name in results) + ("= " if results else "")
        self._call(node, f" {made}opaque({self._global('n', id(node), node)}, [{operands}])")
        self._leave(node, results)

    def _declared(self, node: Node) -> None:
        declared = spec(node.op)
        types, made = node_types(self.graph, node)
        elements = sum(t.elements({}) for t in types if t is not None)
        seconds = expected_seconds(declared, node.attrs, elements, types, made)
        self._look(seconds)
        if elements >= LONG:
            self.lines.append(f" expect({seconds!r})")
        call = partial(declared.reference, self._floats.namespace(types, made), **node.attrs)
        reference = self._global("f", (node.op, node.attrs), call)
        text = f"{reference}({', '.join(map(self._value, node.inputs))})"
        results = self._results(node, len(made))
        if not declared.is_shipped:
            self._call(node, f" made = {text}")
            self._checked(made, partial(check_results, declared, results=made, operands=types))
            self.lines += [f" {', '.join(results)}, = made", " del made"]
        elif len(results) > 1:
            self._call(node, f" {', '.join(results)} = {text}")
        else:
            self._call(node, f" {results[0]} = {text}")
            self.lines.append(f" if isinstance({results[0]}, tuple): {results[0]}, = {results[0]}")
        for value, name, type in zip(node.outputs, results, made, strict=False):
            if value:
                dtype = self._global("d", type.dtype, self._floats.stored(type))
                self.lines.append(f" {name} = asarray({name}, {dtype})")
        self._leave(node, results)

    def _checked(self, made: list[TensorType], tell: Callable[..., None]) -> None:
        """Tell of results that are not those declared."""
        self.lines.append(" if not isinstance(made, tuple): made = (made,)")
        shapes = [f"getattr(made[{at}], 'shape', ()) != {type.static}" for at, type in enumerate(made)]
        self.lines.append(f" if {' or '.join([f'len(made) != {len(made)}', *shapes])}: {self._tell(tell)}(made)")

    def _tell(self, tell: Callable[..., None]) -> str:
        return self._global("r", len(self.lines), tell)

    def _results(self, node: Node, count: int) -> list[str]:
        """The names of a node's results, those that nothing reads too."""
        values = (*node.outputs, *[""] * (count - len(node.outputs)))
        return [self._new("v", value) if value else f"unused{at}" for at, value in enumerate(values)]

    def _leave(self, node: Node, results: list[str]) -> None:
        """Give up the results that nothing reads."""
        unused = [name for name in results if name.startswith("unused")]
        if unused:
            self.lines.append(f" del {', '.join(unused)}")

    def _call(self, node: Node, text: str) -> None:
        self.lines.append(text)
        self.called[len(self.lines)] = node

    def _look(self, seconds: float) -> None:
        """Look at the deadline before a node of so many seconds, unless it ends soon after the last look."""
        if self._seconds + seconds > _STRETCH:
            self.lines.append("")
            self._looked, self._nodes, self._seconds = len(self.lines) - 1, 0, 0.0
        self._nodes += 1
        self._seconds += max(seconds, _LEAST)
        self.lines[self._looked] = f" check({self._nodes})"
