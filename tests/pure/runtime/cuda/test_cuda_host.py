"""Programs on host memory: views, what libraries compute, guards, poison, fall back."""

from dataclasses import replace

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run_node
from eqsat.language.terms import Attrs, Constant, DType, Node
from eqsat.runtime.backend import execute
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Matmul, Normalisation
from eqsat.runtime.cuda.libraries.emulated import compute, tf32
from eqsat.runtime.cuda.libraries.substitute import group_of
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import BUFFER_ALIGNMENT, View
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.arrays import aligned, aligned_parts, strided
from eqsat.runtime.programs.launches import Buffer, Fallback, Launch
from eqsat.runtime.programs.program import KernelProgram
from eqsat.testing.cuda.host import HostMachine

FLOATS = [DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16, DType.FLOAT64]
TOLERANCE = {DType.FLOAT32: 1e-5, DType.FLOAT16: 2e-3, DType.BFLOAT16: 2e-2, DType.FLOAT64: 1e-7}


class Memory:
    """Arrays for the views of a call, each in a buffer of its own, full of random numbers."""

    def __init__(self, seed=0):
        self.rng = np.random.default_rng(seed)
        self.buffers = {}

    def __call__(self, view):
        if view.buffer not in self.buffers:
            memory = aligned(view.extent[1])
            memory[:] = 0
            self.buffers[view.buffer] = memory
            drawn = self.rng.standard_normal(view.shape)
            strided(memory, view)[...] = drawn > 0 if view.dtype is DType.BOOL else drawn.astype(view.dtype.numpy)
        return strided(self.buffers[view.buffer], view)


def close(made, wanted, dtype):
    made, wanted = (np.asarray(x).astype(np.float64) for x in (made, wanted))
    return np.linalg.norm(made - wanted) <= TOLERANCE[dtype] * max(np.linalg.norm(wanted), 1e-3)


def test_a_view_with_negative_strides_and_one_of_no_elements_find_their_bytes():
    memory = np.arange(12, dtype=np.float32).view(np.uint8)
    back = View.of("x", DType.FLOAT32, (3, 4)).sliced(1, 3, 4, -1)
    assert strided(memory, back)[1].tolist() == [7, 6, 5, 4]
    nothing = View("x", DType.FLOAT32, (2, 0), (0, 1), offset=100)
    assert strided(memory, nothing).shape == (2, 0)


def test_a_view_beyond_its_buffer_is_refused():
    with pytest.raises(BackendError, match=r"reaches bytes 0 to 16 of 'x'"):
        strided(np.zeros(12, np.uint8), View.of("x", DType.FLOAT32, (4,)))


@pytest.mark.parametrize("dtype", FLOATS)
def test_memory_is_aligned_and_holds_any_element_type(dtype):
    memory = aligned(80)
    assert memory.ctypes.data % BUFFER_ALIGNMENT == 0
    strided(memory, View.of("x", dtype, (10,)))[...] = np.arange(10)
    assert memory[: 10 * dtype.itemsize].view(dtype.numpy).astype(int).tolist() == list(range(10))


def test_parts_of_one_block_are_aligned_and_apart():
    parts = aligned_parts([80, 0, 257, 4])
    assert [one.nbytes for one in parts] == [80, 0, 257, 4]
    assert all(one.ctypes.data % BUFFER_ALIGNMENT == 0 for one in parts)
    for number, one in enumerate(parts):
        one[...] = number
    assert [set(one.tolist()) for one in parts] == [{0}, set(), {2}, {3}]
    assert parts[3].ctypes.data - parts[0].ctypes.data == 3 * BUFFER_ALIGNMENT


def test_tf32_keeps_ten_bits_of_mantissa_and_what_is_not_finite():
    odd = np.float32([1 + 3 * 2**-11, -1 - 2**-11, np.inf, -np.inf, np.nan, 0, 3e38])
    rounded = tf32(odd)
    assert rounded[:2].tolist() == [1 + 2 * 2**-10, -1 - 2**-10]
    assert np.isposinf(rounded[2]) and np.isneginf(rounded[3]) and np.isnan(rounded[4]) and rounded[5] == 0
    assert abs(rounded[6] / np.float32(3e38) - 1) < 2**-11


