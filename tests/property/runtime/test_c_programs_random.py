"""Random graphs as programs of C, against their references."""

import numpy as np
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from eqsat.runtime.c.program.kernels import CKernel, KernelChoice, default_choice
from eqsat.runtime.c.program.tuning import candidates
from eqsat.testing import feeds, graphs
from tests.property.runtime.cuda.test_cuda_programs import ALL, compare
from tests.support.c_programs import computed

COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate], derandomize=True
)


def chosen(kernel: CKernel, number: int) -> KernelChoice:
    """One of the candidates of a kernel, by a number."""
    found = candidates(kernel)
    return found[number % len(found)] if number else default_choice(kernel)


@settings(COMMON, max_examples=80)
@given(st.data(), st.sampled_from(["float32", "float16", "float64"]), st.integers(0, 8))
def test_a_graph_of_any_operators_computes_what_its_references_do(data, dtype, number):
    graph = data.draw(graphs(ALL, min_nodes=1, max_nodes=6, dtypes=(dtype,)))
    inputs = data.draw(feeds(graph))
    with np.errstate(all="ignore"):
        _, made = computed(graph, inputs, lambda kernel: chosen(kernel, number))
    compare(graph, made, inputs, {"float16": 4e-3, "float32": 1e-5, "float64": 1e-12}[dtype])
