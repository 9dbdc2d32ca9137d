"""Operators measured on ONNX Runtime: what is built, what is refused, and what a table keeps; no time is asserted."""

import numpy as np
import pytest

import eqsat
from benchmarks.calibrate import calibrate
from eqsat.costs.devices.device import Device, read_device, write_device
from eqsat.costs.kernels.fusion import FUSED, FusedKey, Key
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import POLICIES
from eqsat.costs.measuring.campaign import Campaign
from eqsat.costs.measuring.measure import fill, measure
from eqsat.costs.measuring.microbenchmark import build_microbenchmark
from eqsat.costs.model.fit import known_work
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.entry import Entry, TableRecord
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import read_records, write_records
from eqsat.costs.table.table import CostTable
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.egraph.snapshot import snapshot
from eqsat.errors import CostError, UsageError
from eqsat.extract.tensors.candidates import Candidates, candidates
from eqsat.language.onnx.read.model import read
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.rules.loader import load_rules
from eqsat.runtime.onnxruntime.session import SessionBackend


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


def optimised(key: Key, copies: int, file) -> list[str]:
    """The nodes that ONNX Runtime makes of a graph of copies."""
    import onnx
    import onnxruntime as ort

    from eqsat.language.onnx.write.exporter import to_model

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.optimized_model_filepath = str(file)
    options.log_severity_level = 4
    benchmark = build_microbenchmark(key, copies)
    ort.InferenceSession(to_model(benchmark.graph).SerializeToString(), options, providers=["CPUExecutionProvider"])
    return [n.op_type for n in onnx.load(file).graph.node]


@pytest.mark.parametrize("key", KEYS, ids=lambda k: k.text[:60])
def test_every_copy_reaches_onnx_runtime_and_none_is_merged_or_folded(key, tmp_path):
    """The optimised model still has one node for each copy."""
    kept = optimised(key, 5, tmp_path / "optimised.onnx")
    expected = {"matmul": ("MatMul", "FusedMatMul", "Gemm")}.get(key.op, (spec(key.op).onnx, "FusedConv", "Gemm"))
    assert sum(op in expected for op in kept) == 5, kept


@pytest.mark.parametrize("key", KEYS, ids=lambda k: k.text[:60])
def test_an_operator_is_measured_within_its_quantiles(key):
    entry = measure(key, seconds=1e-3)
    assert 0 <= entry.p10 <= entry.seconds <= entry.p90 < 1
    assert entry.samples >= 5


def parsed(text: str) -> Key:
    found = FusedKey.parse(text) if FUSED in text else OpKey.parse(text)
    assert found.text == text
    return found


CONV = 'conv {"activation":"none","dilations":[],"group":1,"pads":[1,1,1,1],"strides":[]}'
GEMM = 'gemm {"alpha":1.0,"beta":1.0,"trans_a":false,"trans_b":false}'
IMAGE = "float32[1, 32, 8, 8]"
#: Keys of layouts and of chains, and the nodes that ONNX Runtime makes of each copy.
WAYS: dict[str, list[str]] = {
    "matmul {} float32[4, 16] float32[16, 8]@column": ["FusedMatMul"],
    "matmul {} float32[4, 16]@column float32[16, 8] -> @column": ["FusedMatMul"],
    "matmul {} float32[4, 16]@column float32[16, 8]@column -> @column": ["MatMul"],
    "matmul {} float32[2, 4, 16]@column float32[2, 16, 8]": ["FusedMatMul"],
    "matmul {} float32[4, 16] =float32[16, 8]@column": ["MatMul"],
    f"{GEMM} float32[4, 16]@column =float32[16, 8] =float32[8] -> @column": ["Gemm"],
    "add {} float32[4, 8]@column =float32[8] -> @column": ["Add"],
    "matmul {} float32[4, 16] =float32[16, 8] ; add {} %0:float32[4, 8] =float32[8]": ["Gemm"],
    f"{GEMM} float32[4, 16] =float32[16, 8] =float32[8] ; relu {{}} %0:float32[4, 8]": ["FusedGemm"],
    f"{CONV} float32[1, 16, 8, 8] =float32[32, 16, 3, 3] ; relu {{}} %0:{IMAGE}": ["Conv", "MaxPool", "ReorderOutput"],
    f"{CONV} float32[1, 16, 8, 8] =float32[32, 16, 3, 3] ; add {{}} %0:{IMAGE} {IMAGE} ; relu {{}} %1:{IMAGE}": [
        "Conv",
        "MaxPool",
        "ReorderOutput",
    ],
}


