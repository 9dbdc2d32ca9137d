"""Long and wide ONNX models: chains, trees of sums, deep transformers, nodes of very many operands, bodies, tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper

_OPSET = 17


def chain(count: int) -> ModelProto:
    """A chain of element-wise nodes and reshapes, some of which cancel."""
    nodes, value = [], "x"
    kinds = ("Relu", "Add", "Neg", "Mul", "Sigmoid", "Neg", "Neg", "Transpose", "Transpose", "Tanh")
    for index in range(count):
        kind, name = kinds[index % len(kinds)], f"v{index}"
        inputs = [value, f"c{index % 7}"] if kind in ("Add", "Mul") else [value]
        more = {"perm": [1, 0]} if kind == "Transpose" else {}
        nodes.append(helper.make_node(kind, inputs, [name], **more))
        value = name
    held = {f"c{i}": np.full((8, 8), 0.5 + 0.1 * i, np.float32) for i in range(7)}
    return _model("chain", nodes, {"x": (8, 8)}, value, (8, 8), held)


def tree_of_sums(leaves: int) -> ModelProto:
    """A balanced binary tree of sums over scaled copies of two inputs."""
    nodes, level = [], []
    for index in range(leaves):
        nodes.append(helper.make_node("Mul", ["x" if index % 2 else "y", f"c{index % 64}"], [f"leaf{index}"]))
        level.append(f"leaf{index}")
    while len(level) > 1:
        pairs = zip(level[::2], level[1::2], strict=False)
        above = []
        for pair in pairs:
            nodes.append(helper.make_node("Add", list(pair), [f"s{len(nodes)}"]))
            above.append(nodes[-1].output[0])
        level = above + (level[-1:] if len(level) % 2 else [])
    held = {f"c{i}": np.full((4, 4), 0.01 * (i + 1), np.float32) for i in range(64)}
    return _model("tree of sums", nodes, {"x": (4, 4), "y": (4, 4)}, level[0], (4, 4), held)


def transformer(layers: int, width: int = 64, heads: int = 4, length: int = 16) -> ModelProto:
    """Layers of attention and feed-forward blocks with weights of their own, as exporters write them."""
    rng, nodes, held = np.random.default_rng(0), [], {}
    held |= {"eps": np.float32(1e-5), "two": np.float32(2), "root": np.float32((width // heads) ** 0.5)}
    held |= {"split": np.array([length, heads, width // heads]), "join": np.array([length, width])}

    def add(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, list(inputs), [f"v{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def weight(*shape: int) -> str:
        held[f"w{len(held)}"] = (rng.standard_normal(shape) / shape[0] ** 0.5).astype(np.float32)
        return f"w{len(held) - 1}"

    def linear(value: str, to: int, of: int) -> str:
        return add("Add", add("MatMul", value, weight(of, to)), weight(to))

    def norm(value: str) -> str:
        centred = add("Sub", value, add("ReduceMean", value, axes=[-1]))
        spread = add("Sqrt", add("Add", add("ReduceMean", add("Pow", centred, "two"), axes=[-1]), "eps"))
        return add("Add", add("Mul", add("Div", centred, spread), weight(width)), weight(width))

    def attention(value: str) -> str:
        q, k, v = (add("Reshape", linear(value, width, width), "split") for _ in range(3))
        q, v = add("Transpose", q, perm=[1, 0, 2]), add("Transpose", v, perm=[1, 0, 2])
        scores = add("Div", add("MatMul", q, add("Transpose", k, perm=[1, 2, 0])), "root")
        mixed = add("MatMul", add("Softmax", scores, axis=-1), v)
        return linear(add("Reshape", add("Transpose", mixed, perm=[1, 0, 2]), "join"), width, width)

    value = "x"
    for _ in range(layers):
        value = norm(add("Add", value, attention(value)))
        value = norm(add("Add", value, linear(add("Relu", linear(value, 2 * width, width)), width, 2 * width)))
    return _model("transformer", nodes, {"x": (length, width)}, value, (length, width), held)


def wide(op: str, operands: int) -> ModelProto:
    """One node of very many operands between element-wise ones."""
    nodes = [helper.make_node("Mul", ["x", f"c{i % 16}"], [f"m{i}"]) for i in range(operands)]
    more = {"axis": 0} if op == "Concat" else {}
    nodes.append(helper.make_node(op, [f"m{i}" for i in range(operands)], ["w"], **more))
    nodes.append(helper.make_node("Relu", ["w"], ["out"]))
    held = {f"c{i}": np.full((1, 4), 0.1 * (i + 1), np.float32) for i in range(16)}
    return _model(f"wide {op}", nodes, {"x": (1, 4)}, "out", (operands if op == "Concat" else 1, 4), held)


def bodies(count: int) -> ModelProto:
    """A chain of If nodes, each with two bodies of three nodes that cancel in part."""
    nodes, value = [], "x"

    def body(kind: str, index: int, value: str) -> GraphProto:
        inner = [helper.make_node("Neg", [value], [f"{kind}a{index}"])]
        inner.append(helper.make_node("Neg", [f"{kind}a{index}"], [f"{kind}b{index}"]))
        inner.append(helper.make_node(kind, [f"{kind}b{index}"], [f"{kind}c{index}"]))
        made = helper.make_tensor_value_info(f"{kind}c{index}", TensorProto.FLOAT, (8, 8))
        return helper.make_graph(inner, f"{kind}{index}", [], [made])

    for index in range(count):
        branches = {"then_branch": body("Relu", index, value), "else_branch": body("Tanh", index, value)}
        nodes.append(helper.make_node("If", ["c"], [f"v{index}"], **branches))
        value = f"v{index}"
    model = _model("bodies", nodes, {"x": (8, 8)}, value, (8, 8), {})
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, ()))
    return model


def tables(count: int, rows: int) -> ModelProto:
    """Rows selected from tables of 64 columns, negated twice, each multiplied by weights, and added up."""
    rng, nodes, held = np.random.default_rng(0), [], {}
    for i in range(count):
        held |= {
            f"t{i}": rng.standard_normal((rows, 64), np.float32),
            f"w{i}": rng.standard_normal((64, 64), np.float32),
        }
        nodes += [
            helper.make_node("Gather", [f"t{i}", "ids"], [f"g{i}"]),
            helper.make_node("Neg", [f"g{i}"], [f"a{i}"]),
        ]
        nodes += [
            helper.make_node("Neg", [f"a{i}"], [f"b{i}"]),
            helper.make_node("MatMul", [f"b{i}", f"w{i}"], [f"m{i}"]),
        ]
    nodes.append(helper.make_node("Sum", [f"m{i}" for i in range(count)], ["y"]))
    model = _model("tables", nodes, {}, "y", (32, 64), held)
    model.graph.input.append(helper.make_tensor_value_info("ids", TensorProto.INT64, (32,)))
    return model


#: Every model by name; each is built when it is asked for.
MODELS: Mapping[str, Callable[[], ModelProto]] = {
    "chain of 20 000": lambda: chain(20_000),
    "tree of 16 384 sums": lambda: tree_of_sums(16_384),
    "transformer of 200 layers": lambda: transformer(200),
    "chain of 100 000": lambda: chain(100_000),
    "transformer of 2 000 layers": lambda: transformer(2_000),
    "Concat of 2 048": lambda: wide("Concat", 2048),
    "Sum of 2 048": lambda: wide("Sum", 2048),
    "Max of 2 048": lambda: wide("Max", 2048),
    "2 000 nodes with bodies": lambda: bodies(2000),
    "tables of 1 GB": lambda: tables(4, 1 << 20),
}


def _model(
    name: str,
    nodes: list[object],
    inputs: Mapping[str, tuple[int, ...]],
    output: str,
    shape: tuple[int, ...],
    held: Mapping[str, object],
) -> ModelProto:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in inputs.items()],
        [helper.make_tensor_value_info(output, TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.asarray(a), n) for n, a in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)
