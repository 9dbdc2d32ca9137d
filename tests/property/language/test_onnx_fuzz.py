"""Mutated model files: read, or refused with an error of ours; never a crash, a hang or a large allocation."""

from __future__ import annotations

import random

import pytest
from google.protobuf.message import DecodeError
from onnx import ModelProto, parser

from benchmarks.faults import files
from benchmarks.faults.mutation import mutated
from benchmarks.faults.samples import convolution
from benchmarks.faults.watch import Watch
from eqsat.errors import EqsatError, ImportModelError
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_bytes

#: Files that are changed in any way, read, and optimised where they read; thousands more are for the benchmark.
FILES, PART = 300, 150


def sample() -> bytes:
    data: bytes = convolution().SerializeToString()
    return data


def survives(data: bytes) -> bool:
    """Whether the model was read; any error but ours is the test's failure."""
    try:
        model = ModelProto.FromString(data)
    except DecodeError:
        return False
    try:
        to_bytes(load(model))
    except EqsatError as fault:
        assert str(fault)
        return False
    return True


@pytest.mark.parametrize("first", range(0, FILES, PART))
def test_mutated_files_are_read_and_optimised_or_refused(first: int) -> None:
    """In a process of its own, watched for crashes, for 10 s and for 1 GB."""
    with Watch(files.BOUNDS) as watch:
        outcomes = [watch.call(files.attempt, number, 7) for number in range(first, first + PART)]
    assert not [o for o in outcomes if o.fault is not None]
    assert {"refused", "optimised"} <= {o.came_to for o in outcomes}


@pytest.mark.parametrize("seed", range(4))
def test_mutated_models(seed: int) -> None:
    data, rng = sample(), random.Random(seed)
    read = [survives(mutated(data, rng)) for _ in range(100)]
    assert 0 < sum(read) < 100


def test_mutated_files(tmp_path) -> None:
    data, rng = sample(), random.Random(99)
    path = tmp_path / "m.onnx"
    outcomes = set()
    for _ in range(100):
        path.write_bytes(mutated(data, rng))
        try:
            load(path)
            outcomes.add("read")
        except ImportModelError as fault:
            assert str(fault).startswith(str(path))
            outcomes.add("refused")
    assert outcomes == {"read", "refused"}


def test_every_way_to_cut_a_file_short(tmp_path) -> None:
    data = sample()
    path = tmp_path / "m.onnx"
    for length in range(1, len(data), 7):
        path.write_bytes(data[:length])
        with pytest.raises(ImportModelError):
            load(path)


LARGE = (-(1 << 63), -(1 << 40), -100, 100, 1 << 31, 1 << 40, (1 << 63) - 1)

#: Nodes with a number for each of the large ones to stand in; onnx's own inference crashes on some of them.
NODES = {
    "norm": "(float[2, 3] x, float[3] s) => (float[a, b] y, float[c, d] m) "
    "{{ y, m = LayerNormalization<axis = {0}>(x, s) }}",
    "pool": "() => (float[a, b, c] y) <float[1, 1, 4] x = {{1, 2, 3, 4}}> "
    "{{ y = AveragePool<kernel_shape = [3], pads = [{0}, 1], strides = [{0}]>(x) }}",
    "slice": "(float[2, 3] x) => (float[a, b] y) <int64[1] s = {{{0}}}, int64[1] e = {{5}}> "
    "{{ y = Slice(x, s, e, e) }}",
    "reshape": "(float[2, 3] x) => (float[a, b] y) <int64[2] s = {{{0}, -1}}> {{ y = Reshape(x, s) }}",
    "expand": "(float[1, 3] x) => (float[a, b] y) <int64[2] s = {{{0}, 3}}> {{ y = Expand(x, s) }}",
    "fill": "() => (float[a, b] y) <int64[2] s = {{{0}, 3}}> {{ y = ConstantOfShape(s) }}",
    "range": "() => (int64[a] y) <int64 s = {{0}}, int64 e = {{{0}}}, int64 d = {{1}}> {{ y = Range(s, e, d) }}",
    "tile": "(float[1, 3] x) => (float[a, b] y) <int64[2] s = {{{0}, 3}}> {{ y = Tile(x, s) }}",
    "gather": "(float[1, 3] x) => (float[a, b] y) <int64[1] i = {{{0}}}> {{ y = Gather<axis = 1>(x, i) }}",
    "concat": "(float[1, 3] x) => (float[a, b] y) {{ y = Concat<axis = {0}>(x, x) }}",
    "unsqueeze": "(float[1, 3] x) => (float[a, b] y) <int64[2] i = {{{0}, 0}}> {{ y = Unsqueeze(x, i) }}",
    "topk": "(float[1, 3] x) => (float[a, b] y, int64[c, d] z) <int64[1] k = {{{0}}}> {{ y, z = TopK(x, k) }}",
    "resize": "(float[1, 1, 3, 3] x, int64[4] s) => (float[a, b, c, d] y) {{ y = Resize<axes = [{0}]>(x, , , s) }}",
    "hot": "(int64[3] x, int64 d, float[2] v) => (float[a, b] y) {{ y = OneHot<axis = {0}>(x, d, v) }}",
}


@pytest.mark.parametrize("name", NODES)
def test_large_numbers(name: str) -> None:
    for number in LARGE:
        body = NODES[name].format(number)
        model = parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> g {body}')
        survives(model.SerializeToString())
