"""Operators that no template knows, as kernels of their statements: what they compute, on the processor."""

import re
import sys
from dataclasses import replace

import numpy as np
import pytest

from eqsat.errors import BackendError
from eqsat.runtime.cuda.compiler.nvrtc import compile_cubin
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels
from eqsat.runtime.cuda.program.functions import LOWERED
from eqsat.runtime.cuda.program.lowering import mappings_of, program_of
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.groups.lowering import lowered_group
from eqsat.runtime.kernels.nests.rounds import with_free_rounds
from eqsat.runtime.kernels.polyhedral.legality import check_mapping
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.arena import arrange
from eqsat.testing.cuda.host import HostMachine
from tests.support.c_programs import assert_same, graph_of, graph_of_calls
from tests.support.cuda_groups import WITHOUT_KERNEL, WITHOUT_TEMPLATE

RNG = np.random.default_rng(5)
HALF = 2e-3
PARALLEL = sorted(LOWERED - WITHOUT_KERNEL)


def drawn(*shape, dtype=np.float32):
    return RNG.uniform(-2, 2, shape).astype(dtype)


def whole(*shape, dtype):
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max + 1, shape, dtype)


def scale(*shape):
    return RNG.uniform(0.001, 0.02, shape).astype(np.float32)


def resized():
    calls = []
    for sizes in ((19, 35), (3, 13)):
        shared = {"axes": (2, 3), "sizes": sizes}
        x = drawn(2, 3, 9, 17)
        calls.append(("resize_nearest", [x], {**shared, "rounding": "ceil"}))
        calls.append(("resize", [x], {**shared, "mode": "linear"}))
        calls.append(("resize", [x], {**shared, "mode": "cubic", "exclude_outside": True}))
        calls.append(("resize", [x], {**shared, "mode": "cubic", "antialias": True, "coordinates": "align_corners"}))
        region = (-0.25, 0.25, 0.75, 1.5)
        cropped = {**shared, "region": region, "extrapolation": 2.5}
        calls += [("crop_resize", [x], {**cropped, "mode": mode}) for mode in ("nearest", "linear", "cubic")]
    return calls


def sampled():
    calls = []
    for mode in ("nearest", "linear", "cubic"):
        for padding, corners in (("zeros", False), ("border", True), ("reflection", False)):
            grid = RNG.uniform(-3, 3, (2, 6, 17, 2)).astype(np.float32)
            grid[0, 0, :4, 0] = np.nan, np.inf, -np.inf, 5
            attrs = {"mode": mode, "padding": padding, "align_corners": corners}
            calls.append(("grid_sample", [drawn(2, 3, 5, 14), grid], attrs))
    return calls


def quantised():
    calls = []
    attrs = {"pads": (1, 0, 1, 2), "strides": (2, 1), "group": 2}
    for left, right in (("int8", "uint8"), ("uint8", "int8")):
        a, b = whole(37, 700, dtype=left), whole(700, 41, dtype=right)
        a[0], b[:, 0] = np.iinfo(left).max, np.iinfo(right).min  # as far from 0 as they can be
        zeros = np.array(np.iinfo(left).min, left), np.array(np.iinfo(right).max, right)
        calls.append(("matmul_integer", [a, b, *zeros], {}))
        zero, result = whole(dtype=left), whole(dtype="uint8")
        calls.append(("qlinear_matmul", [a, scale(), zero, b, scale(41), whole(41, dtype=right), scale(), result], {}))
        x, w = whole(2, 4, 13, 19, dtype=left), whole(6, 2, 3, 2, dtype=right)
        calls.append(("conv_integer", [x, w], attrs))
        calls.append(("conv_integer", [x, w, zero, whole(6, dtype=right)], {**attrs, "dilations": (1, 2)}))
        more = [w, scale(6), whole(6, dtype=right), scale(), whole(dtype="int8"), whole(6, dtype="int32")]
        calls.append(("qlinear_conv", [x, scale(), zero, *more], attrs))
    calls += [("dynamic_quantize_linear", [x], {}) for x in (drawn(37, 41) + 1, np.zeros((2, 2), np.float32))]
    return calls


