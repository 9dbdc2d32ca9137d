"""Random graphs as programs of C, against their references."""

import numpy as np
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from eqsat.errors import BackendError
from eqsat.runtime.c.mixing.regions import RegionMaker, mixed_program
from eqsat.runtime.c.program.kernels import CKernel, KernelChoice, default_choice
from eqsat.runtime.c.program.lowering import c_lowering
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.c.program.tuning import candidates
from eqsat.testing import feeds, graphs
from tests.property.runtime.cuda.test_cuda_programs import ALL, compare
from tests.support.c_programs import computed

COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate], derandomize=True
)


#: Operators of which ONNX Runtime computes something else for some numbers: lengths of sequences, a variance of 0,
#: which it finds to be less, and a logistic function of large negative ones, which it rounds by its largest value.
OWN_WAYS = {"gru", "lstm", "rnn", "mvn", "sigmoid", "silu"}


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


@settings(COMMON, max_examples=60)
@given(st.data(), st.sampled_from(["float32", "float64"]))
def test_a_graph_with_any_regions_of_sessions_computes_what_its_references_do(data, dtype):
    graph = data.draw(graphs(sorted(set(ALL) - OWN_WAYS), min_nodes=2, max_nodes=8, dtypes=(dtype,)))
    inputs = data.draw(feeds(graph))
    lowering = c_lowering(graph)
    maker = RegionMaker(lowering, lowering.program())
    places = range(len(maker.program.launches) + 1)
    windows = [(first, end) for first in places for end in places if first < end and maker.region(first, end)]
    regions: list[tuple[int, int]] = []
    for window in sorted(data.draw(st.lists(st.sampled_from(windows), min_size=1, max_size=4))) if windows else []:
        if not regions or regions[-1][1] <= window[0]:
            regions.append(window)
    program = mixed_program(maker, regions)
    with np.errstate(all="ignore"):
        try:
            machine = CMachine(program, program.memory(), default_choice, 1)
            for name, array in inputs.items():
                machine.put(name, array)
            machine.launch()
        except BackendError as error:
            assert "ONNX Runtime" in error.what or "a session cannot" in error.what
            event("refused by ONNX Runtime")
            return
    made = {name: machine.get(name) for name in machine.outputs}
    event(f"{len(regions)} regions")
    compare(graph, made, inputs, {"float32": 1e-5, "float64": 1e-9}[dtype])  # ONNX holds an epsilon in float32
