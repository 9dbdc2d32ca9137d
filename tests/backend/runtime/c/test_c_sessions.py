"""Programs of C of which ONNX Runtime computes regions: values, prices, refusals, threads, and what is kept."""

import gc
import itertools
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.onnx.read.importer import load as read
from eqsat.language.onnx.write.exporter import save
from eqsat.report.timing.compiling import tuned_program
from eqsat.runtime.backend import select
from eqsat.runtime.c.mixing.choosing import keep
from eqsat.runtime.c.mixing.measuring import MeasuredMix, measured_mix, measured_prices
from eqsat.runtime.c.mixing.prices import RegionPrices
from eqsat.runtime.c.mixing.regions import RegionMaker
from eqsat.runtime.c.program.lowering import c_lowering
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.c.program.tuning import ChosenKernels
from eqsat.runtime.examples import example_inputs
from eqsat.runtime.onnxruntime.bound import BoundSession
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import SessionRegion
from eqsat.runtime.tuning.store import KernelCache
from eqsat.system.deadline import Deadline, TimeUp

RNG = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(tmp_path / "tuning.sqlite3"))


def weights(*shape):
    return (RNG.standard_normal(shape) / 4).astype(np.float32)


def layers(rows=4):
    """Four launches: a product and a softmax, twice."""
    g = eqsat.Graph("layers")
    x = eqsat.softmax(eqsat.relu(g.input("x", (rows, 12)) @ g.constant(weights(12, 16))), axis=1)
    g.output("y", eqsat.softmax(eqsat.tanh(x @ g.constant(weights(16, 8))), axis=1))
    return g.build()


def branches(batch):
    """Images through two convolutions that lie side by side, in one batch apart, and a running sum."""
    g = eqsat.Graph("branches")
    x = g.input("x", (batch, 4, 6, 6))
    h = [eqsat.relu(eqsat.conv(x, g.constant(weights(8, 4, 1, 1)))) for _ in range(2)]
    h = eqsat.concat(h, axis=1)
    pooled = eqsat.reshape(eqsat.max_pool(h, kernel=(2, 2), strides=(2, 2)), (batch, 16, 9))
    turned = eqsat.transpose(pooled, (0, 2, 1))
    summed = eqsat.cumsum(turned, axis=1)
    g.output("y", eqsat.softmax(summed @ g.constant(weights(16, 5)), axis=2))
    g.output("turned", turned)
    return g.build()


def maker_of(graph):
    lowering = c_lowering(graph)
    return RegionMaker(lowering, lowering.program())


def machine_of(program):
    (machine,) = program.machines.values()
    return machine


def near(graph, made, inputs):
    wanted = select("numpy").compile(graph).run(inputs)
    for name, one in wanted.items():
        np.testing.assert_allclose(made[name], one, rtol=2e-4, atol=2e-5)


def windows(count):
    return [(first, end) for first in range(count) for end in range(first + 1, count + 1)]


def fed(maker, inputs):
    """A machine that was run once, and of whose values none overwrites another."""
    machine = CMachine(maker.program, arrange(maker.program, is_shared=False), ChosenKernels(1), 1)
    for name, array in inputs.items():
        machine.put(name, array)
    machine.launch()
    return machine


