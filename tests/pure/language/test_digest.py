"""The hashes of models as they were given."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import weakref
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import eqsat
from eqsat.errors import ImportModelError
from eqsat.language.onnx.read.digest import ModelDigest
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.read.model import model_digest, read
from eqsat.language.terms import Attrs, Constant

GOLDEN = Path(__file__).parents[2] / "golden"


def model(weight: float = 1.0) -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    weights = numpy_helper.from_array(np.full((4, 4), weight, np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "g",
        [value("x", TensorProto.FLOAT, [2, 4])],
        [value("y", TensorProto.FLOAT, [2, 4])],
        [weights],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def graph(weight: float = 1.0, axis: int = 1, name: str = "x") -> eqsat.Graph:
    builder = eqsat.Graph("g")
    x = builder.input(name, (2, 4))
    builder.output("y", eqsat.softmax(x @ np.full((4, 4), weight, np.float32), axis=axis))
    return builder


def test_a_file_has_the_hash_that_sha256sum_prints(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    digest = read(path).digest
    assert digest.of == "file"
    assert digest.sha256 == hashlib.sha256(path.read_bytes()).hexdigest() == model_digest(read(str(path)))


def test_a_model_in_memory_has_the_hash_of_its_file(tmp_path):
    path = tmp_path / "m.onnx"
    path.write_bytes(model().SerializeToString(deterministic=True))
    assert read(model()).digest.of == "model"
    assert model_digest(read(model())) == model_digest(read(path)) != model_digest(read(model(2.0)))


def test_a_model_with_tensors_in_other_files_has_the_hash_of_all_of_them(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    lines = [
        f"{hashlib.sha256((tmp_path / name).read_bytes()).hexdigest()}  {name}\n" for name in ("m.onnx", "weights.bin")
    ]
    assert read(path).digest.of == "files"
    before = model_digest(read(path))
    assert before == hashlib.sha256("".join(lines).encode()).hexdigest()
    data = bytearray((tmp_path / "weights.bin").read_bytes())
    data[0] ^= 1
    (tmp_path / "weights.bin").write_bytes(data)
    assert model_digest(read(path)) != before


def test_a_linked_model_finds_its_tensors_beside_the_link(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "here").mkdir()
    onnx.save(model(), tmp_path / "real" / "m.onnx", save_as_external_data=True, location="w.bin", size_threshold=0)
    (tmp_path / "here" / "m.onnx").symlink_to(tmp_path / "real" / "m.onnx")
    (tmp_path / "here" / "w.bin").write_bytes((tmp_path / "real" / "w.bin").read_bytes())
    assert model_digest(read(tmp_path / "here" / "m.onnx")) == model_digest(read(tmp_path / "real" / "m.onnx"))


def test_a_graph_has_the_hash_of_its_content():
    assert read(graph()).digest.of == "graph"
    same = {model_digest(read(graph())), model_digest(read(graph().build()))}
    others = {model_digest(read(graph(**more))) for more in ({"weight": 2.0}, {"axis": 0}, {"name": "z"})}
    assert len(same) == 1
    assert len(same | others) == 4


def test_each_part_of_a_graph_counts():
    base = load(model())
    node = base.nodes[0]
    twisted = [
        replace(base, name="h"),
        replace(base, outputs={"other": "y"}),
        replace(base, nodes=(replace(node, name="n"),)),
        replace(base, nodes=(replace(node, attrs=Attrs({**node.attrs, "more": 1})),)),
        replace(base, nodes=(replace(node, attrs=Attrs({**node.attrs, "more": 1.0})),)),
        replace(base, constants={"w": Constant.of(np.full((4, 4), -0.0, np.float32))}),
        replace(base, constants={"w": Constant.of(np.full((4, 4), 0.0, np.float32))}),
        replace(base, origin=None),
        replace(base, origin=replace(base.origin, opset=18)),
    ]
    assert len({ModelDigest(one).sha256 for one in (base, *twisted)}) == 1 + len(twisted)


def test_where_a_graph_was_read_does_not_count(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    assert model_digest(read(load(path))) == model_digest(read(load(model())))


def test_a_model_of_which_some_outputs_are_wanted_is_the_same_model():
    builder = graph()
    builder.output("z", builder.constant(np.float32([1.0])))
    assert model_digest(read(builder)) == model_digest(read(builder, ["y"]))


def test_a_graph_has_one_hash_in_every_process(tmp_path):
    path = tmp_path / "attention.onnx"
    onnx.save(onnx.parser.parse_model((GOLDEN / "attention_in.txt").read_text()), path)
    program = (
        "import sys; from eqsat.language.onnx.read.importer import load; "
        "from eqsat.language.onnx.read.model import model_digest, read; print(model_digest(read(load(sys.argv[1]))))"
    )
    command = [sys.executable, "-c", program, str(path)]
    printed = {
        subprocess.run(
            command, check=True, capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert printed == {model_digest(read(load(path))) + "\n"}


def test_a_file_is_read_once(tmp_path, monkeypatch):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    given, calls = read(path), []
    read_whole = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: calls.append(args) or read_whole(*args))
    assert model_digest(given) == model_digest(replace(given, heard=True))
    assert len(calls) == 1


def test_a_hash_does_not_hold_its_model():
    whole = graph().build()
    waiting, digest = weakref.ref(whole), ModelDigest(whole)
    del whole
    assert waiting() is not None
    assert digest.sha256 == digest.sha256
    gc.collect()
    assert waiting() is None


def test_a_file_that_is_gone_is_an_error_that_says_so(tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(model(), path)
    given = read(path)
    path.unlink()
    with pytest.raises(ImportModelError, match="the file cannot be read: No such file"):
        model_digest(given)