@st.composite
def matmuls(draw):
    dtype = draw(st.sampled_from(FLOATS))
    batch = tuple(draw(st.lists(st.integers(1, 3), max_size=2)))
    m, k, n = (draw(st.integers(1, 9)) for _ in range(3))

    def view(name, shape):
        order = list(range(len(shape)))
        if draw(st.booleans()):
            order[-2:] = order[-1], order[-2]
        return View.of(name, dtype, shape, order)

    epilogue = draw(st.sampled_from(["", "bias", "relu", "relu_bias", "gelu", "gelu_bias"]))
    bias = View.of("bias", dtype, (n,)) if "bias" in epilogue else None
    b = view("b", (k, n)).broadcast_to((*batch, k, n)) if draw(st.booleans()) else view("b", (*batch, k, n))
    return Matmul(
        view("a", (*batch, m, k)),
        b,
        view("y", (*batch, m, n)),
        bias,
        draw(st.sampled_from([1.0, 0.5])),
        epilogue,
        draw(st.sampled_from(["", "tf32"])) if dtype is DType.FLOAT32 else "",
    )


@given(matmuls(), st.integers(0, 9))
@settings(max_examples=60)
def test_an_emulated_product_is_the_sum_of_products_with_its_ending(call, seed):
    memory = Memory(seed)
    compute(call, memory)
    a, b = (np.asarray(memory(v)).astype(np.float64) for v in (call.a, call.b))
    wanted = call.alpha * np.einsum("...ik,...kj->...ij", a, b)
    wanted = wanted + (0 if call.bias is None else memory(call.bias).astype(np.float64))
    if "relu" in call.epilogue:
        wanted = wanted.clip(0)
    if "gelu" in call.epilogue:
        wanted = wanted / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (wanted + 0.044715 * wanted**3)))
    made = memory(call.result).astype(np.float64)
    if call.arithmetic == "tf32":
        assert np.linalg.norm(made - wanted) <= 4e-3 * (1 + np.linalg.norm(wanted))
    else:
        assert close(made, wanted, call.a.dtype)


def test_tf32_is_seen_in_a_product():
    a, b, y = (View.of(n, DType.FLOAT32, (16, 16)) for n in "aby")
    exact, rounded = Memory(), Memory()
    compute(Matmul(a, b, y), exact)
    compute(Matmul(a, b, y, arithmetic="tf32"), rounded)
    assert 1e-5 < np.abs(exact(y) - rounded(y)).max() < 1e-1