@pytest.mark.parametrize("graph", [layers(), branches(1), branches(2)], ids=["layers", "branches", "branches of two"])
def test_every_region_computes_what_its_kernels_do(graph):
    maker = maker_of(graph)
    inputs = example_inputs(graph, {}, 0)
    count = len(maker.program.launches)
    regions = [region for window in windows(count) if (region := maker.region(*window)) is not None]
    assert len(regions) > count
    machine = fed(maker, inputs)
    for region in regions:
        arrays = [machine.array(view) for view in region.writes]
        wanted = [array.copy() for array in arrays]
        for array in arrays:
            array[...] = 0
        machine.session_of(region).run()
        for array, one in zip(arrays, wanted, strict=True):
            np.testing.assert_allclose(array, one, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("regions", [[(0, 1), (2, 4)], [(1, 4)]])
def test_programs_with_regions_compute_the_same(regions):
    graph = branches(2)
    inputs = example_inputs(graph, {}, 0)
    program = select("c").compile(graph, threads=1, regions=regions)
    assert machine_of(program).sessions == len(regions)
    near(graph, program.run(inputs), inputs)


def test_regions_may_follow_each_other():
    graph = layers()
    inputs = example_inputs(graph, {}, 0)
    program = select("c").compile(graph, regions=[(0, 1), (1, 2), (3, 4)])
    near(graph, program.run(inputs), inputs)
    assert (machine_of(program).sessions, machine_of(program).calls) == (3, 4)
    program.memory()  # is checked launch by launch


def sessions_run(call):
    """The runs of sessions in one call."""
    events = []

    def note(frame, event, arg):
        if event == "c_call" and arg.__name__ == "run_with_iobinding":
            events.append(arg)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(events)


def test_prices_decide_the_regions_and_a_call_runs_one_session_for_each():
    graph = layers()
    inputs = example_inputs(graph, {}, 0)
    products_cheap = {(0, 1): 2e-6, (1, 2): 9e-6, (2, 3): 2e-6, (3, 4): 9e-6}
    kernels = (8e-6, 4e-6, 8e-6, 4e-6)
    for crossing, expected in ((1e-6, ((0, 1), (2, 3))), (9e-6, ())):
        priced = {window: crossing + seconds for window, seconds in products_cheap.items()}
        regions = RegionPrices(kernels, priced, crossing).cheapest()
        assert regions == expected
        program = select("c").compile(graph, threads=1, regions=regions)
        assert sessions_run(program.bind(inputs)) == len(expected)
        near(graph, program.run(inputs), inputs)


def test_a_profile_shows_what_runs_where():
    graph = layers()
    program = select("c").compile(graph, regions=[(1, 3)])
    with program.profile() as profile:
        program.run(example_inputs(graph, {}, 0))
    assert [(span.kind, span.label) for span in profile.spans] == [
        ("generated", "matmul + relu"),
        ("session", "softmax + matmul + tanh"),
        ("generated", "softmax"),
    ]
    assert "session    softmax + matmul + tanh" in str(machine_of(program).program)


def test_weights_that_only_a_session_reads_are_not_held_beside_it():
    graph = layers()
    alone, mixed = (select("c").compile(graph, regions=regions).memory() for regions in ((), [(2, 3)]))
    assert alone.weights - mixed.weights >= 16 * 8 * 4


def test_regions_of_named_dims_are_refused():
    graph = layers("n")
    with pytest.raises(BackendError, match="the sizes of dims are free, and regions are measured and kept for one"):
        select("c").compile(graph, regions=[(0, 1)]).run({"x": np.ones((2, 12), np.float32)})
    g = eqsat.Graph("one")
    g.output("y", eqsat.relu(g.input("x", ("n", 12))))
    program = select("c").compile(g.build(), threads=1, tuned=True)
    inputs = {"x": RNG.standard_normal((2, 12)).astype(np.float32)}
    near(program.graph, program.run(inputs), inputs)
    assert machine_of(program).sessions == 0


@pytest.mark.parametrize("regions", [[(0, 5)], [(2, 3), (0, 1)], [(0, 2), (1, 3)], [(1, 1)]])
def test_windows_that_are_no_part_of_the_program_are_refused(regions):
    with pytest.raises(BackendError, match="windows in order, apart, of launches from 0 to 3"):
        select("c").compile(layers(), regions=regions)


def test_calls_from_several_threads_do_not_touch_each_other():
    graph = layers()
    program = select("c").compile(graph, threads=2, regions=[(0, 1), (2, 4)])
    given = [{"x": RNG.standard_normal((4, 12)).astype(np.float32)} for _ in range(16)]
    with ThreadPoolExecutor(4) as pool:
        made = list(pool.map(program.run, given))
    for inputs, one in zip(given, made, strict=True):
        near(graph, one, inputs)


def test_a_static_program_and_a_region_of_all_launches():
    graph = layers()
    inputs = example_inputs(graph, {}, 0)
    program = select("c").compile(graph, regions=[(0, 4)])
    near(graph, program.static()(**inputs), inputs)
    assert machine_of(program).calls == 1
    program.close()
    near(graph, program.run(inputs), inputs)


def test_what_is_kept_is_used_by_a_model_that_is_saved_and_loaded(tmp_path):
    graph = layers()
    seconds = {"c": 2e-6, "onnxruntime": 2e-6, "mixed": 1e-6}
    keep(maker_of(graph), MeasuredMix("mixed", ((1, 2),), seconds), ChosenKernels(1), 1)
    save(graph, tmp_path / "layers.onnx")
    loaded = read(str(tmp_path / "layers.onnx"))
    inputs = example_inputs(graph, {}, 0)
    for threads, sessions in ((1, 1), (2, 0)):
        program = select("c").compile(loaded, threads=threads)
        assert machine_of(program).sessions == sessions
        near(graph, program.run(inputs), inputs)


def test_a_tuned_program_is_measured_once():
    g = eqsat.Graph("two")
    g.output("y", eqsat.softmax(eqsat.cumsum(g.input("x", (4, 12)), axis=1), axis=1))
    graph = g.build()
    inputs = example_inputs(graph, {}, 0)
    near(graph, select("c").compile(graph, threads=1, tuned=True).run(inputs), inputs)
    with KernelCache() as kept:
        ((key, entry),) = ((key, entry) for key, entry in kept.entries().items() if key.target == "c-regions")
    assert key.shapes == "2 launches; threads 1"
    assert {"regions", "seconds of c", "seconds of onnxruntime"} <= set(entry.options)
    program = select("c").compile(graph, threads=1)
    assert machine_of(program).sessions == len(entry.options["regions"]) // 2
    seconds = {"c": 1e-9, "onnxruntime": 2.0}  # those measured are slower, and measured no more
    keep(maker_of(graph), MeasuredMix("c", (), seconds), ChosenKernels(1), 1)
    assert machine_of(select("c").compile(graph, threads=1, tuned=True)).sessions == 0


def test_measuring_is_no_part_of_a_call_s_time_and_ends_where_the_call_is_asked_to():
    graph = layers()
    with Deadline(1e-3) as call:
        program = tuned_program(graph, 1)
    assert call.left <= 1e-3
    near(graph, program.run(example_inputs(graph, {}, 0)), example_inputs(graph, {}, 0))
    with KernelCache() as kept:
        assert [key.shapes for key in kept.entries() if key.target == "c-regions"] == ["4 launches; threads 1"]
    clock = itertools.count(0, 10)
    with Deadline(1e3, asked=lambda: True, now=lambda: next(clock)), pytest.raises(TimeUp):
        tuned_program(layers(rows=5), 1)


def test_windows_that_there_is_no_time_for_have_no_price():
    maker = maker_of(layers())
    prices = measured_prices(maker, ChosenKernels(1), 1, seconds=1e-9)
    assert len(prices.kernels) == 4
    assert (dict(prices.windows), prices.cheapest()) == ({}, ())


def test_measured_prices_are_of_all_launches_and_of_windows_that_sessions_compute():
    maker = maker_of(branches(2))
    count = len(maker.program.launches)
    prices = measured_prices(maker, ChosenKernels(1), 1)
    assert len(prices.kernels) == count and 0 < prices.crossing < 1e-3
    assert {(place, place + 1) for place in range(count)} <= prices.windows.keys()
    assert all(window in prices.windows for window in prices.cheapest())
    mix = measured_mix(maker, ChosenKernels(1), 1)
    assert mix.regions == () if mix.name == "c" else mix.regions


@pytest.mark.parametrize("shape", [(3, 4), (1,), ()], ids=str)
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "int64", "bool"])
def test_elements_of_any_type_that_onnx_runtime_computes_on(dtype, shape):
    g = eqsat.Graph("elements")
    x = g.input("x", shape, dtype)
    is_set = eqsat.cast(x, to="bool")
    g.output("unset", eqsat.not_(is_set))
    g.output("as given", eqsat.cast(eqsat.not_(is_set), to=dtype))
    graph = g.build()
    inputs = example_inputs(graph, {}, 0)
    count = len(maker_of(graph).program.launches)
    program = select("c").compile(graph, threads=1, regions=[(0, count)])
    wanted = select("numpy").compile(graph).run(inputs)
    for name, one in program.run(inputs).items():
        np.testing.assert_array_equal(one, wanted[name])
        assert one.dtype == wanted[name].dtype and one.shape == wanted[name].shape


