"""Extraction with states: models of BERT in two precisions times two layouts, solved from the real e-graph.

`python -m benchmarks.states [MODEL …]` prints a table and writes JSON. What an operator costs in a state is made up, in
the proportions of a GPU: matrix products are cheaper in half precision and like a transposed right operand; softmax,
normalisation and exponentials exist in float32 alone; views want rows; everything else costs the bytes that it moves.
"""

from __future__ import annotations

import itertools
import json
import platform
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from benchmarks.models import load
from eqsat.costs.device import Device
from eqsat.costs.model import CostModel
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Limits, Saturator
from eqsat.egraph.snapshot import Snapshot, SnapshotNode, snapshot
from eqsat.extract import Conversion, Node, Problem, solve
from eqsat.extract.tensors import TensorProblem, tensor_problem
from eqsat.language.onnx.importer import load as read
from eqsat.language.spec import OPS
from eqsat.language.types import TensorType
from eqsat.rewrites.loader import load_rules

RESULTS = Path(__file__).parent / "results"
MODELS = ("bert_base", "taso_bert", "vit_base", "llama")
#: The rules an e-graph is grown with: none, the library, and the library with laws that multiply ties.
GROWTHS = ("plain", "library", "algebra")
ALGEBRA = """
%phase expand
states-add-commutes: add(x, y) => add(y, x)
states-mul-commutes: mul(x, y) => mul(y, x)
states-add-associates: add(add(x, y), z) => add(x, add(y, z))
states-mul-associates: mul(mul(x, y), z) => mul(x, mul(y, z))
"""
FLOAT, HALF = 0, 1
PRECISIONS, LAYOUTS = 2, 2
STATES = PRECISIONS * LAYOUTS
PRODUCTS = frozenset({"matmul", "conv", "gemm", "einsum", "attention"})
FLOAT_ONLY = frozenset({"softmax", "log_softmax", "layer_norm", "rms_norm", "batch_norm", "exp", "erf", "log"})
#: What each operand or result in a layout that a matrix product does not like adds to its time.
MISFIT = 0.08


def state(precision: int, layout: int) -> int:
    """The number of a state."""
    return PRECISIONS * layout + precision


class Catalogue:
    """Implementations of the nodes of a tensor problem, and conversions of its classes, in four states."""

    def __init__(self, plain: TensorProblem, device: Device) -> None:
        self.plain, self.device = plain, device
        self.snapshot: Snapshot = plain.snapshot

    def problem(self) -> Problem:
        """The problem with states; roots are wanted in float32 and rows, as inputs are given."""
        nodes: list[Node] = []
        for node, position in zip(self.plain.problem.nodes, self.plain.positions, strict=True):
            nodes += self._implementations(node, self.snapshot.nodes[position])
        return Problem(nodes, self.plain.problem.roots, list(self._conversions()), STATES)

    def _floating(self, eclass: int) -> bool:
        type = self._type(eclass)
        return type is not None and type.dtype.is_float

    def _type(self, eclass: int) -> TensorType | None:
        type = self.snapshot.classes[self.plain.leaders[eclass]].type
        return type if isinstance(type, TensorType) else None

    def _bytes(self, eclass: int) -> int:
        type = self._type(eclass)
        return 0 if type is None or not type.is_static else type.elements({}) * type.dtype.itemsize

    def _moved(self, bytes: float) -> float:
        return bytes / self.device.bandwidth

    def _implementations(self, node: Node, entry: SnapshotNode) -> Iterator[Node]:
        if not self._floating(node.eclass):
            yield self._node(node, FLOAT, [FLOAT] * len(node.operands), node.cost)
        elif not node.operands and entry.op != "input":
            yield from (self._node(node, s, (), node.cost) for s in range(STATES))
        elif not node.operands:
            yield self._node(node, state(FLOAT, 0), (), node.cost)
        elif entry.op in PRODUCTS:
            yield from self._products(node)
        else:
            yield from self._others(node, entry)

    def _products(self, node: Node) -> Iterator[Node]:
        moved = self._moved(self._bytes(node.eclass) + sum(self._bytes(c) for c, _ in node.operands))
        for precision in range(PRECISIONS):
            busy = max(node.cost - self.device.launch, moved)
            time = self.device.launch + (busy if precision == FLOAT else max(busy / 8, moved / 2))
            for layouts in itertools.product(range(LAYOUTS), repeat=min(len(node.operands), 2) + 1):
                result, *given = layouts
                wrong = result + sum(layout != place for place, layout in enumerate(given))
                rest = [result] * (len(node.operands) - len(given))
                states = [state(precision, layout) for layout in (*given, *rest)]
                yield self._node(node, state(precision, result), states, time * (1 + MISFIT * wrong))

    def _others(self, node: Node, entry: SnapshotNode) -> Iterator[Node]:
        view = entry.op in OPS and OPS[entry.op].view
        busy = max(node.cost - self.device.launch, 0.0)
        for precision in (FLOAT,) if entry.op in FLOAT_ONLY else (FLOAT, HALF):
            time = 0.0 if node.cost == 0 else self.device.launch + busy / (1 + precision)
            for layout in range(LAYOUTS):
                if view and layout:
                    continue
                states = [state(precision, layout)] * len(node.operands)
                yield self._node(node, state(precision, layout), states, time)
                if entry.op == "transpose":
                    yield self._node(node, state(precision, 1 - layout), states, 0.0)

    def _node(self, node: Node, result: int, operands: Any, cost: float) -> Node:
        pairs = tuple((c, s if self._floating(c) else FLOAT) for (c, _), s in zip(node.operands, operands, strict=True))
        return Node(node.eclass, pairs, cost, result, node.name)

    def _conversions(self) -> Iterator[Conversion]:
        computed = {node.eclass for node in self.plain.problem.nodes if node.operands or node.name == "input"}
        for eclass in sorted(computed):
            if not self._floating(eclass):
                continue
            size = self._bytes(eclass)
            for layout in range(LAYOUTS):
                for source, target in ((FLOAT, HALF), (HALF, FLOAT)):
                    yield self._conversion(eclass, state(source, layout), state(target, layout), 1.5 * size)
            for precision in range(PRECISIONS):
                for source, target in ((0, 1), (1, 0)):
                    moved = 2 * size / (1 + precision)
                    yield self._conversion(eclass, state(precision, source), state(precision, target), moved)

    def _conversion(self, eclass: int, source: int, target: int, moved: float) -> Conversion:
        return Conversion(eclass, source, target, self.device.launch + self._moved(moved))


