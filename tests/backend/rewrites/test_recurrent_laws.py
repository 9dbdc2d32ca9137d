"""Laws of recurrent layers at the public surface: one step becomes a cell, constants fold, and the rest stays whole."""

from collections import Counter

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import eqsat

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
#: Large enough for a cell to cost less than the operator.
BATCH, WIDTH, HIDDEN = 1, 128, 128


def layer(op_type, state="", *, steps=1, before=(), outputs="y h c", dims=None, given=(), **attrs):
    """A layer over its weights, behind nodes that make `x` of the input `i`; and what to feed it.

    `state` is "" for none, "zeros" for constants and "given" for inputs; `given` are more operands by name, as inputs.
    """
    rng = np.random.default_rng(3)
    gates, directions = GATES[op_type], 2 if attrs.get("direction") == "bidirectional" else 1
    count = 1 + (op_type == "LSTM")

    def drawn(*shape):
        return (rng.standard_normal(shape) / 8).astype(np.float32)

    held = {
        "w": drawn(directions, gates * HIDDEN, WIDTH),
        "r": drawn(directions, gates * HIDDEN, HIDDEN),
        "b": drawn(directions, 2 * gates * HIDDEN),
        "m": drawn(WIDTH, WIDTH),
        "s": drawn(WIDTH),
    }
    feed = {"i": drawn(steps, BATCH, WIDTH)}
    for name in ("h0", "c0")[:count] if state else ():
        if state == "zeros":
            held[name] = np.zeros((directions, BATCH, HIDDEN), np.float32)
        else:
            feed[name] = drawn(directions, BATCH, HIDDEN)
    feed |= {"n": np.full(BATCH, steps, np.int32)} if "n" in given else {}
    feed |= {"p": drawn(directions, 3 * HIDDEN)} if "p" in given else {}
    names = [
        "x" if before else "i",
        "w",
        "r",
        "b",
        *(k if k in {**feed, **held} else "" for k in ("n", "h0", "c0", "p")),
    ]
    while not names[-1]:
        names.pop()
    wanted = {"y": "y", "h": "yh", "c": "yc"}
    made = [wanted[k] if k in outputs.split() else "" for k in ("y", "h", "c")[: 1 + count]]
    nodes = [*before, helper.make_node(op_type, names, made, hidden_size=HIDDEN, **attrs)]
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "layer",
        [
            info(k, helper.np_dtype_to_tensor_dtype(v.dtype), dims if k == "i" and dims else v.shape)
            for k, v in feed.items()
        ],
        [info(o, 1, None) for o in made if o],
        [numpy_helper.from_array(v, k) for k, v in held.items() if any(k in n.input for n in nodes)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), feed


def outputs_of(proto, feed):
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"]).run(None, feed)


def layers_last(application):
    """A cost by which a layer is never chosen where it has a cell: the times of both are near on some machines."""
    return 1000.0 if application.op in {name.lower() for name in GATES} else 1.0


def optimised(proto, feed, **settings):
    """The result, after what it makes was compared with the original."""
    result = eqsat.optimize(proto, measure=False, strict=True, **settings)
    assert not result.report.refuted and not result.report.failure
    for made, want in zip(outputs_of(result.to_onnx(), feed), outputs_of(proto, feed), strict=True):
        assert made.shape == want.shape
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
    return result, Counter(node.op for node in result.graph.nodes)


ONE_STEP = [
    ("LSTM", "zeros", {}),
    ("LSTM", "", {"direction": "reverse", "activations": ["Sigmoid", "Tanh", "Tanh"]}),
    ("GRU", "", {}),
    ("GRU", "zeros", {"linear_before_reset": 1}),
    ("RNN", "zeros", {}),
]


@pytest.mark.parametrize("op_type, state, attrs", ONE_STEP, ids=[f"{o} {s} {' '.join(a)}" for o, s, a in ONE_STEP])
def test_a_layer_of_one_step_from_zeros_becomes_its_cell(op_type, state, attrs):
    result, ops = optimised(*layer(op_type, state, **attrs), cost=layers_last)
    assert ops[op_type.lower()] == 0 and ops["tanh"] >= 1
    assert any(name.startswith(f"{op_type.lower()}-of-one-step") for name in result.report.rules_fired)
    assert result.report.certificate.kind in ("exact", "float64")
    assert result.explain().gaps == 0


@pytest.mark.parametrize("wanted", ["h", "y c"])
def test_any_of_the_outputs_may_be_read(wanted):
    _, ops = optimised(*layer("LSTM", outputs=wanted), cost=layers_last)
    assert ops["lstm"] == 0


@pytest.mark.parametrize("op_type", GATES)
def test_a_layer_of_many_steps_stays_one_operator(op_type):
    _, ops = optimised(*layer(op_type, "zeros", steps=4))
    assert ops == {op_type.lower(): 1}


KEPT = {
    "both directions": {"direction": "bidirectional"},
    "clipped gates": {"clip": 0.4},
    "other activations": {"activations": ["HardSigmoid", "Tanh", "Tanh"]},
    "lengths of the sequences": {"given": ("n",)},
    "peepholes": {"given": ("p",), "state": "given"},
    "forgetting by the input": {"input_forget": 1},
    "a free number of steps": {"dims": ["steps", BATCH, WIDTH]},
}


@pytest.mark.parametrize("case", KEPT)
def test_what_the_laws_leave_out_stays_one_operator(case):
    _, ops = optimised(*layer("LSTM", **KEPT[case]))
    assert ops["lstm"] == 1 and ops["tanh"] == 0


@pytest.mark.parametrize("state", ["", "given"])
@pytest.mark.parametrize("op_type", GATES)
def test_what_is_before_a_layer_of_many_steps_folds_into_it(op_type, state):
    before = [
        helper.make_node("Mul", ["i", "s"], ["scaled"]),
        helper.make_node("MatMul", ["scaled", "m"], ["product"]),
        helper.make_node("Add", ["product", "s"], ["x"]),
    ]
    _, ops = optimised(*layer(op_type, state, steps=3, before=before))
    assert ops == {op_type.lower(): 1}
