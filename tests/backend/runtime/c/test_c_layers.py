"""Operators of which a kernel does more than arithmetic, in the cases that attributes and elements make."""

from itertools import product

import numpy as np
import pytest

import eqsat
from eqsat.runtime.backend import execute
from eqsat.runtime.c.program.kernels import KernelChoice
from eqsat.runtime.kernels.nests.options import MappingOptions
from tests.support.c_programs import assert_kernels, assert_same, computed, graph_of, graph_of_calls

RNG = np.random.default_rng(11)
BEGIN = RNG.bit_generator.state
#: A few roundings of float16, as a share of the largest element.
HALF = 1e-2
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.fixture(autouse=True)
def same_numbers():
    """Whatever tests run before, each draws the same numbers."""
    RNG.bit_generator.state = BEGIN


def drawn(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def whole(*shape, dtype=np.int64, low=None, high=None):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min if low is None else low, limits.max if high is None else high, shape, dtype=dtype)


# ---- the first in order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [True, False])
def test_elements_come_in_order_with_ties_infinities_and_nan(largest):
    calls = []
    for dtype in (np.float16, np.float32, np.float64):
        for size, k in ((1, 1), (5, 5), (97, 20)):
            x = RNG.choice(np.array([0.0, -0.0, 1, -1, 2, np.inf, -np.inf, np.nan, 0.5], dtype), (3, size, 2))
            calls.append(("topk", [x], {"k": k, "axis": 1, "largest": largest}))
    assert_kernels(*graph_of_calls(calls))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_come_in_order_up_to_their_limits(dtype):
    calls = []
    for size, largest in ((7, False), (30, True)):
        x = whole(2, size, dtype=dtype)
        x[:, ::3] = RNG.choice(np.array([np.iinfo(dtype).min, np.iinfo(dtype).max, 0], dtype), x[:, ::3].shape)
        calls.append(("topk", [x], {"k": size - 2, "axis": -1, "largest": largest}))
    assert_kernels(*graph_of_calls(calls))


def test_one_of_two_results_may_be_left_out():
    graph, inputs = graph_of_calls([("topk", [drawn(3, 20)], {"k": 4})])
    for kept in ("y0_0", "y0_1"):
        alone = type(graph)(graph.name, graph.inputs, {kept: kept}, graph.nodes, {}, graph.types)
        assert_kernels(alone, inputs)


# ---- updates --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_updates_that_meet_are_made_in_their_order(reduction):
    calls = []
    for dtype in ("float16", "float32", "int8", "bool"):
        x, updates = (RNG.integers(0, 4, shape).astype(dtype) for shape in ((5, 4, 3), (9, 3)))
        indices = np.stack([RNG.integers(-5, 5, 9), RNG.integers(-4, 4, 9)], 1)
        calls.append(("scatter_nd", [x, indices, updates], {"reduction": reduction}))
        places = RNG.integers(-4, 4, (4, 6, 2)).astype(np.int32)
        updates = RNG.integers(0, 4, places.shape).astype(dtype)
        calls.append(("scatter_elements", [x, places, updates], {"axis": 1, "reduction": reduction}))
    calls.append(("scatter_nd", [drawn(3, 4), np.zeros((2, 3, 2), np.int64), drawn(2, 3)], {"reduction": reduction}))
    calls.append(("scatter_nd", [drawn(3, 4), np.zeros((0, 1), np.int64), drawn(0, 4)], {"reduction": reduction}))
    assert_kernels(*graph_of_calls(calls))


def test_running_sums_run_either_way_and_may_lag():
    calls = []
    for dtype, axis in (("float16", 0), ("float32", 1), ("int8", 2)):
        x = (drawn(5, 6, 7) * 3).astype(dtype)
        for exclusive, reverse in product((True, False), (True, False)):
            calls.append(("cumsum", [x], {"axis": axis, "exclusive": exclusive, "reverse": reverse}))
    calls += [("cumsum", [drawn(*shape)], {"axis": -1}) for shape in ((3, 0), (1,), (9,), (16, 5), (33, 4), (2, 3, 1))]
    assert_kernels(*graph_of_calls(calls))


