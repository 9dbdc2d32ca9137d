"""LSTM, GRU and RNN over their attributes: read, computed and written as ONNX Runtime has them."""

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import eqsat
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.read.importer import load
from eqsat.language.onnx.write.exporter import to_model
from eqsat.language.terms.graph import OPAQUE

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ORDER = ("x", "w", "r", "b", "lens", "h", "c", "p")
STEPS, BATCH, WIDTH, HIDDEN = 5, 3, 4, 2


def shapes(op_type, directions):
    gates = GATES[op_type]
    state = (directions, BATCH, HIDDEN)
    return {
        "x": (STEPS, BATCH, WIDTH),
        "w": (directions, gates * HIDDEN, WIDTH),
        "r": (directions, gates * HIDDEN, HIDDEN),
        "b": (directions, 2 * gates * HIDDEN),
        "h": state,
        "c": state,
        "p": (directions, 3 * HIDDEN),
    }


def model(op_type, given="", *, opset=17, outputs="y h c", dims=(STEPS, BATCH, WIDTH), constant=True, **attrs):
    """A layer with the optional operands named; weights are constants, the rest are inputs. And what to feed it."""
    rng = np.random.default_rng(len(op_type) + len(given))
    directions = 2 if attrs.get("direction") == "bidirectional" else 1
    known = shapes(op_type, directions)
    feed = {k: rng.standard_normal(known[k]).astype(np.float32) for k in ("x", "w", "r", *given.split()) if k != "lens"}
    if "lens" in given.split():
        feed["lens"] = np.int32([2, STEPS, 0])
    names = [k if k in feed else "" for k in ORDER[: 8 if op_type == "LSTM" else 6]]
    while not names[-1]:
        names.pop()
    wanted = {"y": "y", "h": "y_h", "c": "y_c"}
    made = [wanted[k] if k in outputs.split() else "" for k in ("y", "h", "c")[: 3 if op_type == "LSTM" else 2]]
    weights = {k: feed.pop(k) for k in ("w", "r", "b", "p") if k in feed and constant}
    info = helper.make_tensor_value_info
    kinds = {k: helper.np_dtype_to_tensor_dtype(v.dtype) for k, v in feed.items()}
    graph = helper.make_graph(
        [helper.make_node(op_type, names, made, hidden_size=HIDDEN, **attrs)],
        "layer",
        [info(k, kinds[k], dims if k == "x" else v.shape) for k, v in feed.items()],
        [info(o, 1, None) for o in made if o],
        [numpy_helper.from_array(v, k) for k, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), feed


def session(proto):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])


def compare(op_type, *given, **attrs):
    proto, feed = model(op_type, *given, **attrs)
    wanted = session(proto).run(None, feed)
    graph = load(proto)
    assert [n.op for n in graph.nodes] == [op_type.lower()]
    made = run(graph, feed, Floats())
    for name, want in zip(made, wanted, strict=True):
        assert made[name].shape == want.shape and made[name].dtype == want.dtype
        np.testing.assert_allclose(made[name], want, rtol=1e-4, atol=1e-5)
    for again, want in zip(session(to_model(graph)).run(None, feed), wanted, strict=True):
        np.testing.assert_array_equal(again, want)


OPERANDS = ("", "b", "h", "b h", "lens", "b lens h")


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize("given", OPERANDS)
@pytest.mark.parametrize("op_type", GATES)
def test_operands_and_directions(op_type, given, direction):
    compare(op_type, given, direction=direction)


@pytest.mark.parametrize("given", ["c", "h c", "b h c p", "b lens h c p"])
@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_cell_states_and_peepholes(direction, given):
    compare("LSTM", given, direction=direction)


@pytest.mark.parametrize("op_type", GATES)
def test_clipped_gates(op_type):
    compare(op_type, "b h", clip=0.3)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("given", ["", "b", "b lens h"])
def test_reset_gate_on_either_side_of_the_product(given, before):
    compare("GRU", given, linear_before_reset=before)


ACTIVATIONS = {
    "plain": {"activations": ["Relu", "Sigmoid", "Tanh"]},
    "softsign": {"activations": ["Sigmoid", "Softsign", "Softplus"]},
    "any case": {"activations": ["sigmoid", "TANH", "relu"]},
    "with defaults": {"activations": ["HardSigmoid", "LeakyRelu", "Elu"]},
    "with parameters": {
        "activations": ["HardSigmoid", "Affine", "ScaledTanh"],
        "activation_alpha": [0.3, 0.7, 1.2],
        "activation_beta": [0.4, 0.1, 0.8],
    },
    "some with parameters": {
        "activations": ["Sigmoid", "LeakyRelu", "ThresholdedRelu"],
        "activation_alpha": [0.2, 0.1],
    },
}


