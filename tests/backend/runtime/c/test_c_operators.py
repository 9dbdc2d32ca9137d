"""Every operator as a program of C: what it computes, against its reference, and which have a kernel."""

import pytest

from eqsat.language.ops import OPS
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.programs.launches import Fallback
from tests.support.c_programs import assert_same, computed, graph_of

NAMES = sorted(name for name, one in OPS.items() if one.sample is not None and not one.random and one.is_shipped)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_computes_what_its_reference_does(name):
    graph, inputs = graph_of(name, 4)
    _, made = computed(graph, inputs)
    assert_same(graph, made, inputs)


#: Operators that no kernel computes, at least for some types, attributes or shapes; they run by their references.
WITHOUT_KERNEL = frozenset({
    "conv_integer", "conv_transpose", "crop_resize", "cumsum", "dynamic_quantize_linear", "enlarge", "grid_sample",
    "group_norm", "grouped_attention", "gru", "hardmax", "lp_pool", "lstm", "matmul_integer", "pad", "qlinear_conv",
    "qlinear_matmul", "resize", "resize_nearest", "rnn", "scatter_elements", "scatter_nd", "topk",
})  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_only_what_is_listed_has_no_kernel(name):
    graph, _ = graph_of(name, 4)
    fallen = [launch for launch in c_program(graph).launches if isinstance(launch.work, Fallback)]
    assert bool(fallen) == (name in WITHOUT_KERNEL)
