"""An operator declared in this file alone is found wherever operators are: nothing else names it."""

import inspect

import numpy as np
import pytest
from onnx import TensorProto, defs, helper
from onnx.reference import ReferenceEvaluator

import eqsat
from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.applications import applications, keys_of
from eqsat.costs.kernels.fusion import fuses
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import policy
from eqsat.costs.model.model import CostModel
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.documentation import call_signature, documentation
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.ops import OPS, op
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.derive import derived_laws
from eqsat.runtime.cuda.program.lowering import program_of
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import Fallback
from eqsat.testing.cuda.host import HostMachine

SHAPE = (4, 6)
OPSET = 28
pytestmark = pytest.mark.skipif(not defs.has("SwiGLU"), reason="this version of onnx has no SwiGLU")


@pytest.fixture(autouse=True)
def swiglu():
    @op("swiglu", pointwise=True, onnx="SwiGLU", sensitive=True)
    def swiglu(xp, gate, x, *, alpha=1.0):
        """A value times how far its gate is open."""
        opened = xp.apply("sigmoid", xp.multiply(xp.number(alpha, gate), gate))
        return xp.multiply(xp.multiply(gate, opened), x)

    return swiglu


def graph(alpha=0.5):
    g = eqsat.Graph("gated")
    gate, x = g.input("gate", SHAPE), g.input("x", SHAPE)
    g.output("y", g.apply("swiglu", eqsat.neg(gate), x, alpha=alpha))
    return g.build()


@pytest.fixture
def elements():
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=SHAPE).astype(np.float32) for name in ("gate", "x")}


def test_it_is_written_to_onnx_and_means_the_same_there(elements):
    model = to_model(graph(), OPSET)
    (node,) = (n for n in model.graph.node if n.op_type == "SwiGLU")
    assert helper.get_node_attr_value(node, "alpha") == 0.5
    assert "swiglu" not in lacking()
    (made,) = ReferenceEvaluator(model).run(None, elements)
    np.testing.assert_allclose(made, run(graph(), elements, Floats())["y"], rtol=1e-5)


@pytest.mark.parametrize(("stated", "alpha"), [({}, 1.0), ({"alpha": 0.25}, 0.25)])
def test_it_is_read_from_onnx(stated, alpha):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in ("a", "b", "y")]
    node = helper.make_node("SwiGLU", ["a", "b"], ["y"], **stated)
    given = helper.make_model(
        helper.make_graph([node], "one", values[:2], values[2:]), opset_imports=[helper.make_opsetid("", OPSET)]
    )
    (read,) = load(given).nodes
    assert (read.op, read.attrs["alpha"]) == ("swiglu", alpha)


def test_laws_derive_from_it_and_are_proved():
    laws = {law.name: law for law in derived_laws([OPS["swiglu"]])}
    assert laws.keys() >= {"swiglu-of-slices", "swiglu-of-reshapes", "concat-of-swiglu", "swiglu-over-concats"}
    assert check(laws["swiglu-of-slices"], Effort(numeric=24, symbolic=6)).verdict == "proved"


def test_it_has_costs_and_a_precision():
    node, operands, results, const = next(a for a in applications(graph()) if a[0].op == "swiglu")
    (key,) = (k for k in keys_of(graph()) if k.op == "swiglu")
    assert OpKey.parse(key.text) == key
    cost = CostModel(Device.of("onnxruntime-cpu")).node(node.op, node.attrs, operands, results, const)
    assert cost.seconds > 0
    assert fuses("matmul", "swiglu"), "it is element by element"
    assert not policy("mixed").allows("swiglu", "float16"), "it is sensitive"


def test_a_gpu_runs_it_in_a_generated_kernel(elements):
    program = program_of(graph())
    assert not any(isinstance(launch.work, Fallback) for launch in program.launches)
    made = HostMachine(program, arrange(program)).run(elements)
    np.testing.assert_allclose(made["y"], run(graph(), elements, Floats())["y"], rtol=1e-5)


def test_help_and_the_reference_describe_it():
    text = documentation(OPS["swiglu"])
    assert text.startswith("A value times how far its gate is open.")
    assert "Source: ONNX SwiGLU." in text and "`alpha` (1.0 where left out)" in text
    assert str(call_signature(OPS["swiglu"])).startswith("(gate: 'TensorLike', x: 'TensorLike', /, *, alpha=1.0)")
    assert inspect.getdoc(OPS["swiglu"].reference) in text
