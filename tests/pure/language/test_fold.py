"""Types of all values, shape arithmetic on named dims, and constants computed ahead."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

from benchmarks import fixpoint
from benchmarks.models.stripped import refill
from eqsat.errors import ShapeError
from eqsat.language.graphs.fold import infer_and_fold
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import OPAQUE, Attrs, Constant, Graph, Node, Sym, TensorType

MODELS = Path(__file__).parents[2] / "models"
N = Sym.named("n")


def text(body: str, opset: int = 17) -> Graph:
    """The graph of a model in ONNX's textual form."""
    return load(parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> g {body}'))


def ops(graph: Graph) -> list[str]:
    return [n.op for n in graph.nodes]


def shape(graph: Graph, output: str = "y") -> tuple[object, ...] | None:
    found = graph.type(graph.outputs[output])
    assert isinstance(found, TensorType)
    return found.shape


def graph(
    *nodes: Node, constants: dict[str, np.ndarray] | None = None, output: str = "y", **inputs: TensorType
) -> Graph:
    held = {k: Constant.of(v) for k, v in (constants or {}).items()}
    types = dict(inputs) | {k: c.type for k, c in held.items()}
    return Graph("g", tuple(inputs), {"out": output}, nodes, held, types)


def f32(*dims: int | str) -> TensorType:
    return TensorType.of("float32", dims)


def test_shape_gather_reshape_cast_fold_to_a_constant() -> None:
    found = text(
        """(float[3,4,5,6] data) => (float[n] y) <int64[4] order = {1, 0, 2, 3}, int64[1] all = {-1}> {
            s = Shape(data)
            g = Gather(s, order)
            r = Reshape(g, all)
            y = Cast<to = 1>(r)
        }"""
    )
    assert not found.nodes
    assert found.constants[found.outputs["y"]].array.tolist() == [4, 3, 5, 6]


def test_the_expand_chain_of_exporters_folds_on_named_dims() -> None:
    found = text(
        """(float[batch, 1, 8] x, float[batch, n, 8] z) => (float[a,b,c] y)
        <int64[3] minus = {-1, -1, -1}, int64[1] three = {3}> {
            s = Shape(z)
            ones = ConstantOfShape<value = int64[1] {1}>(three)
            free = Equal(s, minus)
            target = Where(free, ones, s)
            y = Expand(x, target)
        }"""
    )
    assert ops(found) == ["expand"]
    assert shape(found) == (Sym.named("batch"), N, 8)


def test_arithmetic_on_named_dims_reaches_the_reshape() -> None:
    found = text(
        """(float[n, 12, 64] x) => (float[a] y) <int64 zero = {0}, int64 one = {1}, int64[1] first = {0},
            int64[1] four = {4}> {
            s = Shape(x)
            n = Gather(s, zero)
            h = Gather(s, one)
            both = Mul(n, h)
            row = Unsqueeze(both, first)
            target = Concat<axis = 0>(row, four, four, four)
            y = Reshape(x, target)
        }"""
    )
    assert ops(found) == ["reshape"]
    assert shape(found) == (N * 12, 4, 4, 4)


@pytest.mark.parametrize(
    ("target", "expected"),
    [("{0, -1}", (N, 32)), ("{-1, 8}", (N * 4, 8)), ("{-1}", (N * 32,)), ("{4, -1, 8}", (4, N, 8))],
)
def test_reshape_works_out_open_dims(target: str, expected: tuple[object, ...]) -> None:
    count = target.count(",") + 1
    found = text(f"(float[n, 4, 8] x) => (float[a] y) <int64[{count}] t = {target}> {{ y = Reshape(x, t) }}")
    assert shape(found) == expected


def test_reshape_by_data_is_opaque_with_its_reason() -> None:
    found = text("(float[n, 4] x, int64[2] t) => (float[a, b] y) { y = Reshape(x, t) }")
    assert [(n.op, n.attrs["reason"]) for n in found.nodes] == [(OPAQUE, "'t' is computed at run time")]


def test_slices_by_named_dims() -> None:
    found = text(
        """(float[n, 4] x, int64[1, 512] table) => (float[a, b] y, int64[c, d] p)
        <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] far = {9223372036854775807}> {
            s = Shape(x)
            n = Slice(s, zero, one)
            p = Slice(table, zero, n, one)
            rest = Slice(x, two, far, one)
            y = Identity(rest)
        }"""
    )
    assert shape(found, "p") == (1, Sym.function("min", N, 512))
    assert shape(found) == (N, 2)


def test_range_over_a_named_dim() -> None:
    found = text(
        """(float[n, 4] x) => (int64[a] y) <int64 zero = {0}, int64 one = {1}> {
            s = Shape(x)
            n = Gather(s, zero)
            y = Range(zero, n, one)
        }"""
    )
    assert ops(found) == ["iota"]
    assert shape(found) == (N,)


def test_undecided_comparisons_stay() -> None:
    found = text(
        """(float[n] x) => (bool[a] y, bool[b] z) <int64[1] three = {3}, int64[1] minus = {-1}> {
            s = Shape(x)
            y = Equal(s, three)
            z = Equal(s, minus)
        }"""
    )
    assert ops(found) == ["shape", "equal"]
    assert found.constants[found.outputs["z"]].array.tolist() == [False]


def test_an_unknown_dim_is_not_an_unknown_rank() -> None:
    found = load(
        helper.make_model(
            helper.make_graph(
                [helper.make_node("Relu", ["a"], ["x"]), helper.make_node("Relu", ["b"], ["y"])],
                "g",
                [
                    helper.make_tensor_value_info("a", TensorProto.FLOAT, [None, None, 3]),
                    helper.make_tensor_value_info("b", TensorProto.FLOAT, None),
                ],
                [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in "xy"],
            ),
            opset_imports=[helper.make_opsetid("", 17)],
        )
    )
    first, second, third = shape(found, "x") or ()
    assert third == 3 and first != second
    assert isinstance(first, Sym) and first.is_anonymous
    assert shape(found, "y") is None


@pytest.mark.parametrize(
    "body",
    [
        "y = Reshape(x, same)",
        "y = Identity(x)",
        "y = Transpose<perm = [0, 1]>(x)",
        "y = Cast<to = 1>(x)",
        "y = Expand(x, same)",
        "y = Tile(x, ones)",
        "y = Slice(x, zeros, same)",
        "y = Concat<axis = 0>(x)",
        "y = Dropout(x)",
    ],
)
def test_what_does_nothing_vanishes_and_the_output_keeps_its_name(body: str) -> None:
    lists = "int64[2] same = {2, 3}, int64[2] ones = {1, 1}, int64[2] zeros = {0, 0}"
    found = text(f"(float[2, 3] x) => (float[2, 3] y) <{lists}> {{ {body} }}")
    assert ops(found) == []
    assert dict(found.outputs) == {"y": "x"}


def test_empty_results_are_constants() -> None:
    found = text(
        """(float[2, 3] x, float[0, 3] e) => (float[a, b] y, float[c] total, float[d] mean)
        <int64[1] two = {2}, int64[1] first = {0}> {
            y = Slice(x, two, two, first)
            none = Slice(x, two, two, first)
            total = ReduceSum<keepdims = 0>(none, first)
            mean = ReduceMean<axes = [0], keepdims = 0>(none)
        }"""
    )
    assert not found.nodes
    assert found.constants[found.outputs["y"]].array.shape == (0, 3)
    assert found.constants[found.outputs["total"]].array.tolist() == [0, 0, 0]
    assert np.isnan(found.constants[found.outputs["mean"]].array).tolist() == [True] * 3


def test_folding_keeps_the_precision_of_the_graph() -> None:
    third = np.float32([1 / 3])
    found = graph(Node("add", ("a", "a"), ("y",)), constants={"a": third})
    assert infer_and_fold(found).constants["y"].array.tobytes() == (third + third).tobytes()


def test_a_broadcast_to_a_gigabyte_is_not_folded() -> None:
    small = np.ones((1, 1), np.float32)
    found = graph(
        Node("expand", ("a",), ("big",), Attrs(shape=(16384, 16384))),
        Node("reduce_sum", ("big",), ("y",), Attrs(axes=(0, 1), keepdims=False)),
        constants={"a": small},
    )
    assert ops(infer_and_fold(found)) == ["expand", "reduce_sum"]


def test_folding_may_grow_fourfold() -> None:
    wide = np.ones((1, 1 << 15), np.float32)
    node = Node("expand", ("a",), ("y",), Attrs(shape=(4, 1 << 15)))
    assert not infer_and_fold(graph(node, constants={"a": wide})).nodes
    node = Node("expand", ("a",), ("y",), Attrs(shape=(5, 1 << 15)))
    assert ops(infer_and_fold(graph(node, constants={"a": wide}))) == ["expand"]


def test_a_branch_known_ahead_takes_the_place_of_its_if() -> None:
    found = text(
        """(float[2] x) => (float[a] y, float[b] z) <bool c = {1}, bool d = {0}> {
            y = If(c)<then_branch = t() => (float[2] o) { h = Neg(x) \n o = Relu(h) },
                      else_branch = e() => (float[2] p) { p = Abs(x) }>
            z = If(d)<then_branch = t() => (float[2] o) { o = Relu(x) },
                      else_branch = e() => (float[2] p) { h = Exp(x) \n p = Add(h, y) }>
        }"""
    )
    assert ops(found) == ["neg", "relu", "exp", "add"]
    assert list(found.outputs) == ["y", "z"]


def test_what_both_branches_make_is_known() -> None:
    found = text(
        """(bool c, float[2, 3] x) => (float[a, b] y) {
            h = If(c)<then_branch = t() => (float[2, 3] o) { o = Relu(x) },
                      else_branch = e() => (float[4, 3] p) { p = Concat<axis = 0>(x, x) }>
            y = Neg(h)
        }"""
    )
    assert ops(found) == [OPAQUE, "neg"]
    rows, columns = shape(found) or ()
    assert isinstance(rows, Sym) and columns == 3


def test_random_operators_never_fold() -> None:
    found = text("() => (float[2] y) { y = RandomNormal<shape = [2]>() }")
    assert [n.op for n in found.nodes] == [OPAQUE]


def test_equal_constants_become_one_by_bytes() -> None:
    nan, zero = np.float32([np.nan, 1]), np.float32([0.0, 1])
    values = {"a": nan, "b": nan.copy(), "c": zero, "d": np.float32([-0.0, 1]), "e": np.float64([0.0, 1])}
    found = graph(
        Node("concat", ("a", "b", "x"), ("p",), Attrs(axis=0)),
        Node("concat", ("c", "d", "p"), ("y",), Attrs(axis=0)),
        constants=values,
        x=f32(2),
    )
    folded = infer_and_fold(found)
    assert [n.inputs for n in folded.nodes] == [("a", "a", "x"), ("c", "d", "p")]
    assert set(folded.constants) == {"a", "c", "d"}


def test_large_constants_that_share_a_sample_are_told_apart() -> None:
    a = np.zeros(100_000, np.float32)
    b = a.copy()
    b[12_345] = 1
    found = graph(
        Node("sub", ("a", "b"), ("t",)), Node("add", ("t", "x"), ("y",)), constants={"a": a, "b": b}, x=f32(1)
    )
    assert infer_and_fold(found).constants["t"].array[12_345] == -1


def test_a_misfit_names_its_node() -> None:
    found = graph(Node("matmul", ("a", "b"), ("y",), name="mm"), a=f32(2, 3), b=f32(4, 5))
    with pytest.raises(ShapeError, match=r"^g: node 'mm' \(matmul\): matmul of"):
        infer_and_fold(found)


def test_gathering_out_of_range_is_left_to_the_runtime() -> None:
    values = {"a": np.arange(3), "i": np.int64([7])}
    found = infer_and_fold(graph(Node("gather", ("a", "i"), ("y",), Attrs(axis=0)), constants=values))
    assert ops(found) == ["gather"]


def test_folding_twice_changes_nothing() -> None:
    once = load(refill(onnx.load(MODELS / "squeezenet1_1.onnx", load_external_data=False)))
    twice = infer_and_fold(once)
    assert twice.nodes == once.nodes
    assert dict(twice.types) == dict(once.types)


def hollow(name: str, folder: Path) -> Path:
    """A committed model whose weights are holes of a file beside it, each with a first element of its own."""
    model = onnx.load(MODELS / f"{name}.onnx", load_external_data=False)
    end = 0
    with (folder / "weights").open("wb") as file:
        for i, tensor in enumerate(model.graph.initializer):
            if tensor.data_location != TensorProto.EXTERNAL:
                continue
            del tensor.external_data[:]
            for key, value in (("location", "weights"), ("offset", str(end))):
                tensor.external_data.add(key=key, value=value)
            file.seek(end)
            file.write(np.float32(i).tobytes())
            end += int(np.prod(tensor.dims)) * helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        file.truncate(end)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    "name",
    [
        "bert_base",
        "bert_base_dynamic",
        "bert_base_dynamo",
        "bert_base_dynamic_dynamo",
        "llama",
        "llama_dynamic",
        "llama_dynamo",
        "llama_dynamic_dynamo",
        "vit_base",
    ],
)
def test_every_value_of_the_exported_transformers_gets_a_shape(name: str, tmp_path: Path) -> None:
    found = load(hollow(name, tmp_path))
    counts = Counter(n.op for n in found.nodes)
    assert counts[OPAQUE] == 0
    unknown = [v for n in found.nodes for v in n.outputs if not has_shape(found, v)]
    assert unknown == []
    (output,) = found.outputs.values()
    lead = found.type(output).dims[:2]
    if "dynamic" in name:
        assert lead == (Sym.named("batch"), Sym.named("sequence"))
        assert counts["shape"] <= 1
    else:
        assert counts["shape"] == 0 and lead[0] == 1