def test_elements_that_cannot_be_bound_are_no_sessions():
    """Of bfloat16, which NumPy knows by another package, and none at all."""
    g = eqsat.Graph("narrow")
    g.output("y", eqsat.cast(g.input("x", (2, 3)), to="bfloat16"))
    narrow = g.build()
    g = eqsat.Graph("empty")
    g.output("y", eqsat.relu(g.input("x", (0, 3))))
    for graph, told in ((narrow, "elements of type bfloat16, 6 of them"), (g.build(), "float32, 0 of them")):
        with pytest.raises(BackendError, match=told):
            select("c").compile(graph, threads=1, regions=[(0, 1)])
        program = select("c").compile(graph, threads=1, tuned=True)
        inputs = example_inputs(graph, {}, 0)
        made, wanted = program.run(inputs)["y"], select("numpy").compile(graph).run(inputs)["y"]
        np.testing.assert_array_equal(made, wanted)
        assert machine_of(program).sessions == 0


def test_regions_that_onnx_runtime_no_longer_takes_are_left_to_c():
    g = eqsat.Graph("refused")
    g.output("y", -g.input("x", (2, 3), "bfloat16"))
    graph = g.build()
    keep(maker_of(graph), MeasuredMix("onnxruntime", ((0, 1),), {"onnxruntime": 1e-6}), ChosenKernels(1), 1)
    program = select("c").compile(graph, threads=1)
    inputs = example_inputs(graph, {}, 0)
    np.testing.assert_array_equal(program.run(inputs)["y"], -inputs["x"])
    assert machine_of(program).sessions == 0