# ---- elements from other places -------------------------------------------------------------------------------------


def test_borders_repeat_elements_or_cut_them_off():
    calls = []
    for mode, dtype in (("constant", "float32"), ("edge", "bool"), ("reflect", "float16"), ("wrap", "int8")):
        x = (drawn(4, 5) * 3).astype(dtype)
        for pads in (
            (1, 2, 3, 0),
            (-1, 2, 0, -2),
            (0, -2, 0, -3),
            (2, -5, 1, 0) if mode == "constant" else (3, 0, 3, 4),
        ):
            calls.append(("pad", [x], {"pads": pads, "mode": mode, "value": 1.0}))
    calls.append(("enlarge", [drawn(2, 3, 1, 3)], {"kernel": (5, 7)}))
    assert_kernels(*graph_of_calls(calls))


@pytest.mark.parametrize("coordinates", ["half_pixel", "align_corners"])
def test_axes_are_resized_in_every_way(coordinates):
    calls, halves = [], []
    for sizes in ((9, 5), (1, 13), (6, 8)):
        shared = {"axes": (2, 3), "sizes": sizes, "coordinates": coordinates}
        for dtype in ("float32", "float16"):
            x, into = drawn(1, 2, 6, 8, dtype=dtype), halves if dtype == "float16" else calls
            into.append(("resize_nearest", [x], {**shared, "rounding": "ceil"}))
            into.append(("resize", [x], {**shared, "mode": "linear"}))
            into.append(("resize", [x], {**shared, "mode": "cubic", "exclude_outside": True}))
            into.append(("resize", [x], {**shared, "mode": "cubic", "antialias": True}))
    calls.append(("resize", [drawn(5, 4)], {"axes": (0,), "scales": (1.6,), "coordinates": coordinates}))
    calls.append(("resize_nearest", [whole(5, 4)], {"axes": (1, 0), "scales": (2.5, 0.5), "coordinates": coordinates}))
    assert_kernels(*graph_of_calls(calls))
    assert_kernels(*graph_of_calls(halves), HALF)  # which the reference rounds after each sum


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_what_lies_beyond_a_cropped_region_is_a_number(mode):
    region = (-0.25, 0.25, 0.75, 1.5)
    shared = {"axes": (0, 1), "sizes": (7, 5), "region": region, "mode": mode, "extrapolation": 2.5}
    for dtype, slack in (("float32", 1e-5), ("float16", HALF)):
        assert_kernels(*graph_of_calls([("crop_resize", [drawn(6, 4, dtype=dtype)], shared)]), slack)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_places_of_a_grid_may_lie_anywhere(mode):
    calls = []
    for padding, corners in (("zeros", False), ("border", True), ("reflection", True), ("reflection", False)):
        dtype = "float64" if padding == "zeros" else "float32"
        grid = RNG.uniform(-3, 3, (2, 6, 7, 2)).astype(dtype)
        grid[0, 0, :4, 0] = np.nan, np.inf, -np.inf, 5
        x = drawn(2, 3, 5, 4, dtype=dtype)
        calls.append(("grid_sample", [x, grid], {"mode": mode, "padding": padding, "align_corners": corners}))
    volume = drawn(1, 2, 3, 4, 5), RNG.uniform(-1, 1, (1, 2, 2, 2, 3)).astype(np.float32)
    calls += [("grid_sample", volume, {"mode": mode})] if mode != "cubic" else []
    assert_kernels(*graph_of_calls(calls))


# ---- windows and rows -----------------------------------------------------------------------------------------------