def images(name, shape, last, dtype):
    return View.of(name, dtype, shape, (0, *range(2, len(shape)), 1) if last else None)


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("dtype", FLOATS)
def test_an_emulated_convolution_is_a_sum_over_windows(dtype, last):
    x, w = images("x", (2, 4, 6, 5), last, dtype), images("w", (6, 2, 3, 2), last, dtype)
    y = images("y", (2, 6, 4, 2), last, dtype)
    call = Convolution(x, w, y, (2, 3), (1, 0, 3, 1), (1, 1), 2, View.of("bias", dtype, (6,)), relu=True)
    memory = Memory()
    compute(call, memory)
    ax, aw = (np.asarray(memory(v)).astype(np.float64) for v in (x, w))
    padded = np.pad(ax, ((0, 0), (0, 0), (1, 3), (0, 1)))
    wanted = np.zeros(y.shape)
    for n, o, i, j in np.ndindex(*y.shape):
        window = padded[n, o // 3 * 2 : o // 3 * 2 + 2, 2 * i : 2 * i + 3, 3 * j : 3 * j + 2]
        wanted[n, o, i, j] = max((window * aw[o]).sum() + float(memory(call.bias)[o]), 0)
    assert close(memory(y), wanted, dtype)


@pytest.mark.parametrize("relu", [False, True])
def test_what_is_added_to_an_emulated_convolution_comes_before_its_activation(relu):
    x, w, y, addend = (images(n, (2, 4, 1, 1), True, DType.FLOAT16) for n in "xwya")
    w = replace(w, shape=(4, 4, 1, 1), strides=(4, 1, 4, 4))
    call = Convolution(x, w, y, (1, 1), (0, 0, 0, 0), (1, 1), 1, View.of("b", DType.FLOAT16, (4,)), relu, addend=addend)
    memory = Memory(4)
    compute(call, memory)
    ax, aw, ab, aa = (memory(view).astype(np.float64) for view in (x, w, call.bias, addend))
    wanted = ax[:, :, 0, 0] @ aw[:, :, 0, 0].T + ab + aa[:, :, 0, 0]
    assert close(memory(y)[:, :, 0, 0], wanted.clip(0) if relu else wanted, DType.FLOAT16)


@pytest.mark.parametrize("dtype", [DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32])
@pytest.mark.parametrize("mask", ["", "additive", "kept"])
@pytest.mark.parametrize("causal", [False, True])
def test_emulated_attention_is_a_softmax_over_keys(dtype, mask, causal):
    q, k, v = (View.of(n, dtype, (2, h, s, 8)) for n, h, s in (("q", 4, 5), ("k", 2, 7), ("v", 2, 7)))
    y = View.of("y", dtype, (2, 5, 4, 8)).permuted((0, 2, 1, 3))
    held = View.of("m", DType.BOOL if mask == "kept" else dtype, (2, 1, 1, 7)).broadcast_to((2, 4, 5, 7))
    call = Attention(q, k, v, y, 0.3, held if mask else None, causal)
    memory = Memory(3)
    compute(call, memory)
    aq, ak, av = (memory(view).astype(np.float64) for view in (q, k, v))
    wanted = np.zeros((2, 4, 5, 8))
    for b, h, i in np.ndindex(2, 4, 5):
        scores = ak[b, h // 2] @ aq[b, h, i] * 0.3
        kept = np.arange(7) <= i if causal else np.ones(7, bool)
        if mask == "kept":
            kept = kept & memory(held)[b, h, i]
        elif mask:
            scores = scores + memory(held)[b, h, i].astype(np.float64)
        weights = np.where(kept, np.exp(scores), 0)
        wanted[b, h, i] = weights / weights.sum() @ av[b, h // 2] if kept.any() else 0
    assert close(memory(y), wanted, dtype)


def rows(dtype, bias):
    vectors = {name: View.of(name, dtype, (33,)) for name in ("scale", "bias")}
    x, y = (View.of(name, dtype, (5, 33)) for name in "xy")
    return Normalisation(x, vectors["scale"], y, 0.25, vectors["bias"] if bias else None)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("bias", [False, True])
def test_an_emulated_normalisation_goes_along_rows(dtype, bias):
    call, memory = rows(dtype, bias), Memory(5)
    compute(call, memory)
    x, scale = (memory(view).astype(np.float64) for view in (call.x, call.scale))
    centred = x - x.mean(axis=1, keepdims=True) if bias else x
    wanted = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 0.25) * scale
    wanted = wanted + (memory(call.bias).astype(np.float64) if bias else 0)
    assert close(memory(call.result), wanted, dtype)


@given(matmuls())
@settings(max_examples=30)
def test_what_stands_in_for_a_product_computes_the_same(call):
    assert_same(call)


@pytest.mark.parametrize("bias", [False, True])
def test_what_stands_in_for_the_calls_of_networks_computes_the_same(bias):
    half = DType.FLOAT16
    channels = View.of("b", half, (4,)) if bias else None
    x, w, y = (View.of(n, half, s) for n, s in (("x", (1, 4, 5, 5)), ("w", (4, 2, 3, 3)), ("y", (1, 4, 5, 5))))
    call = Convolution(x, w, y, (1, 1), (1, 1, 1, 1), (1, 1), 2, channels, relu=bias)
    assert_same(call)
    assert_same(replace(call, addend=View.of("a", half, (1, 4, 5, 5))))
    q, k, v, y = (View.of(n, half, (1, 2, 3, 8)) for n in "qkvy")
    assert_same(Attention(q, k, v, y, 0.5, View.of("m", half, (3, 3)) if bias else None, causal=bias))
    assert_same(rows(half, bias))


def assert_same(call):
    """The operators that stand in for a call, run by their references, make what the call makes."""
    memory = Memory(1)
    compute(call, memory)
    group = group_of(call)
    values = {
        name: group.constants[name].array if name in group.constants else np.asarray(memory(view)).astype(np.float64)
        for name, view in group.operands.items()
    }
    if isinstance(call, Matmul) and call.arithmetic == "tf32":
        # Sums of products that cancel show how operands were rounded: both sides begin with the same.
        for name, view in group.operands.items():
            if view in (call.a, call.b):
                values[name] = tf32(memory(view)).astype(np.float64)
    for node in group.nodes:
        types = [group.types[v] for v in node.inputs]
        results = [group.types[v] for v in node.outputs]
        operands = [values[v] for v in node.inputs]
        (values[node.outputs[0]],) = run_node(Floats(wide=True), node, operands, types, results)
    (made,) = group.results
    assert group.results[made] == call.result
    assert close(memory(call.result), values[made], call.result.dtype)


def program(*launches, sizes=8, outputs=("y",)):
    """A program over buffers of float32 vectors x, w, t and y, of which w is a weight and t a value."""
    roles = {"x": "input", "w": "weight", "t": "value", "u": "value", "y": "output"}
    views = {name: View.of(name, DType.FLOAT32, (sizes,)) for name in roles}
    used = {v.buffer for launch in launches for v in (*launch.reads, *launch.writes)}
    buffers = {name: Buffer(name, views[name].nbytes, role) for name, role in roles.items() if name in used}
    weights = {"w": (Constant.of(np.arange(sizes, dtype=np.float32)), views["w"])} if "w" in used else {}
    return KernelProgram("p", buffers, launches, {"x": views["x"]}, {o: views[o] for o in outputs}, weights)


def vector(name, size=8):
    return View.of(name, DType.FLOAT32, (size,))


def step(op, reads, writes, **attrs):
    node = Node(op, tuple(f"v_{r}" for r in reads), tuple(f"v_{w}" for w in writes), Attrs(attrs))
    return Launch(Fallback(node), tuple(map(vector, reads)), tuple(map(vector, writes)), tuple(writes), op)


def test_a_program_runs_launch_by_launch_in_one_arena():
    p = program(step("add", "xw", "t"), step("exp", "t", "u"), step("neg", "u", "y"))
    machine = HostMachine(p, arrange(p))
    x = np.linspace(-1, 1, 8, dtype=np.float32)
    for _ in range(2):
        np.testing.assert_allclose(machine.run({"x": x})["y"], -np.exp(x + np.arange(8)), rtol=1e-6)
    machine.close()


def test_a_value_that_nothing_has_written_is_seen_in_the_outputs():
    whole = step("neg", "t", "y")
    partly = Launch(step("exp", "x", "t").work, (vector("x").sliced(0, 0, 4),), (vector("t").sliced(0, 0, 4),), ("t",))
    p = program(partly, whole)
    made = HostMachine(p, arrange(p)).run({"x": np.zeros(8, np.float32)})["y"]
    assert made[:4].tolist() == [-1] * 4 and np.isnan(made[4:]).all()


@pytest.mark.parametrize(("name", "place"), [("y", 8), ("y", -1), ("t", 64), ("t", -1)])
def test_a_launch_that_writes_beyond_its_memory_is_named(name, place):
    code = f'extern "C" __global__ void stray(float* y) {{ y[threadIdx.x] = 1; y[{place}] = 2; }}'
    source = KernelSource("stray", code, ("y",), (1, 1, 1), (8, 1, 1))
    stray = Launch(source, (), (vector(name),), (name,), "stray")
    p = program(stray, *([step("neg", "t", "y")] if name == "t" else []))
    with pytest.raises(BackendError, match=f"p: stray wrote beyond {'the arena' if name == 't' else repr(name)}"):
        HostMachine(p, arrange(p)).launch()


def test_generated_kernels_run_on_the_elements_of_their_views():
    code = (
        'extern "C" __global__ void twice(const float* x, float* y) { y[threadIdx.x] = 2 * x[-2 * (int)threadIdx.x]; }'
    )
    source = KernelSource("twice", code, ("x", "y"), (1, 1, 1), (4, 1, 1))
    back, half = vector("x").sliced(0, 7, 4, -2), vector("y").sliced(0, 4, 4)
    p = program(Launch(source, (back,), (half,), ("y",), "twice"))
    machine = HostMachine(p, arrange(p))
    made = machine.run({"x": np.arange(8, dtype=np.float32)})["y"]
    assert np.isnan(made[:4]).all() and made[4:].tolist() == [14, 10, 6, 2]


def test_operators_without_a_kernel_may_leave_out_operands_and_results():
    node = Node("clip", ("x", None, "high"), ("y",), Attrs())
    scalar = View.of("h", DType.FLOAT32, ())
    launch = Launch(Fallback(node), (vector("x"), scalar), (vector("y"),), ("y",), "clip")
    buffers = {"x": Buffer("x", 32, "input"), "h": Buffer("h", 4, "weight"), "y": Buffer("y", 32, "output")}
    weights = {"h": (Constant.of(np.float32(3)), scalar)}
    p = KernelProgram("p", buffers, (launch,), {"x": vector("x")}, {"y": vector("y")}, weights)
    made = HostMachine(p, arrange(p)).run({"x": np.arange(8, dtype=np.float32)})["y"]
    assert made.tolist() == [0, 1, 2, 3, 3, 3, 3, 3]


def test_weights_are_put_in_the_layout_and_element_type_they_are_read_in():
    held = View.of("w", DType.BFLOAT16, (2, 3), (1, 0))
    node = Node("cast", ("w",), ("y",), Attrs({"to": "float32"}))
    made_in = View.of("y", DType.FLOAT32, (2, 3))
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    buffers = {"w": Buffer("w", 12, "weight"), "y": Buffer("y", 24, "output")}
    launch = Launch(Fallback(node), (held,), (made_in,), ("y",), "cast")
    p = KernelProgram("p", buffers, (launch,), {}, {"y": made_in}, {"w": (Constant.of(array), held)})
    machine = HostMachine(p, arrange(p))
    assert machine.array(held).dtype == ml_dtypes.bfloat16 and machine.array(held).strides == (2, 4)
    np.testing.assert_array_equal(machine.run({})["y"], array)


def test_rows_that_are_gathered_are_normalised_in_one_kernel():
    g = eqsat.Graph("embedding")
    table, scale = g.input("table", (10, 16)), g.input("scale", (16,))
    places = g.input("places", (2, 3), dtype="int64")
    g.output("y", eqsat.layer_norm(eqsat.gather(table, places, axis=0), scale, axis=-1))
    graph = g.build()
    p = program_of(graph)
    assert [launch.label for launch in p.launches] == ["gather + layer_norm"]
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal(s).astype(np.float32) for name, s in (("table", (10, 16)), ("scale", 16))}
    inputs["places"] = rng.integers(-10, 10, (2, 3))
    wanted = execute(graph, inputs, "numpy")["y"]
    np.testing.assert_allclose(HostMachine(p, arrange(p)).run(inputs)["y"], wanted, rtol=1e-5, atol=1e-6)