#: ONNX Runtime reads the names that RNN has as they are spelt.
CASES = [(op_type, case) for op_type in GATES for case in ACTIVATIONS if (op_type, case) != ("RNN", "any case")]


@pytest.mark.parametrize("op_type, case", CASES)
def test_activations(op_type, case):
    count = {"LSTM": 3, "GRU": 2, "RNN": 1}[op_type]
    attrs = {k: v[:count] for k, v in ACTIVATIONS[case].items()}
    if case == "some with parameters":
        attrs["activation_alpha"] = attrs["activation_alpha"][: count - 1]
    compare(op_type, "b", **{k: v for k, v in attrs.items() if v})


def test_activations_of_both_directions():
    names = ["Sigmoid", "Tanh", "LeakyRelu", "HardSigmoid", "Relu", "Tanh"]
    compare(
        "LSTM", "b", direction="bidirectional", activations=names, activation_alpha=[0.1, 0.3], activation_beta=[0.4]
    )


@pytest.mark.parametrize("outputs", ["y", "h", "y h"])
@pytest.mark.parametrize("op_type", GATES)
def test_outputs_that_nobody_asks_for(op_type, outputs):
    compare(op_type, "b", outputs=outputs)


@pytest.mark.parametrize("opset", [7, 14, 22])
@pytest.mark.parametrize("op_type", GATES)
def test_every_opset(op_type, opset):
    compare(op_type, "b h", opset=opset, constant=False)


@pytest.mark.parametrize("op_type", GATES)
def test_a_free_length(op_type):
    proto, feed = model(op_type, "b", dims=["steps", BATCH, WIDTH], direction="bidirectional")
    graph = load(proto)
    assert str(graph.type(graph.outputs["y"])) == f"float32[steps, 2, {BATCH}, {HIDDEN}]"
    for steps in (1, 4):
        feed["x"] = np.random.default_rng(steps).standard_normal((steps, BATCH, WIDTH)).astype(np.float32)
        for made, want in zip(run(graph, feed, Floats()).values(), session(proto).run(None, feed), strict=True):
            np.testing.assert_allclose(made, want, rtol=1e-4, atol=1e-5)


def test_batches_first():
    """ONNX Runtime's CPU provider lacks them: they are those of batches second, turned."""
    proto, feed = model("LSTM", "b h c", direction="bidirectional")
    first, _ = model("LSTM", "b h c", direction="bidirectional", layout=1, dims=(BATCH, STEPS, WIDTH))
    turned = {k: np.swapaxes(v, 0, 1) for k, v in feed.items()}
    for value in first.graph.input:
        del value.type.tensor_type.shape.dim[:]
        value.CopyFrom(helper.make_tensor_value_info(value.name, 1, turned[value.name].shape))
    made = run(load(first), turned, Floats())
    wanted = run(load(proto), feed, Floats())
    np.testing.assert_allclose(made["y"], wanted["y"].transpose(2, 0, 1, 3), rtol=1e-6)
    for name in ("y_h", "y_c"):
        np.testing.assert_allclose(made[name], np.swapaxes(wanted[name], 0, 1), rtol=1e-6)
    (node,) = to_model(load(first)).graph.node
    assert {a.name: a.i for a in node.attribute if a.name == "layout"} == {"layout": 1}


REASONS = {
    "activations Sin": {"activations": ["Sin"]},
    "Affine without its beta": {"activations": ["Affine"], "activation_alpha": [0.5]},
}


@pytest.mark.parametrize("reason", REASONS)
def test_what_stays_opaque_has_a_reason(reason):
    (node,) = load(model("RNN", **REASONS[reason])[0]).nodes
    assert node.op == OPAQUE and node.attrs["reason"] == reason


def test_a_network_around_a_layer_is_optimised_with_it():
    proto, feed = model("LSTM", "b", outputs="y h")
    proto.graph.node.append(helper.make_node("Relu", ["y"], ["z"]))
    proto.graph.output.append(helper.make_tensor_value_info("z", 1, None))
    result = eqsat.optimize(proto, measure=False)
    assert "lstm" in [n.op for n in result.graph.nodes]
    wanted = session(proto).run(None, feed)
    for made, want in zip(session(to_model(result.graph)).run(None, feed), wanted, strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
