"""Any program as a GPU's streams and graphs run it makes the bits that it makes launch by launch on the processor."""

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eqsat.runtime.cuda.device.machine import GpuMachine
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.cuda.program.streams import dependencies, width
from eqsat.runtime.programs.arena import arrange
from eqsat.testing import feeds, graphs
from eqsat.testing.cuda.host import HostMachine
from tests.support.cuda_standin import StandIn, Toolkit

OPS = ["matmul", "add", "relu", "transpose", "concat", "split", "softmax", "topk", "conv"]


@given(graphs(ops=OPS, min_nodes=2, max_nodes=7), st.data(), st.integers(0, 99))
@settings(max_examples=25, suppress_health_check=list(HealthCheck), derandomize=True)
def test_streams_and_graphs_change_no_bit(graph, data, seed):
    program = program_of(graph)
    arrangement = arrange(program)
    cuda = StandIn(seed=seed)
    toolkit = Toolkit(cuda)
    gpu, host = GpuMachine(program, arrangement, toolkit), HostMachine(program, arrangement)
    if width(dependencies(program, arrangement)) > 1:
        assert len(gpu.streams) > 1
    for _ in range(2):
        inputs = data.draw(feeds(graph))
        wanted = host.run(inputs)
        for name, array in inputs.items():
            gpu.put(name, array)
        gpu.launch()
        for name, array in wanted.items():
            np.testing.assert_array_equal(gpu.get(name), array)
    gpu.close()
    assert cuda.taken == 0 and not any(library.open for library in toolkit.libraries.values())