def has_shape(found: Graph, value: str) -> bool:
    known = found.type(value)
    return isinstance(known, TensorType) and known.shape is not None


def test_the_published_example_is_static_in_one_analysis() -> None:
    """Data, its shape with two dims exchanged, Data in that shape, cast; one pass leaves it dynamic."""
    found = load(fixpoint.published())
    assert ops(found) == ["reshape", "cast"]
    assert [found.type(o) for n in found.nodes for o in n.outputs] == [
        TensorType.of("float32", (4, 3, 5, 6)),
        TensorType.of("float16", (4, 3, 5, 6)),
    ]
    once = fixpoint.one_pass(fixpoint.published())
    assert ops(once) == [OPAQUE, "cast"]
    assert fixpoint.counts(once)["static"] == 0
    again, count = fixpoint.passes(fixpoint.published())
    assert (ops(again), count) == (["reshape", "cast"], 2)


def test_static_shapes_unlock_rules() -> None:
    row = fixpoint.measured(fixpoint.exported_attention(layers=1))
    assert row["one pass"]["opaque"] > 0 == row["fixpoint"]["opaque"]
    assert row["one pass"]["rules"] < row["fixpoint"]["rules"]
    assert row["unlocked"]


def test_the_published_example_is_static_in_a_body() -> None:
    found = text(
        """(bool c, int64 m, float[3, 4, 5, 6] data) => (float16[] y) <int64[4] order = {1, 0, 2, 3}> {
            y = If(c)<then_branch = t() => (float16[] p) {
                    s = Shape(data) \n g2 = Gather(s, order) \n r = Reshape(data, g2) \n p = Cast<to = 10>(r) },
                else_branch = e() => (float16[] q) {
                    h = Loop(m, c, data)<body = b (int64 i, bool go, float[] v) => (bool on, float[] u) {
                        on = Identity(go) \n s2 = Shape(v) \n z = Gather(s2, order) \n z2 = Gather(z, order)
                        u = Reshape(v, z2) }>
                    w = Transpose<perm = [1, 0, 2, 3]>(h) \n q = Cast<to = 10>(w) }>
        }"""
    )
    assert found.type(found.outputs["y"]) == TensorType.of("float16", (4, 3, 5, 6))