def plain_problem(name: str, growth: str) -> TensorProblem:
    """The problem of a model in one state, its e-graph grown as `growth` says."""
    encoding = encode(read(load(name)))
    if growth != "plain":
        rules = load_rules([ALGEBRA] if growth == "algebra" else [])
        Saturator(encoding.egraph, rules, Limits(seconds=60.0)).run()
    return tensor_problem(snapshot(encoding), CostModel("nvidia-h200"))


def with_states(plain: TensorProblem) -> Problem:
    """The same problem in four states."""
    return Catalogue(plain, Device.of("nvidia-h200")).problem()


@click.command()
@click.argument("models", nargs=-1)
@click.option("--time-limit", default=60.0, help="Seconds a problem.")
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULTS / "states.json")
def main(models: tuple[str, ...], time_limit: float, target: Path) -> None:
    """Solves each model in one state and in four, and tabulates when it came within 1 % and when it was proved."""
    rows: list[dict[str, Any]] = []
    for name in models or MODELS:
        for growth in GROWTHS:
            plain = plain_problem(name, growth)
            for states, problem in ((1, plain.problem), (STATES, with_states(plain))):
                rows.append({"model": name, "rules": growth, "states": states, **_solved(problem, time_limit)})
                click.echo(json.dumps(rows[-1]))
    table = Table(*rows[0])
    for row in rows:
        table.add_row(*(f"{v:.6g}" if isinstance(v, float) else str(v) for v in row.values()))
    Console(width=160).print(table)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps({"machine": platform.machine(), "rows": rows}, indent=1) + "\n")


def _solved(problem: Problem, time_limit: float) -> dict[str, Any]:
    start, near = time.monotonic(), float("inf")

    def follow(cost: float, bound: float) -> None:
        nonlocal near
        if bound >= 0.99 * cost:
            near = min(near, time.monotonic() - start)

    solution = solve(problem, time_limit=time_limit, progress=follow)
    solution.check(problem)
    return {
        "implementations": len(problem.nodes),
        "conversions": len(problem.conversions),
        "status": solution.status,
        "cost": solution.cost,
        "bound": solution.lower_bound,
        "greedy": solve(problem, extractor="greedy").cost,
        "within 1 % after s": round(near, 2),
        "seconds": round(solution.seconds, 2),
    }


if __name__ == "__main__":
    main()