def pooled():
    planes = {"kernel": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    return [("lp_pool", [drawn(2, 3, 13, 35)], {**planes, "p": p}) for p in (1, 2, 3)]


CALLS = {"resized": resized, "sampled": sampled, "quantised": quantised, "pooled": pooled}


def ran(graph, inputs, slack=1e-5):
    """Run a graph as kernels; it has no other launches."""
    program = program_of(graph, libraries=())
    assert {launch.kind for launch in program.launches} == {"generated"}
    made = HostMachine(program, arrange(program)).run(inputs)
    assert_same(graph, made, inputs, slack)
    return program


def test_what_has_statements_and_no_template_has_kernels_of_them():
    assert LOWERED == WITHOUT_TEMPLATE


@pytest.mark.parametrize("name", PARALLEL)
def test_random_operators_compute_what_their_references_do(name):
    ran(*graph_of(name, 4))


@pytest.mark.parametrize("kind", CALLS)
@pytest.mark.parametrize("constant", [(), (1, 2, 3, 4, 5)], ids=["given", "constant"])
def test_operators_of_many_blocks_compute_what_their_references_do(kind, constant):
    graph, inputs = graph_of_calls(CALLS[kind](), constant)
    ran(graph, inputs)


def test_halves_are_resized_and_pooled():
    calls = [("resize", [drawn(2, 9, 17, dtype=np.float16)], {"axes": (1, 2), "sizes": (19, 35), "mode": "linear"})]
    calls.append(("lp_pool", [drawn(2, 3, 13, dtype=np.float16)], {"kernel": (3,), "strides": (2,), "p": 2}))
    ran(*graph_of_calls(calls), HALF)


def groups_of(calls):
    """The computation of each call alone, where a loop around statements is an index if it may be."""
    for name, operands, attrs in calls:
        graph, _ = graph_of_calls([(name, operands, attrs)])
        (node,) = graph.nodes
        views = {v: View.of(v, t.dtype, t.static) for v, t in graph.types.items()}
        reads = {v: views[v] for v in node.inputs if v is not None}
        group = Group((node,), dict(graph.types), reads, {v: views[v] for v in node.outputs if v})
        yield lowered_group(group).computation


@pytest.mark.parametrize("kind", CALLS)
def test_the_kernels_are_proved_for_their_statements(kind):
    for computation in groups_of(CALLS[kind]()):
        check_mapping(with_free_rounds(computation), GpuMapping())


@pytest.mark.parametrize("kind", ["pooled", "quantised"])
def test_rounds_that_do_not_depend_on_each_other_become_an_index(kind):
    """Buffers that a round makes anew are there for each round."""
    seen = 0
    for computation in groups_of(CALLS[kind]()):
        made = with_free_rounds(computation)
        assert all(one.around is None for one in made.statements)
        seen += made is not computation
    assert seen >= 3


def test_rounds_that_follow_each_other_stay():
    x, places, updates = drawn(9, 4), RNG.integers(0, 9, (6, 4)), drawn(6, 4)
    states = [drawn(5, 2, 3), drawn(1, 16, 3), drawn(1, 16, 4)]
    calls = [
        ("lstm", states, {}),
        ("cumsum", [x], {"axis": 0}),
        ("topk", [x], {"k": 3, "axis": 0}),
        ("scatter_elements", [x, places, updates], {"axis": 0, "reduction": "add"}),
    ]
    for computation in groups_of(calls):
        made = with_free_rounds(computation)
        assert any(one.around is not None for one in made.statements)
        with pytest.raises(BackendError, match="in the order of a loop"):
            cuda_kernels(made, GpuMapping())


def test_a_value_that_a_round_leaves_for_the_next_one_keeps_the_loop():
    """Of a pooling whose padded plane is not filled in each round, or read after the loop."""
    computation = next(iter(groups_of(pooled())))
    loop = next(one.around for one in computation.statements if one.around is not None)
    inside = [place for place, one in enumerate(computation.statements) if one.around == loop]
    first, *others = inside
    assert with_free_rounds(computation) is not computation
    late = [one for place, one in enumerate(computation.statements) if place != first]
    late.insert(others[-1], computation.statements[first])
    assert with_free_rounds(computation.with_statements(late)).statements == tuple(late)
    filled = replace(computation.statements[first], is_fresh=False, reduction="+")
    kept = [filled if place == first else one for place, one in enumerate(computation.statements)]
    assert with_free_rounds(computation.with_statements(kept)).statements == tuple(kept)
    read = replace(computation.statements[others[-1]], around=None, axes=computation.statements[others[-1]].axes)
    for place in (0, len(computation.statements)):
        more = [*computation.statements]
        more.insert(place, read)
        assert with_free_rounds(computation.with_statements(more)).statements == tuple(more)


def test_mappings_of_an_operator_are_tried():
    graph, _ = graph_of_calls([("matmul_integer", [whole(37, 70, dtype="int8"), whole(70, 41, dtype="uint8")], {})])
    plans = mappings_of(graph)
    assert len(plans) == len(set(plans)) > 4
    texts = {tuple(launch.work.code for launch in program_of(graph, plans=[plan]).launches) for plan in plans}
    assert len(texts) == len(plans)


@pytest.mark.skipif(sys.platform != "linux", reason="eqsat asks for NVRTC, which compiles for GPUs, on Linux alone")
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90"])
def test_kernels_compile_for_gpus_without_spills(architecture):
    """One unit for all of them takes the least time: each is in a namespace of its own, as names repeat."""
    codes = {}
    graphs = [graph_of_calls(make())[0] for make in CALLS.values()] + [graph_of("grouped_attention", 6)[0]]
    for graph in graphs:
        codes |= dict.fromkeys(launch.work.code for launch in program_of(graph, libraries=()).launches)
    unit = "\n".join(f"namespace n{i}_ {{\n{code}\n}}".replace('extern "C"', "") for i, code in enumerate(codes))
    log = compile_cubin(unit, arch=architecture).log
    registers = [int(found) for found in re.findall(r"Used (\d+) registers", log)]
    assert len(registers) == len(codes) and max(registers) <= 128
    assert set(re.findall(r"(\d+) bytes spill stores", log)) == {"0"}
