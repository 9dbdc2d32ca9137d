"""Models written back: names, forms by opset, metadata, files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper, parser

from eqsat.errors import ExportModelError
from eqsat.language.onnx.files import placement, writer
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import save, to_bytes, to_model
from eqsat.language.terms import Attrs, Constant, Graph, Node, Sym, TensorType, evaluate


def parsed(body: str, opset: int = 17, ir: int = 8) -> ModelProto:
    return parser.parse_model(f'<ir_version: {ir}, opset_import: ["" : {opset}]> g {body}')


def op_types(model: ModelProto) -> list[str]:
    return [n.op_type for n in model.graph.node]


def written(
    *nodes: Node, types: dict[str, TensorType], outputs: dict[str, str] | None = None, opset: int = 17
) -> ModelProto:
    """The model of a graph whose inputs are the values that no node makes."""
    made = {o for n in nodes for o in n.outputs}
    inputs = tuple(v for v in types if v not in made)
    graph = Graph("g", inputs, outputs or {"out": nodes[-1].outputs[0]}, nodes, {}, types)
    model = to_model(graph, opset)
    onnx.checker.check_model(model, full_check=True)
    return model


def f32(*dims: int | str | Sym) -> TensorType:
    return TensorType.of("float32", dims)


def reshaped(before: tuple[int | str, ...], after: tuple[int | str, ...], opset: int = 17) -> ModelProto:
    dims = TensorType.of("float32", after).dims
    node = Node("reshape", ("x",), ("y",), Attrs(shape=dims))
    return written(node, types={"x": f32(*before), "y": f32(*after)}, opset=opset)


def parameters(model: ModelProto) -> list[list[int]]:
    return [numpy_helper.to_array(t).tolist() for t in model.graph.initializer]


class TestReshape:
    def test_static(self) -> None:
        assert parameters(reshaped((2, 6), (3, 4))) == [[3, 4]]

    def test_ones_put_in(self) -> None:
        model = reshaped(("n", 6), ("n", 1, 6))
        assert (op_types(model), parameters(model)) == (["Unsqueeze"], [[1]])
        assert list(reshaped(("n", 6), ("n", 1, 6), opset=11).graph.node[0].attribute[0].ints) == [1]

    def test_ones_taken_out(self) -> None:
        assert op_types(reshaped(("n", 1, "m"), ("n", "m"))) == ["Squeeze"]

    def test_flatten(self) -> None:
        after = (Sym.named("n"), Sym.named("m") * 4)
        node = Node("reshape", ("x",), ("y",), Attrs(shape=after))
        model = written(node, types={"x": f32("n", "m", 4), "y": f32(*after)})
        assert op_types(model) == ["Flatten"]

    def test_dims_that_stay_are_copied(self) -> None:
        assert parameters(reshaped(("n", "m", 12), ("n", "m", 3, 4))) == [[0, 0, 3, 4]]

    def test_one_open_dim(self) -> None:
        assert parameters(reshaped(("n", 4, 6), (4, "n", 6))) == [[4, -1, 6]]

    def test_no_open_dim_beside_one_that_may_be_zero(self) -> None:
        after = (Sym.named("n"), Sym.named("m") * 6, 1, 2)
        node = Node("reshape", ("x",), ("y",), Attrs(shape=after))
        model = written(node, types={"x": f32("n", "m", 3, 4), "y": f32(*after)})
        assert op_types(model) == ["Shape", "Shape", "Mul", "Concat", "Reshape"]

    @pytest.mark.parametrize("opset", [9, 14, 17])
    def test_computed_dims_run(self, opset: int) -> None:
        n, m = Sym.named("n"), Sym.named("m")
        after = (m * n, n, 2)
        node = Node("reshape", ("x",), ("y",), Attrs(shape=after))
        model = written(node, types={"x": f32("n", "n", "m", 2), "y": f32(*after)}, opset=opset)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        for sizes in ((3, 3, 2, 2), (1, 1, 5, 2), (0, 0, 4, 2)):
            x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
            (y,) = session.run(None, {"x": x})
            assert np.array_equal(y, x.reshape(sizes[0] * sizes[2], sizes[0], 2))


def test_functions_of_dims_are_computed() -> None:
    n = Sym.named("n")
    sizes = (
        n + 2,
        Sym.function("floordiv", n, 2),
        Sym.function("floordiv", n - 9, 2) + 5,
        Sym.function("mod", n, 3),
        Sym.function("max", n, 4),
        Sym.function("min", n, 4),
        Sym.function("broadcast", n, Sym.named("m")),
    )
    nodes = [Node("tile", ("s",), (f"y{i}",), Attrs(repeats=(d,))) for i, d in enumerate(sizes)]
    outputs = {n.outputs[0]: n.outputs[0] for n in nodes}
    types = {"x": f32("n", "m"), "s": f32(1)} | {f"y{i}": f32(d) for i, d in enumerate(sizes)}
    model = written(*nodes, types=types, outputs=outputs)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 4, 7):
        made = session.run(None, {"x": np.zeros((count, 1), np.float32), "s": np.zeros(1, np.float32)})
        expected = [evaluate(d, {"n": count, "m": 1}) for d in sizes]
        assert [len(y) for y in made] == expected


def test_a_dim_nobody_shows_is_an_error() -> None:
    with pytest.raises(ExportModelError, match="no value that comes before shows how large dim 'k' is"):
        written(Node("tile", ("x",), ("y",), Attrs(repeats=(Sym.named("k"),))), types={"x": f32(1), "y": f32("k")})


DECOMPOSED = [
    ("gelu", {"approximate": "none"}, 20, "Gelu"),
    ("gelu", {"approximate": "tanh"}, 20, "Gelu"),
    ("silu", {"alpha": 1.0}, 24, "Swish"),
    ("mish", {}, 18, "Mish"),
    ("hard_swish", {}, 14, "HardSwish"),
]


@pytest.mark.parametrize(("op", "attrs", "since", "op_type"), DECOMPOSED)
def test_activations_an_opset_lacks_are_written_by_parts(op: str, attrs: dict, since: int, op_type: str) -> None:
    node = Node(op, ("x",), ("y",), Attrs(attrs))
    types = {"x": f32(3), "y": f32(3)}
    assert op_type in op_types(written(node, types=types, opset=since))
    assert op_type not in op_types(written(node, types=types, opset=since - 1))


def test_fused_activation_is_a_node_of_its_own() -> None:
    attrs = Attrs(strides=(1, 1), pads=(0, 0, 0, 0), dilations=(1, 1), group=1, activation="relu")
    types = {"x": f32(1, 3, 4, 4), "w": f32(2, 3, 3, 3), "y": f32(1, 2, 2, 2)}
    model = written(Node("conv", ("x", "w"), ("y",), attrs), types=types)
    assert op_types(model) == ["Conv", "Relu"]
    assert model.graph.node[1].output == ["out"]


def test_split_is_one_node_at_every_opset() -> None:
    node = Node("split", ("x",), ("a", "b"), Attrs(axis=1, sizes=(2, 4)))
    types = {"x": f32(3, 6), "a": f32(3, 2), "b": f32(3, 4)}
    for opset in (9, 13, 18):
        assert op_types(written(node, types=types, outputs={"a": "a", "b": "b"}, opset=opset)) == ["Split"]


def test_constant_terms_are_computed() -> None:
    nodes = (
        Node("eye", (), ("i",), Attrs(n=3, dtype="float32")),
        Node("matmul", ("x", "i"), ("y",)),
    )
    model = written(*nodes, types={"x": f32(2, 3), "i": f32(3, 3), "y": f32(2, 3)}, outputs={"out": "y"})
    assert op_types(model) == ["MatMul"]
    assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), np.eye(3, dtype=np.float32))


class TestNames:
    def check(self, body: str) -> ModelProto:
        model = parsed(body)
        back = to_model(load(model))
        onnx.checker.check_model(back, full_check=True)
        assert [o.name for o in back.graph.output] == [o.name for o in model.graph.output]
        assert [i.name for i in back.graph.input] == [i.name for i in model.graph.input]
        return back

    def test_inner_names_stay(self) -> None:
        back = self.check("(float[2] x) => (float[2] y) { hidden = Relu(x) \n y = Neg(hidden) }")
        assert [list(n.output) for n in back.graph.node] == [["hidden"], ["y"]]

    def test_output_that_is_an_input(self) -> None:
        assert op_types(self.check("(float[2] x) => (float[2] x) { y = Relu(x) }")) == []

    def test_output_that_an_identity_made_of_an_input(self) -> None:
        assert op_types(self.check("(float[2] x) => (float[2] y) { y = Identity(x) }")) == ["Identity"]

    def test_output_that_is_an_initializer(self) -> None:
        back = self.check("(float[2] x) => (float[2] w, float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
        assert op_types(back) == ["Add"]

    def test_one_value_in_two_outputs(self) -> None:
        back = self.check("(float[2] x) => (float[2] y, float[2] z) { y = Relu(x) \n z = Identity(y) }")
        assert op_types(back) == ["Relu", "Identity"]

    def test_left_out_inputs_and_outputs(self) -> None:
        body = "(float[2] x, float high) => (float[2] y) { c = Clip(x, , high) \n y, mask = Dropout(c) }"
        assert list(self.check(body).graph.node[0].input) == ["x", "", "high"]

    def test_scalars_and_empty_dims(self) -> None:
        self.check("(float s, float[0, 3] e) => (float[0, 3] y) { y = Mul(e, s) }")


def test_what_surrounds_the_graph_survives() -> None:
    model = parsed("(float[n] x) => (float[n] y) { h = Relu(x) \n y = custom.Magic<level = 3>(h) }")
    model.opset_import.append(helper.make_opsetid("custom", 2))
    model.producer_name, model.producer_version, model.domain, model.doc_string = "tool", "1.2", "org", "about it"
    helper.set_model_props(model, {"author": "me", "threshold": "0.5"})
    model.graph.doc_string = "inside"
    model.graph.output[0].doc_string = "the result"
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, ["n"]))
    note = onnx.TensorAnnotation(tensor_name="h")
    note.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="x")
    model.graph.quantization_annotation.append(note)
    back = to_model(load(model))
    for field in ("ir_version", "producer_name", "producer_version", "domain", "doc_string"):
        assert getattr(back, field) == getattr(model, field)
    assert back.opset_import == model.opset_import
    assert back.metadata_props == model.metadata_props
    for field in ("doc_string", "input", "output", "value_info", "quantization_annotation"):
        assert getattr(back.graph, field) == getattr(model.graph, field), field
    assert back.graph.node[1] == model.graph.node[1]


def test_opaque_node_is_written_as_it_was() -> None:
    model = parsed("(float[2, 3] x) => (int64[2, n] y) { y = NonZero(x) }")
    model.graph.node[0].doc_string = "kept"
    assert to_model(load(model)).graph.node[0] == model.graph.node[0]


def test_captured_values_are_followed() -> None:
    body = """(bool c, float[2] x) => (float[2] y) {
        h = Relu(x)
        same = Identity(h)
        y = If(c)<then_branch = t() => (float[2] a) { a = Neg(same) },
                  else_branch = e() => (float[2] b) { b = Identity(same) }>
    }"""
    back = to_model(load(parsed(body)))
    onnx.checker.check_model(back, full_check=True)
    assert op_types(back) == ["Relu", "If"]
    branches = {a.name: a.g.node[0].input[0] for a in back.graph.node[1].attribute}
    assert branches == {"then_branch": "h", "else_branch": "h"}


def test_opaque_nodes_refuse_an_opset_that_changes_them() -> None:
    graph = load(parsed("(float[1,1,4,4] x, float[4] s) => (float[a,b,c,d] y) { y = Resize(x, , s) }", opset=17))
    assert op_types(to_model(graph, 17)) == ["Resize"]
    with pytest.raises(ExportModelError, match="is opaque, and Resize differs between opset 17 and 19"):
        to_model(graph, 19)


@pytest.mark.parametrize("opset", [6, 99])
def test_opset_out_of_range(opset: int) -> None:
    with pytest.raises(ExportModelError, match=rf"^g: opset {opset}\n  expected opset 7 to \d+\n  pass another opset"):
        to_model(load(parsed("(float[2] x) => (float[2] y) { y = Relu(x) }")), opset)


def test_operator_newer_than_the_opset() -> None:
    graph = load(parsed("(int8[2] x) => (int8[2] y) { y = BitwiseNot(x) }", opset=18))
    with pytest.raises(ExportModelError, match=r"is not in opset 17\n  expected opset 18 or newer\n  pass opset=18"):
        to_model(graph, 17)


def test_element_type_newer_than_the_opset() -> None:
    graph = load(parsed("(bfloat16[2] x) => (bfloat16[2] y) { y = Relu(x) }"))
    with pytest.raises(ExportModelError, match="opset 12 cannot express the graph"):
        to_model(graph, 12)


def test_overridable_initializers_stay_inputs_with_their_default() -> None:
    model = parsed("(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }")
    graph = load(model)
    assert graph.inputs == ("x", "w")
    assert "1 initializers are inputs too" in graph.origin.warnings[0]
    back = to_model(graph)
    assert [t.name for t in back.graph.initializer] == ["w"]
    assert [i.name for i in back.graph.input] == ["x", "w"]


def test_initializers_of_old_models_are_constants() -> None:
    model = parsed("(float[2] x, float[2] w) => (float[2] y) <float[2] w = {1, 2}> { y = Add(x, w) }", opset=8, ir=3)
    graph = load(model)
    assert graph.inputs == ("x",)
    back = to_model(graph)
    onnx.checker.check_model(back, full_check=True)
    assert back.ir_version == 4


def test_sparse_initializer_survives() -> None:
    model = parsed("(float[2, 3] x) => (float[2, 3] y) { y = Add(x, s) }")
    values = numpy_helper.from_array(np.float32([5, 7]), "s")
    indices = numpy_helper.from_array(np.int64([[0, 1], [1, 2]]), "i")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2, 3]))
    graph = load(model)
    assert graph.constants["s"].array.tolist() == [[0, 5, 0], [0, 0, 7]]
    assert to_model(graph).graph.sparse_initializer == model.graph.sparse_initializer


def test_nan_weights_are_kept_bit_by_bit() -> None:
    bits = np.array([0x7FC00001, 0xFFC12345, 0x80000000], np.uint32)
    model = parsed("(float[3] x) => (float[3] y) { y = Add(x, w) }")
    model.graph.initializer.append(numpy_helper.from_array(bits.view(np.float32), "w"))
    (tensor,) = to_model(load(model)).graph.initializer
    assert tensor.raw_data == bits.tobytes()


@pytest.mark.parametrize("kind", [TensorProto.BFLOAT16, TensorProto.INT4, TensorProto.FLOAT8E4M3FN, TensorProto.STRING])
def test_every_kind_of_initializer_comes_back(kind: int) -> None:
    if kind == TensorProto.STRING:
        tensor = helper.make_tensor("w", kind, [3], [b"a", b"", b"\xff"])
    else:
        tensor = numpy_helper.from_array(np.arange(3).astype(helper.tensor_dtype_to_np_dtype(kind)), "w")
    info = helper.make_tensor_value_info("w", kind, [3])
    graph = helper.make_graph([], "g", [], [info], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (back,) = to_model(load(model)).graph.initializer
    assert back.data_type == kind
    if kind == TensorProto.STRING:
        assert back.string_data == tensor.string_data
    else:
        assert numpy_helper.to_array(back).tolist() == numpy_helper.to_array(tensor).tolist()


def test_local_functions_are_inlined() -> None:
    model = parser.parse_model(
        """<ir_version: 8, opset_import: ["" : 17, "my" : 1]>
        g (float[2] x) => (float[2] y) { y = my.twice(x) }
        <domain: "my", opset_import: ["" : 17]> twice (a) => (b) { b = Add(a, a) }"""
    )
    back = to_model(load(model))
    onnx.checker.check_model(back, full_check=True)
    assert op_types(back) == ["Add"]


def names(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


class TestFiles:
    @pytest.fixture
    def model(self) -> ModelProto:
        model = parsed("(float[1, 64] x) => (float[1, 64] y) { h = MatMul(x, w) \n y = Add(h, b) }")
        rng = np.random.default_rng(0)
        model.graph.initializer.append(numpy_helper.from_array(rng.random((64, 64), np.float32), "w"))
        model.graph.initializer.append(numpy_helper.from_array(rng.random(64, np.float32), "b"))
        return model

    def test_bytes_are_the_model_and_always_the_same(self, model: ModelProto, tmp_path: Path) -> None:
        graph = load(model)
        data = to_bytes(graph)
        assert data == to_bytes(load(model))
        assert ModelProto.FromString(data) == to_model(graph)
        save(graph, tmp_path / "out.onnx")
        assert (tmp_path / "out.onnx").read_bytes() == data
        assert names(tmp_path) == ["out.onnx"]

    def test_a_copy_of_the_argument_is_never_kept(self, model: ModelProto) -> None:
        before = model.SerializeToString()
        graph = load(model)
        model.graph.initializer[0].raw_data = b"\0" * (64 * 64 * 4)
        assert to_bytes(graph) == to_bytes(load(ModelProto.FromString(before)))

    def test_external_data_stay_external(self, model: ModelProto, tmp_path: Path) -> None:
        source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
        values = [numpy_helper.to_array(t).tolist() for t in model.graph.initializer]
        onnx.save(model, source, save_as_external_data=True, location="in.bin", size_threshold=0)
        graph = load(source)
        save(graph, target)
        assert names(tmp_path) == ["in.bin", "in.onnx", "out.onnx", "out.onnx.data"]
        back = onnx.load(target)
        assert [numpy_helper.to_array(t).tolist() for t in back.graph.initializer] == values
        assert load(target).constants["w"].array.flags.aligned

    def test_what_no_message_holds_goes_outside(
        self, model: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer, "MESSAGE_BYTES", 4000)
        save(load(model), tmp_path / "out.onnx")
        assert (tmp_path / "out.onnx.data").stat().st_size == 64 * 64 * 4
        onnx.checker.check_model(tmp_path / "out.onnx", full_check=True)
        with pytest.raises(ExportModelError, match="the model takes over 2 GB"):
            to_bytes(load(model))

    def test_never_over_the_input(self, model: ModelProto, tmp_path: Path) -> None:
        source = tmp_path / "in.onnx"
        onnx.save(model, source)
        (tmp_path / "link.onnx").symlink_to(source)
        for target in (source, tmp_path / "link.onnx", tmp_path / "." / "in.onnx"):
            with pytest.raises(ExportModelError, match="the target is the model that was read, or a data file of it"):
                save(load(source), target)
        assert onnx.load(source) == model

    def test_never_over_its_data(self, model: ModelProto, tmp_path: Path) -> None:
        source = tmp_path / "in.onnx"
        onnx.save(model, source, save_as_external_data=True, location="out.onnx.data", size_threshold=0)
        graph = load(source)
        for target in (tmp_path / "out.onnx.data", tmp_path / "out.onnx"):
            with pytest.raises(ExportModelError, match="a data file of it"):
                save(graph, target)
        assert names(tmp_path) == ["in.onnx", "out.onnx.data"]

    @pytest.mark.parametrize("name", ["nowhere/out.onnx", "folder"])
    def test_unwritable_target(self, model: ModelProto, tmp_path: Path, name: str) -> None:
        (tmp_path / "folder").mkdir()
        with pytest.raises(ExportModelError) as raised:
            save(load(model), tmp_path / name)
        assert str(raised.value).splitlines()[0].startswith(f"{tmp_path / name}: the file cannot be written: ")
        assert names(tmp_path) == ["folder"]

    def test_full_disk_leaves_the_old_file(
        self, model: ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = tmp_path / "out.onnx"
        target.write_bytes(b"old")

        def full(descriptor: int) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(placement.os, "fsync", full)
        with pytest.raises(ExportModelError, match="No space left on device"):
            save(load(model), target)
        assert target.read_bytes() == b"old"
        assert names(tmp_path) == ["out.onnx"]

    def test_mode_of_the_old_file_stays(self, model: ModelProto, tmp_path: Path) -> None:
        target = tmp_path / "out.onnx"
        target.write_bytes(b"old")
        target.chmod(0o640)
        save(load(model), target)
        assert target.stat().st_mode & 0o777 == 0o640


def test_graphs_built_in_python_have_an_opset() -> None:
    types = {"x": f32("n"), "y": f32("n")}
    graph = Graph("g", ("x",), {"y": "y"}, (Node("relu", ("x",), ("y",)),), {}, types)
    model = to_model(graph)
    onnx.checker.check_model(model, full_check=True)
    assert model.producer_name == "eqsat"
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "n"


def test_operator_without_a_counterpart() -> None:
    constants = {"c": Constant.of(np.zeros(3, np.float32))}
    graph = Graph("g", (), {"y": "c"}, (Node("nonsense", ("c",), ("z",)),), constants, {})
    with pytest.raises(ExportModelError, match=r"node making 'z' \(nonsense\) has no counterpart in ONNX"):
        to_model(graph)
