"""What other frameworks call our operators, against the operators' references; where the frameworks are here."""

import importlib

import numpy as np
import pytest

import eqsat
from eqsat.bench.case import BenchCase
from eqsat.bench.jax_peer import JaxPeer
from eqsat.bench.jax_words import jax_words
from eqsat.bench.torch_peers import TorchPeer
from eqsat.bench.torch_words import torch_words
from eqsat.costs.devices.device import Device
from eqsat.language.graphs.builder import Builder
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, Graph, Node, TensorType

CPU = Device.of("onnxruntime-cpu")
PEERS = {"torch": (TorchPeer(), torch_words), "jax": (JaxPeer(), jax_words)}
#: Operators with attributes, on shapes that show what could be mistaken: uneven pads, strides, groups, ceilings.
APPLIED = [
    (
        "conv",
        [(2, 4, 9, 7), (6, 2, 3, 2), (6,)],
        {"strides": (2, 1), "pads": (0, 1, 2, 1), "dilations": (1, 2), "group": 2},
    ),
    ("conv", [(1, 3, 8), (4, 3, 3)], {"pads": (1, 1), "activation": "relu"}),
    ("gemm", [(5, 3), (4, 5), (4,)], {"trans_a": True, "trans_b": True, "alpha": 0.5, "beta": 2.0}),
    ("max_pool", [(1, 2, 8, 8)], {"kernel": (3, 2), "strides": (2, 2), "pads": (0, 0, 1, 1)}),
    ("max_pool", [(1, 2, 8, 8)], {"kernel": (3, 3), "strides": (2, 2), "ceil_mode": True}),
    ("avg_pool", [(1, 2, 8, 8)], {"kernel": (3, 3), "strides": (2, 2), "pads": (1, 1, 1, 1)}),
    ("avg_pool", [(1, 2, 8, 8)], {"kernel": (3, 3), "strides": (2, 2), "pads": (0, 0, 1, 1)}),
    ("avg_pool", [(1, 2, 8, 8)], {"kernel": (2, 2), "pads": (1, 1, 1, 1), "count_include_pad": True}),
    ("global_avg_pool", [(2, 3, 4, 5)], {}),
    ("global_max_pool", [(2, 3, 4, 5)], {}),
    ("batch_norm", [(2, 3, 4), (3,), (3,), (3,), (3,)], {"epsilon": 1e-3}),
    ("layer_norm", [(2, 3, 4), (4,), (4,)], {"axis": 2, "epsilon": 1e-3}),
    ("layer_norm", [(2, 3, 4), (3, 4)], {"axis": 1, "epsilon": 1e-3}),
    ("rms_norm", [(2, 3, 4), (4,)], {"axis": 2, "epsilon": 1e-3}),
    ("lrn", [(1, 7, 3, 3)], {"size": 5, "alpha": 0.1}),
    ("softmax", [(2, 5)], {"axis": 0}),
    ("log_softmax", [(2, 5)], {"axis": 1}),
    ("gelu", [(9,)], {}),
    ("gelu", [(9,)], {"approximate": "tanh"}),
    ("silu", [(9,)], {"alpha": 1.5}),
    ("leaky_relu", [(9,)], {"alpha": 0.2}),
    ("hard_sigmoid", [(9,)], {}),
    ("slice", [(6, 7)], {"starts": (5, 1), "ends": (0, 6), "axes": (0, 1), "steps": (-2, 3)}),
    ("slice", [(6, 7)], {"starts": (4,), "ends": (7,), "axes": (1,), "steps": (1,)}),
    ("split", [(6, 7)], {"axis": 1, "sizes": (2, 4, 1)}),
    ("concat", [(2, 3), (2, 1)], {"axis": 1}),
    ("pad", [(2, 3)], {"pads": (1, 0, 0, 2), "value": 1.5}),
    ("transpose", [(2, 3, 4)], {"perm": (2, 0, 1)}),
    ("reduce_mean", [(2, 3, 4)], {"axes": (0, 2), "keepdims": False}),
    ("reduce_max", [(2, 3, 4)], {"axes": (1,), "keepdims": True}),
    ("matmul", [(2, 1, 3, 4), (5, 4, 2)], {}),
]