def test_transposed_convolutions_in_groups_and_beyond_their_borders():
    calls = [
        ("conv_transpose", [drawn(2, 6, 5, 4), drawn(6, 3, 3, 2), drawn(6)], {"group": 2, "strides": (2, 3)}),
        ("conv_transpose", [drawn(1, 4, 5), drawn(4, 3, 4)], {"strides": (3,), "output_padding": (2,), "pads": (1, 0)}),
        ("conv_transpose", [drawn(1, 4, 5, 5), drawn(4, 2, 3, 3)], {"dilations": (2, 1), "pads": (1, 2, 1, 0)}),
        (
            "conv_transpose",
            [drawn(1, 4, 5, 5, dtype=np.float16), drawn(4, 2, 2, 2, dtype=np.float16)],
            {"strides": (2, 2)},
        ),
        ("conv_transpose", [drawn(1, 2, 2, 3, 2), drawn(2, 2, 2, 2, 2)], {"strides": (1, 2, 1)}),
    ]
    assert_kernels(*graph_of_calls(calls))
    assert_kernels(*graph_of_calls(calls, constant=(1, 2)))


def test_extremes_of_integers_and_truth_values():
    planes = {"kernel": (2, 3), "pads": (1, 1, 0, 1), "strides": (1, 2)}
    calls = [("max_pool", [whole(1, 2, 5, 6, dtype=d)], planes) for d in ("int8", "uint8", "int32")]
    truths = RNG.random((4, 5)) < 0.3
    calls += [(op, [truths], {"axes": (1,)}) for op in ("reduce_max", "reduce_min")]
    calls += [("lp_pool", [drawn(1, 2, 5, 6)], {**planes, "p": p}) for p in (1, 2, 3)]
    x = drawn(3, 5)
    x[1, 2] = np.nan
    calls += [("hardmax", [x], {"axis": axis}) for axis in (0, 1)] + [("hardmax", [whole(3, 4)], {})]
    assert_kernels(*graph_of_calls(calls))


@pytest.mark.parametrize(("dtype", "slack"), [("float32", 1e-5), ("float16", HALF)])
def test_channels_are_normalised_in_groups(dtype, slack):
    operands = drawn(2, 6, 5, 3, dtype=dtype), drawn(6, dtype=dtype), drawn(6, dtype=dtype)
    calls = [("group_norm", operands, {"groups": groups}) for groups in (1, 2, 6)]
    assert_kernels(*graph_of_calls(calls), slack)


# ---- recurrent layers -----------------------------------------------------------------------------------------------


def layer(op, gates, states, *, layout, direction, lens, bias=True, size=5, **attrs):
    steps, batch, width, ways = 4, 3, 6, 2 if direction == "bidirectional" else 1
    x = drawn(batch, steps, width) if layout else drawn(steps, batch, width)
    first = (batch, ways, size) if layout else (ways, batch, size)
    operands = [x, drawn(ways, gates * size, width), drawn(ways, gates * size, size)]
    operands.append(drawn(ways, 2 * gates * size) if bias else None)
    operands.append(np.array([4, 0, 2], np.int32) if lens else None)
    operands += [drawn(*first) if bias else None for _ in range(states)]
    return op, operands, {"layout": layout, "direction": direction, **attrs}


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_recurrent_layers_of_either_layout_with_sequences_of_their_own_lengths(direction):
    calls = []
    for layout, lens in ((0, True), (1, False)) if direction == "forward" else ((1, True),):
        shared = {"layout": layout, "direction": direction, "lens": lens}
        calls.append(layer("lstm", 4, 2, **shared))
        calls.append(layer("lstm", 4, 0, **shared, bias=False, input_forget=True, clip=0.4))
        calls += [layer("gru", 3, 1, **shared, linear_before_reset=linear) for linear in (False, True)]
        calls.append(layer("rnn", 1, 1, **shared))
    constant = (1, 2, 3) if direction == "bidirectional" else ()
    assert_kernels(*graph_of_calls(calls, constant))


