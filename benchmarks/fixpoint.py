"""What folding and shape inference know together and one after the other: `python -m benchmarks.fixpoint [MODEL …]`.

For each model, read in three ways: shapes inferred and then constants folded, each once, so that no shape is computed
from a constant that folding made (one pass); the same again on what that wrote until nothing changes (passes); and
both as one analysis, as eqsat does it (fixpoint). Counted are nodes, those that stay opaque, values whose dims are all
integers, and the rules that fire on each graph when it is grown, with how often: what static shapes unlock is the
difference. Prints a table and writes `results/fixpoint.json`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

import click
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.models import MODELS, load
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.errors import EqsatError
from eqsat.language.graphs.fold import Folder, infer_and_fold
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms import OPAQUE, Array, Graph, TensorType
from eqsat.rewrites.rules.loader import load_rules

RESULT = Path(__file__).parent / "results" / "fixpoint.json"
#: Passes after which a model is given up, and the e-nodes that an e-graph may have.
MOST_PASSES, NODES = 40, 20_000


class OneWay(Folder):
    """Infers types and folds nothing, so that a shape is known only where the model states its numbers."""

    def _fold(self, *_node: Any) -> bool:
        return False

    def dims(self, value: str) -> Array | None:
        known = super().dims(value)
        return known if self.resolve(value) in self.constants else None


def one_pass(model: ModelProto) -> Graph:
    """Shapes inferred, then constants folded, each once."""
    with patch("eqsat.language.onnx.read.importer.Folder", OneWay):
        return infer_and_fold(read(model))


def passes(model: ModelProto) -> tuple[Graph, int]:
    """One pass after the other until nothing changes any more, and how many there were."""
    graph = one_pass(model)
    for count in range(1, MOST_PASSES):
        after = one_pass(to_model(graph))
        if counts(after) == counts(graph):
            return graph, count
        graph = after
    return graph, MOST_PASSES


def counts(graph: Graph) -> dict[str, int]:
    """Nodes, those that are opaque, and values of static shape among those that nodes make."""
    made = [graph.type(o) for n in graph.nodes for o in n.outputs if o]
    return {
        "nodes": len(graph.nodes),
        "opaque": sum(n.op == OPAQUE for n in graph.nodes),
        "values": len(made),
        "static": sum(isinstance(t, TensorType) and t.is_static for t in made),
    }


def fired(graph: Graph) -> Mapping[str, int]:
    """The rules that fire when a graph is grown, and how often."""
    saturator = Saturator(encode(graph).egraph, load_rules(), Limits(nodes=NODES, seconds=120.0))
    return saturator.run().fired


def measured(model: ModelProto) -> dict[str, Any]:
    """The figures of each way of reading a model."""
    repeated, count = passes(model)
    graphs = {"one pass": one_pass(model), "passes": repeated, "fixpoint": read(model)}
    rows: dict[str, Any] = {}
    rules: dict[str, Mapping[str, int]] = {}
    for way, graph in graphs.items():
        rules[way] = fired(graph)
        rows[way] = {**counts(graph), "rules": len(rules[way]), "fired": sum(rules[way].values())}
    rows["passes"]["passes"] = count
    unlocked = sorted(rules["fixpoint"].keys() - rules["one pass"].keys())
    return {**rows, "unlocked": unlocked}


def published() -> ModelProto:
    """Data of shape [3, 4, 5, 6], its shape with the first two dims exchanged, Data in that shape, and that cast."""
    order = numpy_helper.from_array(np.array([1, 0, 2, 3]), "order")
    nodes = [
        helper.make_node("Shape", ["data"], ["shape"]),
        helper.make_node("Gather", ["shape", "order"], ["wanted"]),
        helper.make_node("Reshape", ["data", "wanted"], ["reshaped"]),
        helper.make_node("Cast", ["reshaped"], ["y"], to=TensorProto.FLOAT16),
    ]
    data = helper.make_tensor_value_info("data", TensorProto.FLOAT, [3, 4, 5, 6])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT16, None)
    graph = helper.make_graph(nodes, "published", [data], [y], [order])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def exported_attention(layers: int = 4, batch: int = 2, length: int = 8, heads: int = 4, width: int = 32) -> ModelProto:
    """Attention as exporters write it that fold nothing: every reshape to a shape computed from that of its operand."""
    rng = np.random.default_rng(0)
    tensors, nodes = [], []

    def weight(name: str, array: Array) -> str:
        tensors.append(numpy_helper.from_array(array, name))
        return name

    def add(op: str, inputs: list[str], **attributes: Any) -> str:
        name = f"n{len(nodes)}"
        nodes.append(helper.make_node(op, inputs, [name], **attributes))
        return name

    zero, one = weight("zero", np.array(0)), weight("one", np.array(1))
    first = weight("first", np.array([0]))
    by_heads = weight("by_heads", np.array([heads, width // heads]))
    whole = weight("whole", np.array([width]))
    scale = weight("scale", np.float32((width / heads) ** 0.5))
    x = "x"
    for layer in range(layers):
        shape = add("Shape", [x])
        rows = [add("Unsqueeze", [add("Gather", [shape, index]), first]) for index in (zero, one)]
        split, joined = add("Concat", [*rows, by_heads], axis=0), add("Concat", [*rows, whole], axis=0)
        parts = []
        for part, perm in zip("qkv", ((0, 2, 1, 3), (0, 2, 3, 1), (0, 2, 1, 3)), strict=True):
            matrix = weight(f"{part}{layer}", (rng.standard_normal((width, width)) / 6).astype(np.float32))
            cut = add("Reshape", [add("MatMul", [x, matrix]), split])
            parts.append(add("Transpose", [cut], perm=perm))
        scores = add("Softmax", [add("Div", [add("MatMul", parts[:2]), scale])], axis=-1)
        back = add("Transpose", [add("MatMul", [scores, parts[2]])], perm=(0, 2, 1, 3))
        x = add("Add", [add("Reshape", [back, joined]), x])
    nodes.append(helper.make_node("Identity", [x], ["y"]))
    shape = [batch, length, width]
    graph = helper.make_graph(
        nodes,
        "exported_attention",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


#: Models built here, and those of the benchmarks that compute shapes.
OWN: dict[str, Callable[[], ModelProto]] = {"published": published, "exported_attention": exported_attention}
DEFAULT = (*OWN, "bert_base_dynamic", "bert_base_dynamic_dynamo", "llama", "llama_dynamic", "llama_dynamic_dynamo")


@click.command()
@click.argument("models", nargs=-1)
@click.option("--json", "target", type=click.Path(path_type=Path), default=RESULT, show_default=False)
def main(models: tuple[str, ...], target: Path) -> None:
    """Counts what each way of reading models knows; rows of other models that the file holds already stay in it."""
    unknown = [m for m in models if m not in OWN and m not in MODELS]
    if unknown:
        raise click.UsageError(f"no model {unknown[0]!r}; one of {', '.join((*OWN, *MODELS))}")
    known = {r["model"]: r for r in json.loads(target.read_text())["models"]} if target.exists() else {}
    for name in track(models or DEFAULT, description="models"):
        try:
            known[name] = {"model": name, **measured(OWN[name]() if name in OWN else load(name))}
        except EqsatError as error:
            known[name] = {"model": name, "failed": str(error).splitlines()[0]}
        target.write_text(json.dumps({"models": list(known.values())}, indent=1) + "\n")
    Console(width=150).print(table(list(known.values())))


def table(rows: list[dict[str, Any]]) -> Table:
    """The rows for people."""
    made = Table(title="one pass of inference and folding, passes until nothing changes, and both as one analysis")
    made.add_column("model", no_wrap=True)
    for title in ("way", "nodes", "opaque", "values", "static", "rules", "fired", "passes", "unlocked"):
        made.add_column(title, justify="right")
    for row in rows:
        if "failed" in row:
            made.add_row(row["model"], row["failed"])
            continue
        for way in ("one pass", "passes", "fixpoint"):
            found = row[way]
            cells = (str(found.get(k, "")) for k in ("nodes", "opaque", "values", "static", "rules", "fired", "passes"))
            last = str(len(row["unlocked"])) if way == "fixpoint" else ""
            made.add_row(row["model"] if way == "one pass" else "", way, *cells, last)
    return made


if __name__ == "__main__":
    main()