def installed(name):
    peer, words = PEERS[name]
    module = pytest.importorskip(name)
    return peer, words(importlib.import_module(module.__name__))


def agree(name, graph, tolerance=2e-6):
    case = BenchCase.of(graph, "one", CPU, "float32", {})
    peer, _ = installed(name)
    loaded = peer.load(case)
    loaded.call()
    assert case.error(loaded.outputs(case.checked[0])) < tolerance
    loaded.close()


def one(op, shapes, attrs, dtype="float32"):
    """A graph of one operator on inputs alone."""
    named = {i: spec(op).dtypes.get(i, dtype) for i in range(len(shapes))}
    types = {f"x{i}": TensorType.of(named[i], shape) for i, shape in enumerate(shapes)}
    full = Attrs(spec(op).complete(attrs))
    results = spec(op).result_types(tuple(types.values()), full)
    outputs = tuple(f"y{i}" for i in range(len(results)))
    return Graph(
        op,
        tuple(types),
        {v: v for v in outputs},
        (Node(op, tuple(types), outputs, full),),
        {},
        types | dict(zip(outputs, results, strict=True)),
    )


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize(("op", "shapes", "attrs"), APPLIED)
def test_words_with_attributes_mean_what_operators_do(name, op, shapes, attrs):
    if op == "batch_norm":
        g = Builder("norm")
        values = [g.input("x", shapes[0]), *(g.constant(np.float32([0.5, 1.0, 2.0]) + i) for i in range(4))]
        g.output("y", eqsat.batch_norm(*values, **attrs))
        agree(name, g.build())
    else:
        agree(name, one(op, shapes, attrs))


@pytest.mark.parametrize("name", PEERS)
def test_pointwise_words_mean_what_operators_do(name):
    _, words = installed(name)
    kept = [op for op in words if OPS[op].pointwise and not OPS[op].attrs and OPS[op].max_operands in (1, 2)]
    assert {"add", "div", "erf", "tanh", "maximum"} <= set(kept)
    for op in kept:
        boolean = op in ("and_", "or_", "xor", "not_")
        shapes = [(3, 4), (4,)][: OPS[op].min_operands]
        agree(name, one(op, shapes, {}, "bool" if boolean else "float32"))
    agree(name, one("where", [(3, 1), (4,), (3, 4)], {}))
    agree(name, one("clip", [(3, 4), (), ()], {}))


@pytest.mark.parametrize("name", PEERS)
@pytest.mark.parametrize("precision", ["float16", "bfloat16"])
def test_peers_run_the_narrow_graph(name, precision):
    peer, _ = installed(name)
    g = Builder("narrow")
    w = g.constant(np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32))
    g.output("y", eqsat.softmax(g.input("x", (4, 16)) @ w, axis=-1))
    case = BenchCase.of(g.build(), "narrow", CPU, precision, {})
    loaded = peer.load(case)
    error = case.error(loaded.outputs(case.checked[0]))
    assert 1e-5 < error < (5e-3 if precision == "float16" else 5e-2)


def test_a_compiled_module_is_one_graph_and_says_the_same():
    pytest.importorskip("torch")
    g = Builder("compiled")
    w = g.constant(np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32))
    x = eqsat.relu(g.input("x", (4, 16)) @ w)
    g.output("y", eqsat.concat([x, x], axis=1))
    case = BenchCase.of(g.build(), "compiled", CPU, "float32", {})
    loaded = TorchPeer("default").load(case)
    loaded.call()
    assert case.error(loaded.outputs(case.checked[0])) < 1e-6
    loaded.close()


@pytest.mark.parametrize("name", PEERS)
def test_every_word_is_of_an_operator(name):
    _, words = installed(name)
    assert set(words) <= set(OPS)