def test_operators_that_onnx_has_no_form_of_are_no_sessions():
    doubled = eqsat.comprehension("def doubled(float(N) x) -> (y) { y(n) = x(n) + x(n) }")
    g = eqsat.Graph("own")
    g.output("y", doubled.doubled(g.input("x", (6,))))
    graph = g.build()
    with pytest.raises(BackendError, match=r"no part of it: node 'doubled_0' \(doubled\) has no counterpart in ONNX"):
        select("c").compile(graph, threads=1, regions=[(0, 1)])
    program = select("c").compile(graph, threads=1, tuned=True)
    inputs = example_inputs(graph, {}, 0)
    np.testing.assert_array_equal(program.run(inputs)["y"], 2 * inputs["x"])


class WrongRegions(RegionMaker):
    """Regions in which a running sum goes the other way."""

    def region(self, first, end):
        launch = super().region(first, end)
        graph = launch.work.graph
        nodes = [replace(one, attrs=one.attrs | {"reverse": one.op == "cumsum"}) for one in graph.nodes]
        return replace(launch, work=SessionRegion(replace(graph, nodes=tuple(nodes))))


def test_a_session_that_computes_something_else_is_not_taken_and_leaves_nothing_behind():
    g = eqsat.Graph("sums")
    g.output("y", eqsat.softmax(eqsat.cumsum(g.input("x", (4, 12)), axis=1), axis=1))
    lowering = c_lowering(g.build())
    maker = WrongRegions(lowering, lowering.program())
    windows = measured_prices(maker, ChosenKernels(1), 1).windows
    assert windows[0, 1] == windows[0, 2] == math.inf
    assert windows[1, 2] < math.inf
    mix = measured_mix(maker, ChosenKernels(1), 1)
    assert "onnxruntime" not in mix.seconds
    assert mix.regions in ((), ((1, 2),))


def test_a_program_that_is_closed_holds_no_session():
    def held():
        gc.collect()
        return sum(isinstance(one, BoundSession) for one in gc.get_objects())

    graph = layers()
    before = held()
    program = select("c").compile(graph, threads=1, regions=[(0, 1), (2, 3)])
    machine = machine_of(program)
    with program.profile():
        program.run(example_inputs(graph, {}, 0))
    assert held() == before + 2
    program.close()
    assert machine.sessions == 0
    assert held() == before


BROKEN = """
import numpy as np
import eqsat
from eqsat.errors import BackendError
from eqsat.runtime.backend import select

g = eqsat.Graph("g")
g.output("y", eqsat.softmax(g.input("x", (4, 4)), axis=1))
graph = g.build()
for options in ({}, {"tuned": True}):
    print(select("c").compile(graph, threads=1, **options).run({"x": np.ones((4, 4), np.float32)})["y"][0, 0])
try:
    select("c").compile(graph, threads=1, regions=[(0, 1)])
except BackendError as error:
    print(error.what)
"""


def test_programs_run_in_c_where_onnx_runtime_cannot_be_loaded(tmp_path):
    (tmp_path / "onnxruntime").mkdir()
    (tmp_path / "onnxruntime" / "__init__.py").write_text("raise ImportError('libsomething is missing')")
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{BROKEN}"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["0.25", "0.25", "ONNX Runtime computes no part of it: libsomething is missing"]
