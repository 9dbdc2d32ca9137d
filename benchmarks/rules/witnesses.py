"""False rules that people write, each with a witness: an instance on which NumPy finds its two sides different.

A file of `benchmarks/rules/false` is an ordinary file of rules, the comment before each of which is its witness:
``# witness: x = float32[2, 3], c = float32([-1, inf]), i = int64([0, 2]), a = dict(group=2), p = (1, 0)``. Operands
have a shape, and then elements that follow from their name and shape, or the elements themselves; a sequence is a tuple
of operands; of a record the fields that differ from their defaults are named.
"""

from __future__ import annotations

import ast
import math
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.rules.falsity import computed
from eqsat.errors import GraphError, RuleError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms import Attrs, Bindings, DType, TensorType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import evaluated
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule, applications
from eqsat.rewrites.rules.term import left_terms, output_types, right_terms

FOLDER = Path(__file__).parent / "false"
#: Elements that are not given are such fractions, so that sums and products of a few are exact in float32.
_FRACTION = 8
#: So many magnitudes at least are drawn from, where an operand has fewer elements.
_LEAST = 16
#: How far elements are apart, in parts of the largest, before they are called different; rounding stays far below.
APART = 1e-3
_MARK = "# witness:"
_NAMES = {"inf": np.inf, "nan": np.nan}


@dataclass(frozen=True)
class FalseRule:
    """A false rule of one of the kinds, with the instance that shows it."""

    rule: Rule
    kind: str
    witness: Bindings

    @property
    def terms(self) -> list[list[Any]]:
        """The terms of the left side on the witness, and those of the right one where it types."""
        terms = [left_terms(self.rule, self.witness)]
        with suppress(GraphError):
            terms.append(right_terms(self.rule, self.witness))
        return terms

    def computed(self) -> list[list[Any]]:
        """The outputs of these terms, as ONNX's reference evaluator computes them."""
        return [computed(side, self.witness) for side in self.terms]

    def references(self) -> list[list[Any]]:
        """The outputs of these terms, as this project's own references compute them."""
        return evaluated(self.witness, Floats(), *self.terms)

    def difference(self) -> str | None:
        """How ONNX's reference evaluator finds the sides different on the witness; None where it does not."""
        refusal = self.rule.refused(self.witness)
        if refusal is not None:
            raise RuleError(
                f"the witness of {self.rule.name} does not meet its conditions: {refusal}", where=self.rule.where
            )
        types = [output_types(side) for side in self.terms]
        if len(types) == 1:
            return "no types on the right"
        if types[0] != types[1]:
            return "types"
        return "elements" if any(map(apart, *self.computed())) else None


def apart(a: Any, b: Any) -> bool:
    """True where arrays differ by more than rounding explains, infinities and NaN told apart from all else."""
    if a.shape != b.shape:
        return True
    if a.dtype.kind != "f":
        return not np.array_equal(a, b)
    known = np.isfinite(a) & np.isfinite(b)
    if not np.array_equal(np.where(known, 0.0, a), np.where(known, 0.0, b), equal_nan=True):
        return True
    largest = float(np.abs(a[known]).max(initial=0.0))
    return bool((np.abs(a[known] - b[known]) > APART * max(largest, APART)).any())


def false_rules(folder: Path = FOLDER) -> Iterator[FalseRule]:
    """Every false rule of a folder, by file: the kinds; RuleError where one has no witness or no reason."""
    for path in sorted(folder.glob("*.rules")):
        yield from read_false_rules(path.read_text(encoding="utf-8"), path.stem)


def read_false_rules(text: str, kind: str) -> Iterator[FalseRule]:
    """The false rules of one text, in the syntax of rules with a witness before each."""
    witnesses = _witnesses(text)
    for rule in parse_rules(text, f"{kind}.rules", origin="candidate"):
        if rule.name not in witnesses or not rule.reason:
            raise RuleError(
                f"{rule.name} lacks a witness or a reason",
                where=rule.where,
                expected="%because why people write it, and # witness: operands and attributes",
            )
        yield FalseRule(rule, kind, _bindings(rule, witnesses[rule.name]))


def _witnesses(text: str) -> dict[str, str]:
    """The text of each witness by the name of the rule that follows it."""
    witnesses: dict[str, str] = {}
    pending = ""
    for line in text.splitlines():
        if line.startswith(_MARK):
            pending = line.removeprefix(_MARK)
        elif pending and re.match(r"[\w-]+( \(|:)", line):
            witnesses[re.split(r"[ :]", line, maxsplit=1)[0]] = pending
            pending = ""
    return witnesses


def _bindings(rule: Rule, witness: str) -> Bindings:
    call = ast.parse(f"witness({witness.strip()})", mode="eval").body
    if not isinstance(call, ast.Call) or call.args:
        raise RuleError(f"the witness of {rule.name} is not read", where=rule.where, expected="name = value, …")
    given = {str(keyword.arg): keyword.value for keyword in call.keywords}
    bound = rule.tensors | rule.tensor_groups | rule.attrs | rule.attr_groups
    if given.keys() != bound:
        raise RuleError(
            f"the witness of {rule.name} is of other names than the left side",
            where=rule.where,
            expected=", ".join(sorted(bound)),
        )
    tensors: dict[str, Any] = {name: _operand(name, given[name]) for name in rule.tensors}
    for name in rule.tensor_groups:
        node = given[name]
        members = node.elts if isinstance(node, ast.Tuple) else []
        tensors[name] = tuple(_operand(f"{name}{i}", member) for i, member in enumerate(members))
    return Bindings(tensors, {name: _attribute(rule, name, given[name]) for name in rule.attrs | rule.attr_groups})


def _operand(name: str, node: ast.expr) -> Drawn:
    """``float32[2, 3]`` or ``float32([[1, 2, 3]])``: known before the program runs, and finite where it is."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        kind, shape = DType(node.value.id), _value(node.slice)
        array = _elements(name, shape if isinstance(shape, tuple) else (shape,)).astype(kind.numpy)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        kind = DType(node.func.id)
        array = np.asarray(_value(node.args[0]), kind.numpy)
    else:
        raise RuleError(f"{ast.unparse(node)} is no operand", expected="float32[2, 3] or float32([1, 2])")
    finite = bool(np.isfinite(array.astype(np.float64)).all())
    return Drawn(name, TensorType.of(kind.value, array.shape), constant=True, finite=finite, array=array)


def _elements(name: str, shape: tuple[int, ...]) -> Any:
    """Fractions of both signs and different magnitudes, none of them 0, which a name and a shape settle."""
    rng = np.random.default_rng(zlib.crc32(f"{name}{shape}".encode()))
    count = math.prod(shape)
    magnitudes = 1 + rng.permutation(max(count, _LEAST))[:count]
    return magnitudes.reshape(shape) * rng.choice((-1, 1), shape) / _FRACTION


def _attribute(rule: Rule, name: str, node: ast.expr) -> Any:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        return _record(rule, name, {str(k.arg): _value(k.value) for k in node.keywords})
    return _value(node)


def _record(rule: Rule, name: str, given: Mapping[str, Any]) -> Attrs:
    """A whole record: the fields that are given, and the defaults of the operator that binds it."""
    apps = (app for root in rule.roots for app in applications(root) if app.record == name)
    return spec(next(apps).op).complete(given)


class _Named(ast.NodeTransformer):
    """Infinity and NaN as constants."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.copy_location(ast.Constant(_NAMES[node.id]), node) if node.id in _NAMES else node


def _value(node: ast.expr) -> Any:
    return ast.literal_eval(_Named().visit(node))
