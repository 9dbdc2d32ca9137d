"""An instance that refutes a rule, and the program that shows it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from eqsat.errors import GraphError, UnsoundRuleError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms.instantiation import instantiate_all
from eqsat.language.terms.pattern import App, Bindings, Pattern, Spread, spread_roots
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.instances.instance import evaluated, operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import OverBindings, left_terms, output_types, right_terms

#: Calls longer than this get a name of their own in a program.
_LINE = 90
#: Names that a program uses itself.
_TAKEN = frozenset(
    {"np", "eqsat", "runpy", "Floats", "run", "graph", "feeds", "found", "left", "right", "name", "value"}
)


@dataclass(frozen=True)
class Counterexample:
    """Operands and attributes for which the sides of a rule differ.

    `reason` says how, `left` and `right` are the results of the sides, or why there are none; `program` is Python that
    prints both, and needs NumPy and eqsat alone.
    """

    rule: Rule
    bindings: Bindings
    reason: str
    left: str
    right: str
    program: str

    def __str__(self) -> str:
        lines = [str(self.rule), *self.instance(), f"left  {self.left}", f"right {self.right}"]
        return "\n".join(lines)

    def instance(self) -> list[str]:
        """The operands and attributes, one a line."""
        lines = [f"{o.name}: {o.type} = {_shown(o.array)}" for o in operands(self.bindings)]
        return lines + [f"{name} = {value!r}" for name, value in self.bindings.attrs.items()]


class CounterexampleError(UnsoundRuleError):
    """A rule that an instance refutes; `counterexample` has it, and the message a program that shows it."""

    counterexample: Counterexample | None = None


def refuted(example: Counterexample) -> CounterexampleError:
    """The error that reports a counterexample."""
    program = "\n".join("    " + line if line else "" for line in example.program.splitlines())
    body = "\n".join("  " + line for line in str(example).splitlines())
    error = CounterexampleError(
        f"rule {example.rule.name!r} is false: {example.reason}\n{body}",
        where=example.rule.where,
        expected="sides that are equal wherever the conditions hold",
        remedy=f"add the missing condition, or mend a side; this prints what both make:\n\n{program}\n",
    )
    error.counterexample = example
    return error


def counterexample(rule: Rule, bindings: Bindings, reason: str) -> Counterexample:
    """The counterexample to a rule, with both sides computed in float64 where they type."""
    left = left_terms(rule, bindings)
    right: list[Any] | GraphError
    try:
        right = right_terms(rule, bindings)
    except GraphError as error:
        right = error
    script = _Script(rule, bindings)
    ours = output_types(left)
    if isinstance(right, GraphError):
        return Counterexample(rule, bindings, reason, _types(ours), right.what, script.types(len(ours), 0))
    theirs = output_types(right)
    if ours != theirs:
        program = script.types(len(ours), len(theirs))
        return Counterexample(rule, bindings, reason, _types(ours), _types(theirs), program)
    program = script.values(len(ours))
    return Counterexample(rule, bindings, reason, _made(left, bindings), _made(right, bindings), program)


def _made(terms: list[Any], bindings: Bindings) -> str:
    (arrays,) = evaluated(bindings, Floats(wide=True), terms)
    return ", ".join(map(_shown, arrays))


def _types(types: list[TensorType]) -> str:
    return ", ".join(map(str, types))


def _shown(array: Any) -> str:
    return np.array2string(np.asarray(array), threshold=32, precision=6, separator=", ").replace("\n", "")


class _Script(OverBindings):
    """Writes a program that builds both sides as graphs."""

    def __init__(self, rule: Rule, bindings: Bindings) -> None:
        super().__init__(rule)
        self.bindings = bindings
        self.operands = operands(bindings)
        self.names = {id(o): o.name + "_" * (o.name in _TAKEN) for o in self.operands}
        self.lines: list[str] = []
        self.temporary = 0

    def values(self, outputs: int) -> str:
        """Both sides, run and printed."""
        names = [*self.left(outputs), *self.right(outputs)]
        self.lines += [f'graph.output("{name}", {name})' for name in names]
        self.lines += ["feeds = {", *(f'    "{o.name}": {_literal(o.array)},' for o in self.operands), "}"]
        self.lines += [
            'with np.errstate(all="ignore"):',
            "    found = run(graph.build(), feeds, Floats(wide=True))",
            "for name, value in found.items():",
            "    print(name, value.tolist())",
        ]
        return self.text(
            "from eqsat.language.arithmetic.floats import Floats", "from eqsat.language.graphs.interpret import run"
        )

    def types(self, left: int, right: int) -> str:
        """Both sides built, and their types printed; the error where the right side, of no outputs, does not type."""
        for name in self.left(left):
            self.lines.append(f'print("{name}", {name}.type)')
        before, self.lines = self.lines, []
        for name in self.right(right or left):
            self.lines.append(f'print("{name}", {name}.type)')
        if not right:
            caught = ["except eqsat.EqsatError as error:", '    print("right", error)']
            self.lines = ["try:", *("    " + line for line in self.lines), *caught]
        self.lines = before + self.lines
        return self.text()

    def text(self, *imports: str) -> str:
        """The whole program."""
        graph = ['graph = eqsat.Graph("counterexample")']
        for operand in self.operands:
            kind, name = operand.type, self.names[id(operand)]
            graph.append(f'{name} = graph.input("{operand.name}", {kind.static}, "{kind.dtype.value}")')
        head = ["import numpy as np", "import eqsat", *imports, *_declarations(self.rule)]
        return "\n".join([f"# {self.rule}".replace("\n", "\n#"), *head, "", *graph, *self.lines])

    def left(self, outputs: int) -> list[str]:
        """Assign the outputs of the left side."""
        return self.assign("left", spread_roots(self.rule.left), outputs)

    def right(self, outputs: int) -> list[str]:
        """Assign the outputs of the right side."""
        return self.assign("right", self.rule.right, outputs)

    def assign(self, side: str, patterns: Iterable[Pattern | Spread], outputs: int) -> list[str]:
        """Name the outputs of a side: by the side, or left_0, left_1 and so on if there are several."""
        names = [side] if outputs == 1 else [f"{side}_{i}" for i in range(outputs)]
        texts = instantiate_all(patterns, self.bindings, self)
        if len(texts) == 1:
            self.lines.append(f"{', '.join(names)} = {texts[0]}")
        else:
            self.lines += [f"{name} = {text}" for name, text in zip(names, texts, strict=True)]
        return names

    def variable(self, name: str, bindings: Bindings) -> str:
        """The name of an operand."""
        return self.names[id(super().variable(name, bindings))]

    def members(self, spread: Spread, bindings: Bindings) -> list[str]:
        """The names of the operands that a spread takes."""
        return [self.names[id(operand)] for operand in super().members(spread, bindings)]

    def absent(self) -> str:
        """None for an operand left out."""
        return "None"

    def apply(self, app: App, operands: Sequence[str], bindings: Bindings) -> str:
        """The call of an operator; one that would be long gets names for its operands first."""
        defaults = spec(app.op).attrs
        attrs = spec(app.op).complete(self.rule.attributes(app, bindings))
        given = [f"{k}={_value(v)}" for k, v in attrs.items() if repr(v) != repr(defaults.get(k))]
        if sum(map(len, (*operands, *given))) > _LINE:
            operands = [self.name(text) for text in operands]
        return f"graph.apply({', '.join([_value(app.op), *operands, *given])})"

    def name(self, expression: str) -> str:
        """A name for a call."""
        if not expression.startswith("graph."):
            return expression
        self.temporary += 1
        self.lines.append(f"t{self.temporary} = {expression}")
        return f"t{self.temporary}"


def _declarations(rule: Rule) -> list[str]:
    """Statements that load operators which eqsat does not declare: modules by name, single files by path."""
    lines: list[str] = []
    for declared in map(spec, sorted(rule.operators())):
        module = declared.reference.__module__
        path = getattr(sys.modules.get(module), "__file__", None)
        if declared.is_shipped:
            continue
        if "." in module:
            lines.append(f"import {module}")
        elif path:
            lines += ["import runpy", f"runpy.run_path({path!r})"]
        else:
            lines.append(f"# declare {declared.name} here")
    return list(dict.fromkeys(lines))


def _literal(array: Any) -> str:
    """An array as an expression."""
    known = np.asarray(array)
    text = f'np.array({_value(known.tolist())}, "{known.dtype.name}")'
    return text if known.size else f"{text}.reshape({known.shape})"


def _value(value: Any) -> str:
    """A literal of nested numbers, strings and tuples."""
    if isinstance(value, tuple):
        return "(" + ", ".join(_value(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    if isinstance(value, list):
        return "[" + ", ".join(_value(v) for v in value) + "]"
    if isinstance(value, float) and not np.isfinite(value):
        return "np.nan" if np.isnan(value) else "np.inf" if value > 0 else "-np.inf"
    return json.dumps(value) if isinstance(value, str) else repr(value)
