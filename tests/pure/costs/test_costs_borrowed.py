"""Costs of another machine in place of those that are missing: whose, and by which factors they are scaled."""

import statistics

import pytest

from eqsat.costs.devices.device import DEVICES, Device
from eqsat.costs.kernels.bottleneck import bottleneck
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.calibration import EACH, probes
from eqsat.costs.model.borrowed import Borrowed
from eqsat.costs.model.model import CostModel
from eqsat.costs.model.whole_graphs import WholeKey
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.nearest import nearest
from eqsat.costs.table.table import CostTable

HERE = Environment("onnxruntime-cpu", "AMD EPYC, cpu family 25, model 17, stepping 1", "onnxruntime 1.31.1", 1)
#: In the order in which they stand in for HERE.
OTHERS = (
    Environment("onnxruntime-cpu", HERE.cpu, "onnxruntime 1.30.0", 1),
    Environment("onnxruntime-cpu", "AMD Ryzen, cpu family 25, model 17, stepping 2", "onnxruntime 1.29.0", 1),
    Environment("onnxruntime-cpu", "AMD EPYC, cpu family 25, model 1, stepping 1", "onnxruntime 1.31.1", 1),
    Environment("onnxruntime-cpu", "AMD EPYC, cpu family 23, model 17, stepping 1", "onnxruntime 1.31.1", 1),
    Environment("onnxruntime-cpu", "Intel(R) Xeon(R), cpu family 6, model 167", "onnxruntime 1.31.1", 1),
    Environment("onnxruntime-cpu", "Intel(R) Xeon(R), cpu family 6, model 167", "onnxruntime 1.31.0", 1),
    Environment("onnxruntime-cpu", "Intel(R) Xeon(R), cpu family 6, model 167", "onnxruntime 1.3.1", 1),
    Environment("onnxruntime-cpu", HERE.cpu, "onnxruntime 1.31.1", 2),
)
STRANGERS = (
    HERE.unconfirmed,
    HERE.calibration,
    Environment("onnxruntime-cpu", HERE.cpu, "onnxruntime 1.31.1", 1, protocol=2),
    Environment("onnxruntime-cpu", HERE.cpu, "another 1.31.1", 1),
    Environment("nvidia-h200", HERE.cpu, "onnxruntime 1.31.1", 1),
)
DEVICE = DEVICES["onnxruntime-cpu"]
LAUNCH, MEMORY = "relu {} float32[8]", "add {} float32[999999] float32[999999]"
WEIGHTS, PRODUCT = "matmul {} float32[1, 1024] =float32[1024, 1024]", "matmul {} float32[512, 512] =float32[512, 512]"
FILTERS = (
    'conv {"dilations":[1,1],"group":1,"pads":[1,1,1,1],"strides":[1,1]} float32[1, 64, 56, 56] =float32[64, 64, 3, 3]'
)
ELEMENTS = "erf {} float32[65536]"


def entry(seconds: float, hot: float | None = None) -> Entry:
    return Entry(seconds, 0.9 * seconds, 1.1 * seconds, 20, hot=hot)


def table(entries: dict[Environment, dict[str, Entry]]) -> CostTable:
    made = CostTable(":memory:")
    for environment, group in entries.items():
        for text, one in group.items():
            made.put(environment, OpKey.parse(text), one)
    return made


@pytest.mark.parametrize("first", range(len(OTHERS)))
def test_the_nearest_environment_stands_in(first):
    present = (*reversed(OTHERS[first:]), *STRANGERS)
    assert nearest(table({e: {LAUNCH: entry(1e-6)} for e in present}), HERE) == OTHERS[first]


def test_environments_of_another_protocol_runtime_or_device_never_stand_in():
    assert nearest(table({e: {LAUNCH: entry(1e-6)} for e in (HERE, *STRANGERS)}), HERE) is None


def test_of_equally_near_environments_that_with_most_entries_stands_in():
    few, many = (Environment("onnxruntime-cpu", f"Intel {n}", "onnxruntime 1.31.1", 1) for n in (2, 1))
    known = table({few: {LAUNCH: entry(1e-6)}, many: {LAUNCH: entry(1e-6), MEMORY: entry(1e-6)}})
    assert nearest(known, HERE) == many


def test_the_same_on_any_machine_is_chosen_without_looking_at_this_one():
    known = table({e: {LAUNCH: entry(1e-6)} for e in OTHERS} | {OTHERS[4]: {LAUNCH: entry(1e-6), MEMORY: entry(1e-6)}})
    answers = {nearest(known, e, anywhere=True) for e in (HERE, OTHERS[0].calibration, OTHERS[2].unconfirmed)}
    assert answers == {OTHERS[4]}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (LAUNCH, "launch"),
        (MEMORY, "memory"),
        (WEIGHTS, "weights"),
        (PRODUCT, "matmul"),
        (FILTERS, "conv"),
        (ELEMENTS, "elements"),
        ("add {} float32[2048, 1024] =float32[2048, 1024]", "memory"),
        ('gather {"axis":0} =float32[30522, 768] int64[1, 128]', "memory"),
    ],
)
def test_a_kernel_is_bound_by_the_largest_term_of_its_roofline(text, expected):
    assert bottleneck(OpKey.parse(text), DEVICE) == expected