def test_recurrent_layers_with_peepholes_and_activations_of_their_own():
    op, operands, attrs = layer("lstm", 4, 2, layout=0, direction="forward", lens=True)
    calls = [(op, [*operands, drawn(1, 15)], attrs)]
    numbers = {"alphas": (0.3, 0.2, 0.1), "betas": (0.4, 0.5, 0.6)}
    for names in (("HardSigmoid", "ScaledTanh", "Affine"), ("Elu", "LeakyRelu", "ThresholdedRelu")):
        calls.append((op, operands, {**attrs, "activations": names, **numbers}))
    calls.append((op, operands, {**attrs, "activations": ("Softsign", "Softplus", "Relu")}))
    wide = layer("gru", 3, 1, layout=0, direction="reverse", lens=False, size=70)
    assert_kernels(*graph_of_calls([*calls, wide]))


@pytest.mark.parametrize("seed", range(2))
def test_attention_to_a_cache(seed):
    assert_kernels(*graph_of("grouped_attention", 12, seed))


# ---- quantised numbers ----------------------------------------------------------------------------------------------


def scale(*shape):
    return RNG.uniform(0.001, 0.02, shape).astype(np.float32)


@pytest.mark.parametrize("constant", [(), (1, 3, 4, 5)])
def test_products_of_quantised_numbers_are_exact_however_long(constant):
    calls = []
    for left, right in (("int8", "uint8"), ("uint8", "int8")):
        for depth in (7, 700):
            a, b = whole(3, depth, dtype=left), whole(depth, 5, dtype=right)
            a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).min  # as far from 0 as they can be
            zeros = np.array(np.iinfo(left).min, left), np.array(np.iinfo(right).max, right)
            calls.append(("matmul_integer", [a, b, *zeros], {}))
        a, b = whole(2, 3, 7, dtype=left), whole(7, 5, dtype=right)
        calls.append(("matmul_integer", [a, b, whole(3, dtype=left), whole(5, dtype=right)], {}))
        calls.append(("matmul_integer", [a[0, 0], whole(2, 7, 3, dtype=right)], {}))
        calls.append(("matmul_integer", [whole(4, 2, 3, 7, dtype=left), b[:, 0]], {}))
        zero_a, zero_b, zero = (whole(dtype=d) for d in (left, right, "uint8"))
        calls.append(("qlinear_matmul", [a, scale(), zero_a, b, scale(5), whole(5, dtype=right), scale(), zero], {}))
        calls.append(("qlinear_matmul", [a, scale(3), whole(3, dtype=left), b, scale(), zero_b, scale(), zero], {}))
        calls.append(("qlinear_matmul", [a[0, 0], scale(), zero_a, b, scale(1), zero_b, scale(1), zero], {}))
    calls.append(("matmul_integer", [whole(3, 9, dtype="int16"), whole(9, 4, dtype="int16")], {}))
    assert_kernels(*graph_of_calls(calls, constant))


@pytest.mark.parametrize("constant", [(), (1, 3, 4, 5, 8)])
def test_convolutions_of_quantised_numbers(constant):
    calls = []
    attrs = {"pads": (1, 0, 1, 2), "strides": (2, 1), "group": 2}
    for left, right in (("int8", "uint8"), ("uint8", "int8")):
        x, w = whole(2, 4, 6, 7, dtype=left), whole(6, 2, 3, 2, dtype=right)
        zero = whole(dtype=left)
        calls.append(("conv_integer", [x, w], attrs))
        calls.append(("conv_integer", [x, w, zero, whole(6, dtype=right)], {**attrs, "dilations": (1, 2)}))
        bias = whole(6, dtype="int32")
        more = [w, scale(6), whole(6, dtype=right), scale(), whole(dtype="int8")]
        calls.append(("qlinear_conv", [x, scale(), zero, *more, bias], attrs))
        calls.append(("qlinear_conv", [x[:, :, :, 0], scale(), zero, w[..., 0], *more[1:]], {"group": 2}))
    calls.append(("conv_integer", [whole(1, 64, 5, 5, dtype="uint8"), whole(3, 64, 3, 3, dtype="int8")], {}))
    assert_kernels(*graph_of_calls(calls, constant))


