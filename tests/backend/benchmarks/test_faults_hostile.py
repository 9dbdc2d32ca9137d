"""Model files that name other files or ask for much: read, or refused with one clear error, whatever they say."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import FunctionProto, ModelProto, NodeProto, TensorProto, helper, parser

from benchmarks.faults import hostile_paths, hostile_sizes
from benchmarks.faults.watch import Watch
from eqsat.commands.targets import check_target
from eqsat.errors import ImportModelError, UsageError
from eqsat.language.graphs.fold import FOLDED_BYTES
from eqsat.language.onnx.files import reader, wire
from eqsat.language.onnx.read import structure
from eqsat.language.onnx.read.importer import load

#: What lies in the folder of the model after all.
INSIDE = ("the model itself", "slash after a file")


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with Watch(hostile_sizes.BOUNDS) as made:
        yield made


def test_places_of_data_outside_the_folder_are_not_read_and_nothing_is_waited_for(watch: Watch) -> None:
    for number, name in enumerate(hostile_paths.NAMES):
        outcome = watch.call(hostile_paths.attempt, number, 0)
        assert outcome.fault is None, name
        assert outcome.came_to == ("read inside" if name in INSIDE else "refused"), name


@pytest.mark.parametrize("number", range(len(hostile_sizes.NAMES)), ids=hostile_sizes.NAMES)
def test_what_a_small_file_asks_for_is_not_allocated(watch: Watch, number: int) -> None:
    outcome = watch.call(hostile_sizes.attempt, number, 0)
    assert outcome.fault is None


def test_the_command_line_refuses_them_in_one_message_where_a_target_is_there_already(
    run: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    """It looks at data files before it reads the model, so that it writes over none of them."""
    for name, place in hostile_paths.CASES.items():
        (inner := folder / name.replace("/", "")).mkdir()
        (inner / "good.bin").write_bytes(bytes(16))
        data = hostile_paths.model_with(place(inner))
        (inner / "model.onnx").write_bytes(data)
        (inner / "out.onnx").write_text("old")
        code, _, err = run("optimize", inner / "model.onnx", "-o", inner / "out.onnx", "--no-measure")
        assert "unexpected" not in err, name
        assert code == (0 if name in INSIDE else 2), name


def test_a_target_whose_name_is_too_long_is_refused() -> None:
    with pytest.raises(UsageError, match="the target cannot be written: File name too long"):
        check_target(Path("l" * 300), ())


def parsed(body: str) -> ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17, "local" : 1]> g {body}')


def message(source: str | Path | ModelProto) -> str:
    with pytest.raises(ImportModelError) as raised:
        load(source)
    return str(raised.value)


def with_weight(**fields: object) -> ModelProto:
    model = parsed("(float[4] x) => (float[a] y) { y = Add(x, w) }")
    model.graph.initializer.append(TensorProto(name="w", data_type=TensorProto.FLOAT, **fields))  # type: ignore[arg-type]
    return model


def test_a_pipe_is_no_model_and_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert message(tmp_path / "pipe") == f"{tmp_path / 'pipe'}: no regular file\n  expected the path of an ONNX model"


def test_a_path_with_nul_cannot_be_read() -> None:
    assert message("a\0b").splitlines()[0] == r"a\x00b: the file cannot be read: embedded null byte"


@pytest.mark.parametrize(("location", "why"), [("l" * 300, "File name too long"), ("loop", "ymlink|too many levels")])
def test_a_name_that_the_system_cannot_look_up(tmp_path: Path, location: str, why: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    model = with_weight(dims=[4], data_location=TensorProto.EXTERNAL)
    model.graph.initializer[0].external_data.add(key="location", value=location)
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(ImportModelError, match=f"'{location}' (cannot be looked up: .*{why}|is missing)"):
        load(path)


def test_a_place_in_an_attribute_that_is_not_utf8(tmp_path: Path) -> None:
    tensor = TensorProto(name="w", dims=[4], data_type=TensorProto.FLOAT, data_location=TensorProto.EXTERNAL)
    tensor.external_data.add(key="location", value="@@@@")
    model = parsed("(float[4] x) => (float[a] y) { y = Add(x, w) }")
    model.graph.node.insert(0, helper.make_node("Constant", [], ["w"], value=tensor))
    path = tmp_path / "m.onnx"
    path.write_bytes(model.SerializeToString().replace(b"@@@@", b"\xff\xfe\xff\xfe"))
    assert "a name of external data is not UTF-8" in message(path)


def test_dims_that_no_array_has() -> None:
    assert message(with_weight(dims=[1] * 65, raw_data=bytes(4))).splitlines()[0] == "g: initializer 'w': 65 dims"
    assert "shape [1099511627776, 0, 1099511627776]" in message(with_weight(dims=[1 << 40, 0, 1 << 40]))


def test_an_empty_result_that_no_array_has_is_left_to_fail_when_it_runs() -> None:
    size = 1 << 40
    model = parsed(
        f"(float[4] x) => (float[a, b, c] y) <float[1] one = {{1}}, int64[3] s = {{{size}, 0, {size}}}> "
        "{ y = Expand(one, s) }"
    )
    assert [n.op for n in load(model).nodes] == ["expand"]


def test_versions_that_onnx_cannot_hold() -> None:
    for change in (
        lambda m: setattr(m, "ir_version", 1 << 62),
        lambda m: setattr(m, "ir_version", -1),
        lambda m: setattr(m.opset_import[1], "version", 1 << 31),
    ):
        model = parsed("(float[4] x) => (float[4] y) { y = Celu(x) }")
        change(model)
        assert "version " in message(model) and "of the format or an opset" in message(model)


def test_a_constant_that_is_doubled_again_and_again_is_folded_a_while() -> None:
    steps = " ".join(f"v{i + 1} = Concat<axis = 0>(v{i}, v{i})" for i in range(30))
    graph = load(parsed(f"() => (float[a] v30) <float[2] v0 = {{1, 2}}> {{ {steps} }}"))
    assert {n.op for n in graph.nodes} == {"concat"}
    assert max(c.nbytes for c in graph.constants.values()) == FOLDED_BYTES


def test_all_constants_that_are_folded_are_bounded_together() -> None:
    """A thousand sums of one constant, each as large as it: what is folded is some times what was given."""
    model = parsed(
        f"() => (float[a] y) {{ {' '.join(f'v{i + 1} = Add(v{i}, v0)' for i in range(1000))} y = Neg(v1000) }}"
    )
    given = np.arange(1 << 18, dtype=np.float32)
    model.graph.initializer.append(TensorProto(name="v0", dims=given.shape, data_type=1, raw_data=given.tobytes()))
    graph = load(model)
    assert 900 < len(graph.nodes) < 1000


def functions(levels: int, calls: int, *, ends: str = "Neg") -> ModelProto:
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    graph = parsed("(float[2] x) => (float[2] y) { y = Neg(x) }")
    graph.graph.node[0].op_type, graph.graph.node[0].domain = f"f{levels}", "local"
    for level in range(levels + 1):
        op, domain = (f"f{level - 1}", "local") if level else (ends, "local" if ends.startswith("f") else "")
        nodes = [
            NodeProto(op_type=op, domain=domain, input=[f"v{i}" if i else "x"], output=[f"v{i + 1}"])
            for i in range(calls)
        ]
        nodes[-1].output[0] = "y"
        made = FunctionProto(name=f"f{level}", domain="local", input=["x"], output=["y"], node=nodes)
        made.opset_import.extend(imports)
        graph.functions.append(made)
    return graph


def test_functions_are_counted_at_every_call_before_they_are_inlined() -> None:
    assert len(load(functions(4, 2)).nodes) == 2**5
    assert message(functions(60, 2)) == (
        f"g: the model has {2**61} nodes, those of its functions counted at every call\n"
        f"  expected at most {reader.MOST_NODES} nodes\n"
        "  split the model"
    )


def test_a_large_tensor_in_a_function_is_counted_at_every_call() -> None:
    model = functions(12, 2)
    body = model.functions[0]
    weight = TensorProto(name="w", dims=[1 << 18], data_type=1, raw_data=bytes(1 << 20))
    body.node[0].CopyFrom(helper.make_node("Constant", [], ["w"], value=weight))
    body.node.insert(1, helper.make_node("Add", ["x", "w"], ["v1"]))
    assert "keep large tensors out of functions" in message(model)


def test_functions_that_are_ill_formed_stay_calls() -> None:
    assert [n.attrs["op_type"] for n in load(functions(2, 2, ends="f2")).nodes] == ["f2"]
    twice = functions(1, 2)
    twice.functions.append(twice.functions[0])
    assert [n.attrs["op_type"] for n in load(twice).nodes] == ["f1"]


def test_operands_and_nodes_beyond_what_can_be_held() -> None:
    count = structure.MOST_OPERANDS + 1
    assert message(parsed(f"(float[2] x) => (float[a] y) {{ y = Concat<axis = 0>({', '.join(['x'] * count)}) }}")) == (
        f"g: node 0 (Concat) has {count} operands or results\n"
        f"  expected at most {structure.MOST_OPERANDS}\n"
        "  divide it among several nodes"
    )


def test_fields_beyond_what_is_looked_at_one_by_one_are_left_to_protobuf() -> None:
    model = with_weight(dims=[2000], raw_data=bytes(8000))
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2000
    data = b"\xf8\x07\x00" * 70_000 + model.SerializeToString()
    with pytest.raises(wire.WireError, match="too many fields"):
        wire.without_raw_data(memoryview(data), 4096)
    (node,) = load(ModelProto.FromString(data)).nodes
    assert node.op == "add"