def test_scales_are_medians_by_bottleneck_and_reach_every_kernel_with_it():
    there = {LAUNCH: 1e-6, MEMORY: 1e-4, WEIGHTS: 1e-4, PRODUCT: 1e-3, FILTERS: 1e-3}
    larger = "matmul {} float32[640, 640] =float32[640, 640]"
    there |= {larger: 2e-3}
    here = {LAUNCH: 3e-6, MEMORY: 2e-4, PRODUCT: 5e-3}
    known = table({OTHERS[4]: {k: entry(s) for k, s in there.items()}})
    for text, seconds in here.items():
        known.put(HERE.calibration, OpKey.parse(text), entry(seconds))
    borrowed = Borrowed.of(known, DEVICE, HERE)
    assert borrowed.scales == pytest.approx({"launch": 3.0, "matmul": 5.0, "memory": 2.0})
    assert borrowed[larger].seconds == pytest.approx(1e-2)
    assert borrowed[larger].p90 == pytest.approx(1.1e-2)
    # No convolution was measured here: the median of all scales.
    assert borrowed[FILTERS].seconds == pytest.approx(3e-3)
    assert borrowed.description.endswith("onnxruntime 1.31.1, times launch 3, matmul 5, memory 2")
    assert known.entries(HERE) == {}


def test_kernels_of_one_bottleneck_have_the_median_of_their_factors():
    sizes, factors = (8, 16, 24, 32, 40), (1.0, 9.0, 1.2, 1.1, 1.3)
    texts = [f"relu {{}} float32[{n}]" for n in sizes]
    known = table({OTHERS[4]: {text: entry(1e-6) for text in texts}})
    for text, factor in zip(texts, factors, strict=True):
        known.put(HERE.calibration, OpKey.parse(text), entry(factor * 1e-6))
    assert Borrowed.of(known, DEVICE, HERE).scales == pytest.approx({"launch": statistics.median(factors)})


def test_products_bound_by_their_weights_borrow_a_hot_time_too():
    other = WEIGHTS.replace("1024, 1024", "1024, 2048")
    known = table({OTHERS[4]: {WEIGHTS: entry(1e-4), other: entry(2e-4), LAUNCH: entry(1e-6)}})
    known.put(HERE.calibration, OpKey.parse(WEIGHTS), entry(2e-4, hot=1e-4))
    borrowed = Borrowed.of(known, DEVICE, HERE)
    assert (borrowed[other].seconds, borrowed[other].hot) == pytest.approx((4e-4, 2e-4))
    assert borrowed[LAUNCH].hot is None


def test_a_cost_says_that_it_is_borrowed_and_what_was_measured_here_comes_first(monkeypatch):
    monkeypatch.setattr(Environment, "current", staticmethod(lambda *_: HERE))
    known = table({OTHERS[4]: {LAUNCH: entry(1e-6), MEMORY: entry(1e-4)}, HERE: {LAUNCH: entry(7e-6)}})
    known.put(HERE.calibration, OpKey.parse(MEMORY), entry(2e-4))
    model = CostModel(table=known).borrowing(Borrowed.of(known, DEVICE, HERE))
    costs = {}
    for text in (LAUNCH, MEMORY, ELEMENTS):
        key = OpKey.parse(text)
        costs[text] = model.node(key.op, key.attrs, key.operands, [key.operands[0]], key.const_operands)
    assert (costs[LAUNCH].seconds, costs[LAUNCH].borrowed, costs[LAUNCH].estimated) == (7e-6, False, False)
    assert (costs[MEMORY].seconds, costs[MEMORY].borrowed, costs[MEMORY].estimated) == (2e-4, True, False)
    assert (costs[ELEMENTS].borrowed, costs[ELEMENTS].estimated) == (False, True)


def test_a_gpu_borrows_nothing():
    assert Borrowed.of(table({STRANGERS[-1]: {LAUNCH: entry(1e-6)}}), Device.of("nvidia-h200"), HERE) is None


def test_the_operators_to_scale_by_are_a_few_of_each_bottleneck_from_short_to_long():
    there = {f"relu {{}} float32[{n}]": entry(n * 1e-9) for n in range(1, 60)}
    there |= {f"matmul {{}} float32[1, 512] =float32[512, {n}]": entry(1e-4) for n in (512, 1024, 2048, 1 << 20)}
    there |= {PRODUCT: entry(1e-3), FILTERS: entry(5e-3)}
    there |= {f"{WEIGHTS} ; relu {{}} %0:float32[1, 1024]": entry(1e-4)}
    there |= {"matmul {} float32[64, 64] float32[64, 64]@column": entry(1e-5)}
    there |= {WholeKey("a", "ilp", "exact", "0").text: entry(1.0)}
    chosen = [key.text for key in probes(there, DEVICE)]
    relus = [text for text in chosen if text.startswith("relu")]
    assert relus == [f"relu {{}} float32[{n}]" for n in (59, 40, 20, 1)]
    assert len(relus) == EACH
    # Convolutions that take too long, and weights that are too large, are left out; one of each comes first.
    weights = [f"matmul {{}} float32[1, 512] =float32[512, {n}]" for n in (2048, 1024, 512)]
    assert [text for text in chosen if text in weights] == weights
    assert set(chosen) == {*relus, *weights, PRODUCT}
    assert {bottleneck(OpKey.parse(text), DEVICE) for text in chosen[:3]} == {"launch", "weights", "matmul"}
    assert chosen == [key.text for key in probes(dict(reversed(there.items())), DEVICE)]
