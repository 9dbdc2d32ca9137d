"""Operators measured on ONNX Runtime: what is built, what is refused, and what a table keeps; no time is asserted."""

import numpy as np
import pytest

from eqsat.costs.calibrate import calibrate
from eqsat.costs.device import read_device, write_device
from eqsat.costs.environment import Environment
from eqsat.costs.key import OpKey
from eqsat.costs.measure import Filled, fill, measure
from eqsat.costs.model import CostModel
from eqsat.costs.specimen import specimen
from eqsat.costs.table import CostTable
from eqsat.errors import CostError, UsageError
from eqsat.language import ops  # noqa: F401  (registers the operators)
from eqsat.language.spec import spec
from eqsat.language.types import TensorType
from eqsat.runtime.session import SessionBackend


def key(op: str, *shapes, const=(), dtypes=(), **attrs) -> OpKey:
    kinds = [*dtypes, *["float32"] * (len(shapes) - len(dtypes))]
    types = [None if s is None else TensorType.of(d, s) for s, d in zip(shapes, kinds, strict=True)]
    return OpKey.of(op, spec(op).complete(attrs), types, [i in const for i in range(len(shapes))], {})


KEYS = [
    key("relu", (4, 8)),
    key("add", (4, 8), (8,), const={1}),
    key("matmul", (3, 16), (16, 16), const={1}),
    key("matmul", (2, 3, 16), (2, 16, 4)),
    key("gemm", (3, 16), (16, 16), (16,), const={1, 2}),
    key("conv", (1, 16, 8, 8), (32, 16, 3, 3), (32,), const={1, 2}, pads=(1, 1, 1, 1), activation="relu"),
    key("conv", (1, 3, 9, 9), (8, 3, 3, 3), const={1}, strides=(2, 2)),
    key("conv", (1, 4, 9), (4, 4, 3)),
    key("split", (6, 4), axis=0, sizes=(1, 2, 3)),
    key("concat", (1, 4), (2, 4), axis=0),
    key("gather", (30, 4), (5,), dtypes=("float32", "int64"), const={0}, axis=0),
    key("where", (4, 4), (4, 4), (4, 4), dtypes=("bool",)),
    key("pow", (4, 8), (), const={1}),
    key("clip", (4, 8), None, (), const={2}),
    key("layer_norm", (4, 8), (8,), (8,), const={1, 2}, axis=1, epsilon=1e-5),
    key("cast", (4, 8), to="bfloat16"),
    key("max_pool", (1, 16, 8, 8), kernel=(2, 2), strides=(2, 2)),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda k: k.text[:60])
def test_every_copy_reaches_onnx_runtime_and_none_is_merged_or_folded(key, tmp_path):
    """The optimised model still has one node for each copy."""
    import onnx
    import onnxruntime as ort

    from eqsat.language.onnx.exporter import to_model

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    options.log_severity_level = 4
    built = specimen(key, 5)
    ort.InferenceSession(to_model(built.graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
    kept = [n.op_type for n in onnx.load(tmp_path / "optimised.onnx").graph.node]
    expected = {"matmul": ("MatMul", "FusedMatMul", "Gemm")}.get(key.op, (spec(key.op).onnx, "FusedConv", "Gemm"))
    assert sum(op in expected for op in kept) == 5, kept


@pytest.mark.parametrize("key", KEYS, ids=lambda k: k.text[:60])
def test_an_operator_is_measured_within_its_quantiles(key):
    entry = measure(key, seconds=1e-3)
    assert 0 <= entry.p10 <= entry.seconds <= entry.p90 < 1
    assert entry.samples >= 5


def test_copies_compute_the_operator_on_data_of_their_own():
    built = specimen(key("matmul", (3, 16), (16, 4), const={1}), 3)
    outputs = SessionBackend().compile(built.graph, threads=1).run(built.inputs)
    arrays = [outputs[f"y{i}_0"] for i in range(3)]
    for i, array in enumerate(arrays):
        weight = built.graph.constants[f"w1_{i}"].array
        np.testing.assert_allclose(array, built.inputs[f"x0_{i}"] @ weight, rtol=1e-5)
    assert not np.array_equal(arrays[0], arrays[1])
    assert all(np.all(x != 0) for x in built.inputs.values())


@pytest.mark.parametrize(
    ("unfit", "message"),
    [
        (key("matmul", (3, 16), (2048, 65536), const={1}), "no such application: matmul"),
        (key("matmul", (3, 2048), (2048, 65536), const={1}), "512 MB of constants are too many to measure with"),
        (OpKey.of("relu", {}, [TensorType.of("float32", None)], [False], {}), "relu cannot be measured alone"),
        (OpKey.of("wave", {}, [TensorType.of("float32", (1,))], [False], {}), "wave cannot be measured alone"),
        (key("bitwise_not", (4,), dtypes=("complex64",)), "no such application: operands are complex64"),
    ],
)
def test_what_cannot_be_measured_is_refused(unfit, message):
    with pytest.raises(CostError, match=message):
        measure(unfit)


def test_filling_is_resumable_and_lists_what_failed():
    refused = key("conv", (1, 4, 8, 8), (4, 4, 3, 3), dtypes=("int32", "int32"))
    table = CostTable(":memory:")
    seen = []
    first = fill([*KEYS[:3], KEYS[0], refused], table, lambda *step: seen.append(step), seconds=1e-3)
    assert (first.measured, first.known, first.left) == (3, 0, 0)
    assert [k for k, _ in first.failed] == [refused]
    assert first.failed[0][1].startswith("ONNX Runtime refuses the graph: ")
    assert [(done, total) for done, total, _ in seen] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert set(table.entries(Environment.current())) == {k.text for k in KEYS[:3]}
    assert fill(KEYS[:4], table, seconds=1e-3) == Filled(measured=1, known=3)


def test_a_run_that_is_interrupted_keeps_what_it_measured():
    table = CostTable(":memory:")

    def stop_at_second(done, total, key):
        if done == 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fill(KEYS[:3], table, stop_at_second, seconds=1e-3)
    assert list(table.entries(Environment.current())) == [KEYS[0].text]


def test_the_time_limit_leaves_the_rest():
    done = fill(KEYS, CostTable(":memory:"), time_limit=1e-9, seconds=1e-3)
    assert (done.measured, done.left) == (0, len(KEYS))
    with pytest.raises(UsageError, match="time_limit = 0"):
        fill(KEYS, CostTable(":memory:"), time_limit=0)


def test_a_calibrated_device_is_written_read_and_costed_with():
    device = calibrate(seconds_each=1e-4)
    assert read_device(write_device(device)) == device
    figures = [device.bandwidth, device.near_bandwidth, device.weight_bandwidth, *device.flops.values()]
    assert all(1e6 < f < 1e15 for f in figures)
    assert all(0 < share <= 1 for share in device.efficiency.values())
    assert all(0 < rate < 1e-5 for rate in device.rates.values())
    assert {"conv", "conv/depthwise", "matmul", "matmul/dynamic"} <= set(device.efficiency)
    assert "onnxruntime" in device.source
    table = CostTable(":memory:")
    fill(KEYS[:1], table, seconds=1e-3)
    (entry,) = table.entries(Environment.current()).values()
    key = KEYS[0]
    known = CostModel(device, table).node(key.op, key.attrs, key.operands, key.operands, key.const_operands)
    assert (known.seconds, known.estimated) == (entry.seconds, False)
