"""The device `numpy-cpu`: choices by what NumPy takes, run there, and operators that are measured there."""

import numpy as np

import eqsat
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import measure
from eqsat.costs.table.environment import Environment
from eqsat.language.ops import spec
from eqsat.language.terms import TensorType
from eqsat.runtime.backend import select


def products_joined():
    """Two products of one operand, whose sum one product makes."""
    rng = np.random.default_rng(0)
    g = eqsat.Graph("joined")
    x = g.input("x", (64, 64))
    one, other = (g.constant(rng.standard_normal((64, 64)).astype(np.float32)) for _ in range(2))
    g.output("y", eqsat.relu(x @ one + x @ other))
    return g.build()


def test_a_result_for_numpy_is_chosen_by_its_figures_and_runs_there():
    graph = products_joined()
    result = eqsat.optimize(graph, device="numpy-cpu", measure=False)
    assert result.backend == "numpy" and result.report.kept != "original"
    assert len(result.graph.nodes) < len(graph.nodes)
    x = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)
    wanted = select("numpy").compile(graph).run({"x": x})["y"]
    np.testing.assert_allclose(result(x=x)["y"], wanted, rtol=1e-4, atol=1e-4)


def test_operators_are_measured_in_an_environment_that_names_numpy():
    operand = TensorType.of("float32", (256, 256))
    key = OpKey.of("softmax", spec("softmax").complete({"axis": 1}), [operand], [False], {})
    assert 1e-5 < measure(key, device="numpy-cpu", seconds=0.05).seconds < 0.1
    assert Environment.current("numpy-cpu").runtime == f"numpy {np.__version__}"
