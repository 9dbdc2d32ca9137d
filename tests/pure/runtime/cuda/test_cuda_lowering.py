"""What graphs become on their way to a GPU: which launches, which views, which library calls, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.builder import Builder
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import PLAIN, Conversion, Held, Kernel, Plan, State
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Matmul, Normalisation
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.programs.arena import arrange, check
from eqsat.runtime.programs.grouping import grouped
from eqsat.runtime.programs.static import plain_plan
from eqsat.testing.cuda.host import HostMachine


def labels(program):
    return [launch.label for launch in program.launches]


def weights(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) / 4).astype(np.float32)


def computed(graph, program, **inputs):
    """The outputs on the processor, held against the references."""
    arrangement = arrange(program)
    check(program, arrangement)
    made = HostMachine(program, arrangement).run(inputs)
    wanted = run(graph, inputs, Floats(wide=True))
    for name, array in wanted.items():
        np.testing.assert_allclose(made[name], array, rtol=2e-5, atol=2e-5)
    return made


def test_views_launch_nothing():
    g = Builder("views")
    x = g.input("x", (2, 3, 4))
    left, right = eqsat.split(eqsat.transpose(x, perm=(0, 2, 1)), (1, 3), axis=1)
    g.output("reversed", eqsat.slice(right, starts=(2,), ends=(-5,), axes=(1,), steps=(-1,)))
    g.output("flat", eqsat.reshape(x, shape=(6, 4)))
    g.output("wide", eqsat.expand(left, shape=(5, 2, 1, 3)))
    graph = g.build()
    program = program_of(graph)
    assert program.launches == ()
    computed(graph, program, x=weights(2, 3, 4))


def test_a_reshape_of_a_transposed_value_takes_a_copy_only_where_it_was_made_in_another_order():
    g = Builder("orders")
    x = g.input("x", (2, 3, 4))
    g.output("y", eqsat.reshape(eqsat.transpose(eqsat.relu(x), perm=(0, 2, 1)), shape=(8, 3)))
    g.output("z", eqsat.reshape(eqsat.transpose(x, perm=(0, 2, 1)), shape=(8, 3)))
    graph = g.build()
    program = program_of(graph)
    assert sorted(labels(program)) == ["relu", "reshape"]
    computed(graph, program, x=weights(2, 3, 4))


def test_parts_of_a_concatenation_are_written_where_they_belong():
    g = Builder("parts")
    x = g.input("x", (2, 8))
    g.output("y", eqsat.concat([eqsat.exp(x), x, eqsat.sin(x)], axis=1))
    graph = g.build()
    program = program_of(graph)
    assert labels(program) == ["exp", "sin", "copy of x into concat_0"]
    assert {view.buffer for launch in program.launches for view in launch.writes} == {"concat_0"}
    computed(graph, program, x=weights(2, 8))


def test_parts_that_are_not_aligned_are_put_together_by_one_kernel():
    g = Builder("parts")
    x = g.input("x", (2, 3))
    g.output("y", eqsat.concat([eqsat.exp(x), eqsat.sin(x)], axis=1))
    graph = g.build()
    assert labels(program_of(graph))[-1] == "concat"
    computed(graph, program_of(graph), x=weights(2, 3))


def test_what_follows_a_product_is_computed_at_its_end():
    g = Builder("layer")
    x = g.input("x", (4, 6, 16))
    y = eqsat.relu(x @ g.constant(weights(16, 8)) / 2.0 + g.constant(weights(8, seed=1)))
    g.output("y", y)
    graph = g.build()
    program = program_of(graph)
    (launch,) = program.launches
    assert isinstance(launch.work, Matmul)
    assert (launch.work.epilogue, launch.work.alpha, launch.work.a.shape) == ("relu_bias", 0.5, (24, 16))
    computed(graph, program, x=weights(4, 6, 16))
    assert labels(program_of(graph, libraries=())) == ["matmul + div + add + relu"]
    computed(graph, program_of(graph, libraries=()), x=weights(4, 6, 16))


def test_a_tensor_added_to_a_product_goes_into_the_row_that_reads_it():
    g = Builder("residual")
    x = g.input("x", (4, 32))
    scale, shift = g.constant(weights(32, seed=2)), g.constant(weights(32, seed=3))
    h = x @ g.constant(weights(32, 32)) + g.constant(weights(32, seed=1)) + x
    g.output("y", eqsat.layer_norm(h, scale, shift, axis=-1))
    g.output("h", h)
    graph = g.build()
    program = program_of(graph)
    assert labels(program) == ["matmul + add", "add + layer_norm"]
    assert len(program.launches[1].writes) == 2
    computed(graph, program, x=weights(4, 32))


def test_batches_that_one_stride_does_not_walk_are_copied():
    g = Builder("heads")
    q, k = g.input("q", (2, 5, 3, 4)), g.input("k", (2, 5, 3, 4))
    g.output("y", eqsat.transpose(q, perm=(0, 2, 1, 3)) @ eqsat.transpose(k, perm=(0, 2, 3, 1)))
    graph = g.build()
    program = program_of(graph)
    assert labels(program) == ["copy of operand of matmul", "copy of operand of matmul", "matmul"]
    computed(graph, program, q=weights(2, 5, 3, 4), k=weights(2, 5, 3, 4, seed=1))
    one = Builder("heads")
    q, k = one.input("q", (1, 5, 3, 4)), one.input("k", (1, 5, 3, 4))
    one.output("y", eqsat.transpose(q, perm=(0, 2, 1, 3)) @ eqsat.transpose(k, perm=(0, 2, 3, 1)))
    assert labels(program_of(one.build())) == ["matmul"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", ["none", "float", "bool"])
@pytest.mark.parametrize("hidden", ["zero", "nan", "none"])
def test_attention_of_floats_is_unfolded(causal, mask, hidden):
    g = Builder("attention")
    q, k, v = g.input("q", (1, 4, 5, 8)), g.input("k", (1, 2, 6, 8)), g.input("v", (1, 2, 6, 8))
    operands = [q, k, v]
    inputs = {"q": weights(1, 4, 5, 8), "k": weights(1, 2, 6, 8, seed=1), "v": weights(1, 2, 6, 8, seed=2)}
    if mask != "none":
        operands.append(g.input("m", (5, 6), "float32" if mask == "float" else "bool"))
        inputs["m"] = weights(5, 6, seed=3) if mask == "float" else weights(5, 6, seed=3) > 0
        inputs["m"][2] = False if mask == "bool" else -np.inf  # a query that keeps no key
        inputs["m"][3, :4] = False if mask == "bool" else -np.inf  # another, where it may not look farther
    g.output("y", eqsat.attention(*operands, causal=causal, hidden=hidden))
    graph = g.build()
    program = program_of(graph)
    assert not any(isinstance(launch.work, Attention) for launch in program.launches)
    assert sum(isinstance(launch.work, Matmul) for launch in program.launches) == 2
    computed(graph, program, **inputs)


@pytest.mark.parametrize(
    ("bits", "zeros", "rows", "dtype"),
    [
        (4, "none", 1, "float32"),
        (4, "packed", 5, "float16"),
        (4, "floats", 40, "float32"),
        (2, "packed", 1, "float32"),
        (8, "none", 40, "float32"),
    ],
)
def test_packed_weights_are_unpacked_within_the_kernel_of_their_product(bits, zeros, rows, dtype):
    rng = np.random.default_rng(0)
    k, n, block = 70, 33, 32
    count = -(-k // block)
    g = Builder("packed")
    a = g.input("a", (rows, k), dtype)
    zero = {
        "none": None,
        "packed": rng.integers(0, 256, (n, -(-count * bits // 8))).astype(np.uint8),
        "floats": rng.uniform(1, 3, (n, count)).astype(dtype),
    }[zeros]
    operands = [
        g.constant(rng.integers(0, 256, (n, count, block * bits // 8)).astype(np.uint8)),
        g.constant(rng.uniform(0.01, 0.05, (n, count)).astype(dtype)),
        None if zero is None else g.constant(zero),
        g.constant(weights(n).astype(dtype)),
    ]
    g.output("y", g.apply("matmul_packed", a, *operands, k=k, n=n, bits=bits, block=block))
    graph = g.build()
    program = program_of(graph)
    (launch,) = program.launches
    assert isinstance(launch.work, KernelSource)
    x = weights(rows, k).astype(dtype)
    if dtype == "float32":
        computed(graph, program, a=x)
        return
    made = HostMachine(program, arrange(program)).run({"a": x})
    np.testing.assert_allclose(made["y"], run(graph, {"a": x}, Floats(wide=True))["y"], rtol=2e-3, atol=2e-3)


def test_attention_of_halves_is_the_librarys():
    g = Builder("attention")
    q, k, v = (g.input(name, (2, 4, 16, 32), "float16") for name in "qkv")
    g.output("y", eqsat.attention(q, k, v))
    program = program_of(g.build())
    assert [type(launch.work) for launch in program.launches] == [Attention]


def test_a_convolution_takes_its_bias_and_activation():
    g = Builder("conv")
    x = g.input("x", (1, 8, 6, 6))
    w, b = g.constant(weights(8, 8, 3, 3)), g.constant(weights(8, seed=1))
    g.output("y", eqsat.relu(eqsat.conv(x, w, b, pads=(1, 1, 1, 1))))
    graph = g.build()
    program = program_of(graph)
    (launch,) = program.launches
    assert isinstance(launch.work, Convolution)
    assert launch.work.relu
    assert launch.work.bias is not None
    computed(graph, program, x=weights(1, 8, 6, 6, seed=2))


def norms(op, shape, axis=-1, dtype="float32", transposed=False, after=False):
    g = Builder("norm")
    x = g.input("x", shape, dtype)
    x = eqsat.transpose(x, perm=(0, 2, 1)) if transposed else x
    size = [x.shape[i] for i in range(axis % 3, 3)]
    factors = [g.constant(weights(*size, seed=s).astype(dtype)) for s in (1, 2)[: 1 if op == "rms_norm" else 2]]
    y = getattr(eqsat, op)(x, *factors, axis=axis, epsilon=0.5)
    g.output("y", eqsat.relu(y) if after else y)
    return g.build()


@pytest.mark.parametrize("op", ["layer_norm", "rms_norm"])
@pytest.mark.parametrize("axis", [-1, 1])
def test_a_normalisation_by_itself_may_be_the_librarys(op, axis):
    graph = norms(op, (2, 3, 8), axis)
    (launch,) = program_of(graph).launches
    assert isinstance(launch.work, Normalisation)
    assert launch.work.x.shape == ((6, 8) if axis == -1 else (2, 24))
    assert (launch.work.epsilon, launch.work.bias is None) == (0.5, op == "rms_norm")
    computed(graph, program_of(graph), x=weights(2, 3, 8))
    (generated,) = program_of(graph, libraries=()).launches
    assert isinstance(generated.work, KernelSource)


@pytest.mark.parametrize(
    "options", [{"after": True}, {"transposed": True}, {"dtype": "float64"}, {"shape": (2, 0, 8)}], ids=str
)
def test_a_normalisation_with_others_or_of_rows_that_are_apart_is_generated(options):
    graph = norms("layer_norm", **{"shape": (2, 3, 8), **options})
    assert not any(isinstance(launch.work, Normalisation) for launch in program_of(graph).launches)


def test_a_layer_normalisation_without_a_bias_is_generated():
    g = Builder("norm")
    g.output("y", eqsat.layer_norm(g.input("x", (2, 3, 8)), g.constant(weights(8)), axis=-1))
    (launch,) = program_of(g.build()).launches
    assert isinstance(launch.work, KernelSource)


def residual(channels=8, group=1, twice=False):
    g = Builder("residual")
    x = g.input("x", (1, channels, 6, 6))
    w, b = g.constant(weights(channels, channels // group, 3, 3)), g.constant(weights(channels, seed=1))
    y = eqsat.conv(x, w, b, pads=(1, 1, 1, 1), group=group)
    g.output("y", eqsat.relu(y + y if twice else y + x))
    return g.build()


def held(graph, image):
    """A plan of a kernel for each node, with all images in a state, and the rest as they are stated."""
    rest = State("row", image.precision)
    made, last = [n.outputs[0] for n in graph.nodes], graph.nodes[-1].outputs[0]
    steps = [Conversion("x", PLAIN, image)] if image != PLAIN else []
    for node in graph.nodes:
        operands = [Held(v, image if v in (*made, "x") else rest) for v in dict.fromkeys(node.inputs)]
        steps.append(Kernel((node.outputs[0],), tuple(operands), (Held(node.outputs[0], image),)))
    steps += [Conversion(last, image, PLAIN)] if image != PLAIN else []
    return Plan(graph, tuple(steps))


def test_a_tensor_is_added_at_the_end_of_a_convolution_whose_channels_come_last():
    graph = residual()
    program = program_of(held(graph, State("nhwc", "float16")))
    (call,) = (launch.work for launch in program.launches if isinstance(launch.work, Convolution))
    assert call.addend is not None and call.relu and call.bias is not None
    assert [view.strides[1] for view in (call.x, call.w, call.addend, call.result)] == [1] * 4
    assert labels(program)[1] == "conv + add + relu"
    machine = HostMachine(program, arrange(program))
    x = weights(1, 8, 6, 6, seed=2)
    wanted = run(graph, {"x": x}, Floats(wide=True))["y"]
    np.testing.assert_allclose(machine.run({"x": x})["y"], wanted, rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize(
    ("graph", "state"),
    [
        (residual(), State("row", "float16")),
        (residual(), State("nhwc")),
        (residual(channels=12), State("nhwc", "float16")),
        (residual(group=2), State("nhwc", "float16")),
        (residual(twice=True), State("nhwc", "float16")),
    ],
)
def test_a_tensor_is_added_after_a_convolution_where_the_library_does_not(graph, state):
    program = program_of(held(graph, state))
    assert [label for label in labels(program) if "copy" not in label and " as " not in label] == ["conv", "add + relu"]
    assert isinstance(next(launch.work for launch in program.launches if launch.label == "conv"), Convolution)


def test_a_plan_is_run_as_it_was_chosen():
    """Kernels of several operators, a value in two states, and an input that is held by columns."""
    g = Builder("plan")
    x = g.input("x", (6, 5))
    g.output("y", eqsat.exp(eqsat.relu(x)) @ g.constant(weights(5, 3)))
    graph = g.build()
    relu, exp, product = (node.outputs[0] for node in graph.nodes)
    weight = next(iter(graph.constants))
    column, half = State("column"), State("row", "float16")
    steps = (
        Kernel((relu, exp), (Held("x", column),), (Held(exp, column),)),
        Conversion(exp, column, half),
        Kernel((product,), (Held(exp, half), Held(weight, half)), (Held(product, half),)),
        Conversion(product, half, PLAIN),
    )
    program = program_of(Plan(graph, steps, {"x": column}))
    assert labels(program)[0] == "relu + exp"
    assert (program.inputs["x"].shape, program.inputs["x"].strides) == ((5, 6), (6, 1))
    assert program.launches[0].reads[0].strides == (1, 6)
    assert [view.dtype.value for view in program.launches[2].reads] == ["float16", "float16"]
    machine = HostMachine(program, arrange(program))
    given = weights(6, 5, seed=4)
    made = machine.run({"x": given.T})["y"]
    np.testing.assert_allclose(made, np.exp(np.maximum(given, 0)) @ weights(5, 3), rtol=5e-3, atol=5e-3)


def test_named_dims_become_sizes_and_shapes_constants():
    g = Builder("dynamic")
    x = g.input("x", ("batch", "length", 4))
    scale = eqsat.cast(eqsat.reduce_prod(eqsat.shape(x), axes=(0,), keepdims=False), to="float32")
    g.output("y", x / scale)
    graph = g.build()
    for batch, length in ((1, 2), (2, 7)):
        program = program_of(graph, {"batch": batch, "length": length})
        assert labels(program) == ["div"]
        assert program.outputs["y"].shape == (batch, length, 4)
        computed(graph, program, x=weights(batch, length, 4))
    with pytest.raises(BackendError, match=r"input 'x' is float32\[batch, length, 4\]") as caught:
        program_of(graph, {"batch": 1})
    assert "sizes such as length=1" in str(caught.value)


def test_what_cannot_run_on_a_gpu_is_refused_by_name():
    g = Builder("layouts")
    x = g.input("x", (1, 16, 4, 4))
    g.output("y", eqsat.relu(x))
    graph = g.build()
    made = graph.nodes[0].outputs[0]
    blocked = State("blocked")
    steps = (
        Conversion("x", PLAIN, blocked),
        Kernel((made,), (Held("x", blocked),), (Held(made, blocked),)),
        Conversion(made, blocked, PLAIN),
    )
    with pytest.raises(BackendError, match="'x' is held in the layout 'blocked', which no kernel here reads"):
        program_of(Plan(graph, steps))


def test_grouping_computes_nothing_twice():
    g = Builder("shared")
    x = g.input("x", (4, 8))
    h = eqsat.exp(x)
    g.output("a", eqsat.relu(h))
    g.output("b", eqsat.softmax(eqsat.neg(h) * 2.0, axis=-1))
    graph = g.build()
    plan = grouped(plain_plan(graph))
    nodes = [v for kernel in plan.kernels for v in kernel.nodes]
    assert sorted(nodes) == sorted(n.outputs[0] for n in graph.nodes)
    assert [len(k.results) for k in plan.kernels] == [2]
    computed(graph, program_of(graph), x=weights(4, 8))


def test_what_a_kernel_reads_twice_stays_within_it_and_what_others_read_is_written_once():
    g = Builder("diamonds")
    x = g.input("x", (4, 8))
    h = x + g.constant(weights(8))
    y = h * eqsat.sigmoid(h)  # the value itself and what follows from it
    z = y - eqsat.tanh(y)
    g.output("z", z * eqsat.exp(z))
    g.output("p", y @ g.constant(weights(8, 3)))
    graph = g.build()
    program = program_of(graph)
    assert labels(program) == ["add + sigmoid + mul + tanh + sub + exp + mul", "matmul"]
    assert [len(launch.writes) for launch in program.launches] == [2, 1]
    computed(graph, program, x=weights(4, 8, seed=2))


def test_rotary_embedding_is_one_kernel_for_each_tensor():
    g = Builder("rotary")
    x, sine, cosine = g.input("x", (1, 2, 3, 8)), g.input("s", (3, 8)), g.input("c", (3, 8))
    first, second = eqsat.split(x, 2, axis=3)
    g.output("y", x * cosine + eqsat.concat([eqsat.neg(second), first], axis=3) * sine)
    graph = g.build()
    program = program_of(graph)
    assert len(program.launches) == 1
    computed(graph, program, x=weights(1, 2, 3, 8), s=weights(3, 8, seed=1), c=weights(3, 8, seed=2))


def test_a_product_of_vectors_takes_no_bias():
    g = Builder("dot")
    a, b = g.input("a", (1,)), g.input("b", (1,))
    g.output("y", (a @ b) + b)
    graph = g.build()
    product, total = (node.outputs[0] for node in graph.nodes)
    kernel = Kernel((product, total), (Held("a", PLAIN), Held("b", PLAIN)), (Held(total, PLAIN),))
    for given in (graph, Plan(graph, (kernel,))):
        computed(graph, program_of(given), a=weights(1), b=weights(1, seed=1))