def test_a_tensor_is_quantised_by_what_it_holds():
    calls = [("dynamic_quantize_linear", [x], {}) for x in (drawn(3, 50), drawn(4) + 9, np.zeros((2, 2), np.float32))]
    calls.append(("dynamic_quantize_linear", [-np.abs(drawn(7))], {}))
    assert_kernels(*graph_of_calls(calls))


# ---- what a kernel cannot do ----------------------------------------------------------------------------------------


def test_indices_beyond_their_axis_are_those_of_its_ends():
    """As those of gather: a kernel never writes beyond memory."""
    graph, inputs = graph_of_calls([("scatter_nd", [drawn(4, 2), np.array([[9], [-9]]), drawn(2, 2)], {})])
    _, made = computed(graph, inputs)
    np.testing.assert_array_equal(made["y0_0"][[3, 0]], inputs["x0_2"])


@pytest.mark.parametrize("name", ["lstm", "topk", "scatter_elements", "conv_transpose", "grouped_attention"])
def test_threads_share_what_is_inside_of_steps(name):
    graph, inputs = graph_of(name, 3, "threads")
    for library in (False, True):
        choice = KernelChoice("direct", MappingOptions(threads=3, library=library, rows=2))
        _, made = computed(graph, inputs, lambda kernel, choice=choice: choice)
        assert_same(graph, made, inputs)


# ---- limits ---------------------------------------------------------------------------------------------------------


def test_places_in_an_axis_without_elements_are_the_error_of_the_reference():
    """A kernel would write before the buffer."""
    for name, operands in (
        ("scatter_nd", [np.zeros((0, 4), np.float32), np.zeros((1, 1), np.int64), drawn(1, 4)]),
        ("scatter_elements", [np.zeros(0, np.float32), np.zeros(1, np.int64), drawn(1)]),
    ):
        graph, inputs = graph_of_calls([(name, operands, {})])
        with pytest.raises(IndexError):
            computed(graph, inputs)


def test_sums_of_quantised_products_that_need_more_than_32_bits_do_not_wrap():
    scales = np.float32(1), np.float32(1), np.float32(2**20)
    least = np.full((1, 2), -32768, np.int16)
    zero = np.array(0, np.int16)
    calls = [("qlinear_matmul", [least, scales[0], zero, least.T, scales[1], zero, scales[2], zero], {})]
    full, long = np.full((1, 40_000), 255, np.uint8), np.array(0, np.uint8)
    by = np.float32(1e-5), np.float32(1), np.float32(1000)
    calls.append(("qlinear_matmul", [full, by[0], long, full.T, by[1], long, by[2], long], {}))
    graph, inputs = graph_of_calls(calls)
    _, made = computed(graph, inputs)
    assert_same(graph, made, inputs)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16"])
def test_short_integers_wrap_around_after_a_choice_between_two(dtype):
    """Of two short integers C chooses an int, which does not wrap where they do."""
    limits = np.iinfo(dtype)
    x = np.array([limits.min, limits.max, limits.max // 2 + 1, 3, 1], dtype).repeat(9)
    graph = eqsat.Graph("wrapped")
    a = graph.input("a", x.shape, dtype)
    low = graph.constant(np.array(3, dtype))
    for number, chosen in enumerate((eqsat.maximum(a, low), eqsat.minimum(a, low), eqsat.where(a < low, a, low))):
        for name, made in (("sum", chosen + a), ("product", chosen * a), ("difference", chosen - a)):
            graph.output(f"{name}_{number}", eqsat.cast(made, to="int32"))
            graph.output(f"{name}_compared_{number}", made > a)
    built = graph.build()
    expected, made = execute(built, {"a": x}, "numpy"), execute(built, {"a": x}, "c")
    for name, value in expected.items():
        np.testing.assert_array_equal(made[name], value, err_msg=name)


def test_a_scalar_has_no_borders():
    assert_kernels(*graph_of_calls([("pad", [np.float32(2)], {"pads": ()})]))