@pytest.mark.parametrize("text", WAYS)
def test_onnx_runtime_merges_what_a_layout_or_a_fused_kernel_says_it_does(text, tmp_path):
    """Every further copy adds these nodes and no other: no transpose, no conversion into the blocked layout."""
    counts = [sorted(optimised(parsed(text), copies, tmp_path / "optimised.onnx")) for copies in (2, 5)]
    added = list(counts[1])
    for node in counts[0]:
        added.remove(node)
    assert added == sorted(3 * WAYS[text])


@pytest.mark.parametrize("text", WAYS)
def test_a_layout_or_a_fused_kernel_is_measured_and_its_line_read_again(text):
    key = parsed(text)
    table = CostTable(":memory:", shipped=False)
    assert fill([key], table, seconds=1e-3) == Campaign(measured=1, known=0)
    assert list(table.entries(Environment.current())) == [text]
    lines = write_records(table.records())
    (record,) = read_records(lines, "table.jsonl")
    assert record == TableRecord(Environment.current(), text, table.get(Environment.current(), key))
    assert write_records([record]) == lines
    assert fill([key], table, seconds=1e-3) == Campaign(measured=0, known=1)


def test_column_major_operands_are_fed_as_they_are_stored_and_results_left_so():
    benchmark = build_microbenchmark(parsed("matmul {} float32[4, 16]@column =float32[16, 8]@column -> @column"), 2)
    outputs = SessionBackend().compile(benchmark.graph, threads=1).run(benchmark.inputs)
    for copy in range(2):
        a = benchmark.inputs[f"x0_{copy}"]
        w = next(c.array for name, c in benchmark.graph.constants.items() if name.startswith(f"w1_{copy}"))
        assert (a.shape, w.shape, benchmark.outputs[f"y{copy}_0"].static) == ((16, 4), (8, 16), (8, 4))
        np.testing.assert_allclose(outputs[f"y{copy}_0"], (a.T @ w.T).T, rtol=1e-5)


def test_a_chain_computes_what_its_operators_do():
    benchmark = build_microbenchmark(
        parsed("matmul {} float32[4, 16] =float32[16, 8] ; sub {} %0:float32[4, 8] float32[4, 8]"), 2
    )
    outputs = SessionBackend().compile(benchmark.graph, threads=1).run(benchmark.inputs)
    for copy in range(2):
        w = benchmark.graph.constants[f"w1_{copy}"].array
        expected = benchmark.inputs[f"x0_{copy}"] @ w - benchmark.inputs[f"x3_{copy}"]
        np.testing.assert_allclose(outputs[f"y{copy}_0"], expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("relu {} float32[1, 4, 8, 8]@nhwc -> @nhwc", "ONNX has no words for the layout 'nhwc'"),
        ("matmul {} float32[4, 16] =float32[16, 8]@packed", "ONNX has no words for the layout 'packed'"),
        ("matmul {} float32[4, 16] =float32[16, 8] by tf32", "ONNX has no words for the arithmetic 'tf32'"),
        (
            "matmul {} float16[4, 16] =float16[16, 8] -> float32",
            "ONNX has no words for results in float32 of operands in another type",
        ),
        (
            "matmul {} float32[4, 16] =float32[16, 8] by tf32 ; relu {} %0:float32[4, 8]",
            "ONNX has no words for the arithmetic 'tf32'",
        ),
        ("relu {} float32[4, 8]@column", "relu has no kernel for these layouts"),
        ('transpose {"perm":[1,0]} float32[4, 8]@column', "transpose has no kernel for these layouts"),
        (
            "matmul {} float32[4, 16] =float32[16, 8] ; relu {} %0:float32[8, 4]",
            "matmul does not make the operand 0 of relu",
        ),
        (
            "relu {} float32[4, 8]@column -> @column ; exp {} %0:float32[4, 8]",
            "relu does not make the operand 0 of exp",
        ),
    ],
)
def test_ways_that_onnx_has_no_words_for_are_listed_and_left_to_the_estimate(text, message):
    table = CostTable(":memory:", shipped=False)
    assert fill([parsed(text)], table, seconds=1e-3) == Campaign(0, 0, ((parsed(text), message),))
    assert not table.entries(Environment.current())


