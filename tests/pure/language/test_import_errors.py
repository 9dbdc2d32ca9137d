"""Bad model files: what the user reads, word for word, and that nothing worse happens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

from eqsat.errors import ImportModelError
from eqsat.language.onnx.read.importer import load

FLOAT = TensorProto.FLOAT


def info(name: str, shape: list[int | str] | None = (2, 2), kind: int = FLOAT) -> ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs=("x",), outputs=("y",), initializers=(), opset: int = 17, **graph) -> ModelProto:
    def each(names):
        return [n if isinstance(n, ValueInfoProto) else info(n) for n in names]

    made = helper.make_graph(list(nodes), "g", each(inputs), each(outputs), list(initializers), **graph)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def message(source: str | Path | ModelProto) -> str:
    with pytest.raises(ImportModelError) as raised:
        load(source)
    return str(raised.value)


def relu() -> ModelProto:
    return model([helper.make_node("Relu", ["x"], ["y"])])


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "no.onnx"
    assert message(path) == (
        f"{path}: the file cannot be read: No such file or directory\n"
        "  expected the path of an ONNX model\n"
        "  check the path and its permissions"
    )


def test_empty_file(tmp_path: Path) -> None:
    path = tmp_path / "empty.onnx"
    path.write_bytes(b"")
    assert message(path) == f"{path}: the file is empty\n  expected an ONNX model"


@pytest.mark.parametrize("data", [b"PK\x03\x04 not a model", b"\x00" * 64, b"hello world\n" * 10])
def test_not_a_protobuf(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "text.onnx"
    path.write_bytes(data)
    assert message(path) == (
        f"{path}: not an ONNX model, or one cut short\n"
        "  expected a serialised onnx.ModelProto\n"
        "  fetch or export the file again"
    )


def test_truncated_file(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    weight = numpy_helper.from_array(np.ones((64, 64), np.float32), "w")
    data = model([helper.make_node("MatMul", ["x", "w"], ["y"])], [info("x", [2, 64])], [info("y", [2, 64])], [weight])
    path.write_bytes(data.SerializeToString()[:-200])
    assert message(path).startswith(f"{path}: not an ONNX model, or one cut short")


def test_no_graph() -> None:
    assert "the model has no graph" in message(ModelProto(ir_version=8))


def test_not_a_model() -> None:
    with pytest.raises(ImportModelError, match=r"^a int is no model\n  expected a path, an onnx.ModelProto"):
        load(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("opset", "what", "remedy"),
    [
        (6, "opset 6 is too old", "convert it with onnx.version_converter"),
        (99, "opset 99 is too new", "install a newer onnx package"),
    ],
)
def test_opset_out_of_range(opset: int, what: str, remedy: str) -> None:
    text = message(model([helper.make_node("Relu", ["x"], ["y"])], opset=opset))
    assert text.startswith(f"g: {what}\n  expected opset 7 to ")
    assert text.endswith(remedy)


def test_domain_without_an_opset() -> None:
    text = message(model([helper.make_node("Magic", ["x"], ["y"], domain="my.ops")]))
    assert text.splitlines()[0] == (
        "g: node 0 (Magic): the model uses Magic of domain 'my.ops' and imports no opset of that domain"
    )


def test_cycle_is_named() -> None:
    nodes = [
        helper.make_node("Add", ["x", "c"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="second"),
        helper.make_node("Neg", ["b"], ["c"], name="third"),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    assert message(model(nodes)) == (
        "g: the graph has a cycle: node 1 'second' -> node 2 'third' -> node 0 'first' -> node 1 'second'\n"
        "  expected an acyclic graph\n"
        "  export the model again"
    )


def test_undefined_value() -> None:
    assert message(model([helper.make_node("Relu", ["z"], ["y"], name="r")])).splitlines()[0] == (
        "g: node 0 'r' reads 'z', which nothing makes"
    )


def test_undefined_value_in_a_branch() -> None:
    branch = helper.make_graph([helper.make_node("Relu", ["nowhere"], ["t"])], "b", [], [info("t")])
    node = helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
    text = message(model([node], [info("c", [], TensorProto.BOOL)]))
    assert text.splitlines()[0] == "g: node 0 (If) reads 'nowhere', which nothing makes"


def test_duplicate_value() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name="a"), helper.make_node("Neg", ["x"], ["y"], name="b")]
    assert message(model(nodes)).splitlines()[0] == "g: value 'y' is defined twice: by node 0 'a' and by node 1 'b'"


def test_value_that_shadows_an_input() -> None:
    text = message(model([helper.make_node("Relu", ["x"], ["x"])], outputs=["x"]))
    assert text.splitlines()[0] == "g: value 'x' is defined twice: by a graph input and by node 0 (Relu)"


def test_output_that_nothing_makes() -> None:
    text = message(model([helper.make_node("Relu", ["x"], ["z"])]))
    assert text.splitlines()[0] == "g: output 'y' is made by nothing"


def test_shape_conflict_names_the_node(tmp_path: Path) -> None:
    weight = numpy_helper.from_array(np.ones((8, 64, 3, 3), np.float32), "w")
    conv = helper.make_node("Conv", ["x", "w"], ["y"], name="conv1/Conv")
    path = tmp_path / "broken.onnx"
    path.write_bytes(model([conv], [info("x", [1, 3, 9, 9])], [info("y", None)], [weight]).SerializeToString())
    text = message(path)
    assert text.startswith(f"{path}: node 0 'conv1/Conv': weight has 64 input channels")
    assert "the input has 3" in text.splitlines()[0]


def test_element_types_that_differ() -> None:
    text = message(
        model([helper.make_node("Add", ["x", "i"], ["y"], name="sum")], ["x", info("i", [2], TensorProto.INT64)])
    )
    assert text.splitlines()[0] == "g: node 0 'sum': element types differ: float32, int64"


def test_declared_element_type_that_is_wrong() -> None:
    text = message(model([helper.make_node("Relu", ["x"], ["y"])], outputs=[info("y", [2, 2], TensorProto.INT64)]))
    assert text.splitlines()[0] == "g: 'y' is declared int64 and is float32"


def test_malformed_attributes() -> None:
    text = message(model([helper.make_node("LRN", ["x"], ["y"], name="lrn")], [info("x", [1, 2, 3, 3])]))
    assert text.splitlines()[0] == "g: node 0 'lrn': the attributes or inputs of LRN are malformed: 'size'"


def test_data_of_the_wrong_length() -> None:
    tensor = TensorProto(name="w", dims=[4], data_type=FLOAT, raw_data=b"\0" * 12)
    text = message(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor]))
    assert text == (
        "g: initializer 'w': 12 bytes of data for float32[4]\n  expected 16 bytes\n  export the model again"
    )


def test_huge_tensor_in_a_small_file_allocates_nothing(tmp_path: Path) -> None:
    path = tmp_path / "huge.onnx"
    tensor = TensorProto(name="w", dims=[1 << 40], data_type=FLOAT)
    path.write_bytes(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor]).SerializeToString())
    assert path.stat().st_size < 200
    assert message(path).splitlines()[0] == f"{path}: initializer 'w': 0 elements of data for float32[1099511627776]"


@pytest.mark.parametrize(
    ("dims", "kind", "what"),
    [
        ([-1], FLOAT, "shape [-1] has a negative dim"),
        ([1 << 40, 1 << 40], FLOAT, "shape [1099511627776, 1099511627776]"),
        ([1], 77, "element type 77"),
    ],
)
def test_impossible_tensor_types(dims: list[int], kind: int, what: str) -> None:
    tensor = TensorProto(name="w", dims=dims, data_type=kind, raw_data=b"\0\0\0\0")
    text = message(model([helper.make_node("Add", ["x", "w"], ["y"])], initializers=[tensor]))
    assert text.splitlines()[0] == f"g: initializer 'w': {what}"


class TestExternalData:
    def write(self, folder: Path, location: str, *, dims: int = 4, **entries: object) -> Path:
        tensor = TensorProto(name="w", dims=[dims], data_type=FLOAT, data_location=TensorProto.EXTERNAL)
        for key, value in {"location": location, **entries}.items():
            tensor.external_data.add(key=key, value=str(value))
        made = model([helper.make_node("Add", ["x", "w"], ["y"])], [info("x", [dims])], [info("y", [dims])], [tensor])
        path = folder / "m.onnx"
        path.write_bytes(made.SerializeToString())
        return path

    def test_good(self, tmp_path: Path) -> None:
        np.arange(8, dtype=np.float32).tofile(tmp_path / "w.bin")
        graph = load(self.write(tmp_path, "w.bin", offset=8, length=16))
        assert graph.constants["w"].array.tolist() == [2, 3, 4, 5]

    def test_beyond_two_gigabytes(self, tmp_path: Path) -> None:
        offset = 3 << 30
        with (tmp_path / "w.bin").open("wb") as file:
            file.seek(offset)
            file.write(np.arange(1 << 15, dtype=np.float32).tobytes())
        graph = load(self.write(tmp_path, "w.bin", dims=1 << 15, offset=offset))
        assert graph.constants["w"].array[[1, -1]].tolist() == [1, (1 << 15) - 1]

    def test_missing(self, tmp_path: Path) -> None:
        path = self.write(tmp_path, "w.bin")
        assert message(path) == (
            f"{path}: initializer 'w': external data file 'w.bin' is missing\n"
            f"  expected a file in {str(tmp_path)!r}\n"
            "  put it beside the model"
        )

    @pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "", "sub/../../w.bin", "a\0b", "link.bin"])
    def test_outside_the_folder(self, tmp_path: Path, location: str) -> None:
        inner = tmp_path / "inner"
        (inner / "sub").mkdir(parents=True)
        np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
        (inner / "link.bin").symlink_to(tmp_path / "w.bin")
        path = self.write(inner, location)
        assert message(path) == (
            f"{path}: initializer 'w': external data at {location!r}, outside the model's folder\n"
            f"  expected a file in {str(inner)!r}\n"
            "  move the data beside the model and save it again"
        )

    @pytest.mark.parametrize(
        ("entries", "what"),
        [
            ({"offset": 8}, "external data from byte 8 to 24 of w.bin, which has 16"),
            ({"offset": 1 << 60}, f"external data from byte {1 << 60} to {(1 << 60) + 16} of w.bin, which has 16"),
            ({"length": 12}, "12 bytes of external data for float32[4]"),
            ({"offset": "-4"}, "offset '-4' of external data"),
            ({"length": "many"}, "length 'many' of external data"),
        ],
    )
    def test_beyond_the_file(self, tmp_path: Path, entries: dict[str, object], what: str) -> None:
        np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
        path = self.write(tmp_path, "w.bin", **entries)
        assert message(path).splitlines()[0] == f"{path}: initializer 'w': {what}"

    def test_larger_than_its_file_allocates_nothing(self, tmp_path: Path) -> None:
        np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
        path = self.write(tmp_path, "w.bin", dims=1 << 40)
        assert "external data from byte 0 to 4398046511104 of w.bin, which has 16" in message(path)

    def test_model_from_memory(self, tmp_path: Path) -> None:
        np.zeros(4, np.float32).tofile(tmp_path / "w.bin")
        made = onnx.load(self.write(tmp_path, "w.bin"), load_external_data=False)
        text = message(made)
        assert text.splitlines()[0] == (
            "g: initializer 'w': external data at 'w.bin' of a model that came from no file"
        )