def test_copies_compute_the_operator_on_data_of_their_own():
    benchmark = build_microbenchmark(key("matmul", (3, 16), (16, 4), const={1}), 3)
    outputs = SessionBackend().compile(benchmark.graph, threads=1).run(benchmark.inputs)
    arrays = [outputs[f"y{i}_0"] for i in range(3)]
    for i, array in enumerate(arrays):
        weight = benchmark.graph.constants[f"w1_{i}"].array
        np.testing.assert_allclose(array, benchmark.inputs[f"x0_{i}"] @ weight, rtol=1e-5)
    assert not np.array_equal(arrays[0], arrays[1])
    assert all(np.all(x != 0) for x in benchmark.inputs.values())


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
    assert fill(KEYS[:4], table, seconds=1e-3) == Campaign(measured=1, known=3)


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


def activated():
    """A convolution, its bias, and what follows it."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("activated")
    w, b = (g.constant(rng.standard_normal(s).astype(np.float32)) for s in ((32, 16, 3, 3), (32,)))
    g.output("y", eqsat.relu(eqsat.conv(g.input("x", (1, 16, 8, 8)), w, b, pads=(1, 1, 1, 1))))
    return g


def turned():
    """A product with a matrix that comes the other way round, and is used that way too."""
    g = eqsat.Graph("turned")
    x, w = g.input("x", (4, 16)), g.input("w", ("n", 16))
    g.output("y", x @ eqsat.transpose(w, (1, 0)))
    return g


def listed(graph, most_fused=64, precision="exact", **sizes) -> Candidates:
    device = Device.of("onnxruntime-cpu")
    encoding = encode(read(graph, None).graph)
    Saturator(encoding.egraph, load_rules(), Limits()).run()
    choices = Choices(device.layouts, POLICIES[precision])
    return candidates(snapshot(encoding), device, choices, sizes, most_fused)


def test_candidates_are_what_the_program_is_offered():
    found = listed(activated())
    fused = [key.op for key in found.fused]
    assert fused[0] == "conv + relu"
    assert fused.index("conv + add") < fused.index("conv + add + relu")
    assert "relu {} float32[1, 32, 8, 8]" in {key.text for key in found.plain}
    assert not found.stated
    assert len({key.text for key in found}) == len(list(found))
    assert [key.op for key in listed(activated(), most_fused=1).fused] == ["conv + relu"]
    assert not listed(activated(), most_fused=0).fused


def test_candidates_in_other_layouts_are_those_that_can_save_a_copy():
    found = {key.text for key in listed(turned(), n=8).stated}
    assert "matmul {} float32[4, 16] float32[16, 8]@column" in found
    assert 'transpose {"perm":[1,0]} float32[16, 8]' in found
    assert not any(text.startswith("transpose") and "column" in text for text in found)


def test_candidates_of_a_policy_are_casts_and_operators_in_its_precisions():
    found = {key.text for key in listed(turned(), precision="mixed", n=8).stated}
    assert 'cast {"to":"float16"} float32[4, 16]' in found
    assert "matmul {} float16[4, 16] float16[16, 8]@column -> float32" in found


def test_every_candidate_is_measured_and_then_known():
    found = [*listed(activated()), *listed(turned(), n=8)]
    table = CostTable(":memory:", shipped=False)
    assert fill(found, table, seconds=1e-3) == Campaign(measured=len(found), known=0)
    entries = table.entries(Environment.current())
    assert set(entries) == {key.text for key in found}
    # What is fused or held in another layout is known by its own entry, and no sample of any other operator.
    assert all(known_work(key.text) is None for key in found if isinstance(key, FusedKey) or key.layouts)
    report = eqsat.optimize(activated(), table=table, measure=False).report
    assert report.estimated_share == 0


def test_a_measured_fused_kernel_is_chosen_where_it_costs_least():
    table = CostTable(":memory:", shipped=False)
    (key, *_) = listed(activated()).fused
    table.put(Environment.current(), key, Entry(1e-9, 1e-9, 1e-9, 20))
    (step,) = eqsat.optimize(activated(), table=table, measure=False).report.steps
    assert (step.op, step.seconds, step.estimated) == ("conv + relu", 1e-9, False)


def test_a_measured_column_major_product_is_chosen_where_it_costs_least():
    table = CostTable(":memory:", shipped=False)
    key = parsed("matmul {} float32[4, 16] float32[16, 8]@column")
    table.put(Environment.current(), key, Entry(1e-9, 1e-9, 1e-9, 20))
    steps = eqsat.optimize(turned(), table=table, measure=False, sizes={"n": 8}).report.steps
    (product,) = (step for step in steps if step.op == "matmul")
    assert (product.operands, product.seconds, product.estimated) == (["row", "column"], 1e-9, False)
