"""Graphs as programs of C: random operands, results by a choice of kernels, and how near they are to references."""

import random

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.ops import OPS, sampling
from eqsat.language.terms import Attrs, Constant, DType, Graph, Node, TensorType
from eqsat.runtime.c.program.kernels import default_choice
from eqsat.runtime.c.program.lowering import c_program
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.programs.arena import arrange, check

#: Operators whose integers pick elements, of which there may be one.
PICKING = {name for name in OPS if name.startswith(("gather", "scatter"))}


def elements(rng, type, is_picking):
    if type.dtype is DType.BOOL:
        return rng.random(type.static) < 0.5
    if type.dtype.is_integer:
        return rng.integers(*((-1, 1) if is_picking else (-2, 3)), type.static).astype(type.dtype.numpy)
    return rng.uniform(-2, 2, type.static).astype(type.dtype.numpy)


def graph_of(name, count, seed=""):
    """An operator over several random types, each apart from the others, with inputs."""
    types, nodes, inputs = {}, [], {}
    rng, numbers = random.Random(f"{name}{seed}"), np.random.default_rng(7)
    while len(nodes) < count:
        found = sampling.draw(OPS[name], rng, {"to": "float32"} if name == "cast" else None)
        if found is None:
            continue
        operands, attrs = found
        at = len(nodes)
        places = [None if t is None else f"x{at}_{i}" for i, t in enumerate(operands)]
        results = OPS[name].result_types(operands, attrs)
        made = [f"y{at}_{i}" for i in range(len(results))]
        types |= {v: t for v, t in zip((*places, *made), (*operands, *results), strict=True) if v is not None}
        inputs |= {
            v: elements(numbers, t, name in PICKING) for v, t in zip(places, operands, strict=True) if v is not None
        }
        nodes.append(Node(name, tuple(places), tuple(made), Attrs(attrs)))
    outputs = {v: v for node in nodes for v in node.outputs}
    return Graph("one", tuple(inputs), outputs, tuple(nodes), {}, types), inputs


def graph_of_calls(calls, constant=()):
    """Operators on given arrays, each apart from the others; operands at some places are constants."""
    types, nodes, inputs, constants = {}, [], {}, {}
    for at, (name, operands, attrs) in enumerate(calls):
        arrays = [None if one is None else np.asarray(one) for one in operands]
        given = [None if a is None else TensorType(DType.of(a.dtype), a.shape) for a in arrays]
        complete = OPS[name].complete(attrs)
        results = OPS[name].result_types(given, complete)
        places = [None if t is None else f"x{at}_{i}" for i, t in enumerate(given)]
        made = [f"y{at}_{i}" for i in range(len(results))]
        types |= {v: t for v, t in zip((*places, *made), (*given, *results), strict=True) if v is not None}
        for place, (value, array) in enumerate(zip(places, arrays, strict=True)):
            if value is not None:
                (constants if place in constant else inputs)[value] = array
        nodes.append(Node(name, tuple(places), tuple(made), Attrs(complete)))
    known = {name: Constant.of(array, types[name].dtype) for name, array in constants.items()}
    outputs = {v: v for node in nodes for v in node.outputs}
    return Graph("calls", tuple(inputs), outputs, tuple(nodes), known, types), inputs


def assert_kernels(graph, inputs, slack=1e-5):
    """Every operator has a kernel, which computes what its reference does."""
    program, made = computed(graph, inputs)
    assert [launch.label for launch in program.launches if launch.kind == "fallback"] == []
    assert_same(graph, made, inputs, slack)


def computed(graph, inputs, choose=default_choice):
    program = c_program(graph)
    arrangement = arrange(program)
    check(program, arrangement)
    machine = CMachine(program, arrangement, choose, 1)
    for name in program.inputs:
        machine.put(name, inputs[name])
    machine.launch()
    return program, {name: machine.get(name) for name in graph.outputs}


def assert_same(graph, made, inputs, slack=1e-5):
    with np.errstate(all="ignore"):
        wide, plain = run(graph, inputs, Floats(wide=True)), run(graph, inputs, Floats())
    for name, wanted in wide.items():
        assert made[name].dtype == graph.type(graph.outputs[name]).dtype.numpy
        assert made[name].shape == np.shape(wanted)
        if made[name].dtype.kind in "biu":
            assert np.array_equal(made[name], plain[name]), name
            continue
        one, two, three = (np.asarray(a, np.float64) for a in (made[name], wanted, plain[name]))
        assert np.array_equal(np.isnan(one), np.isnan(three)), name
        near = np.isfinite(two) & np.isfinite(three)
        own = np.abs(three[near] - two[near]).max(initial=0.0)
        size = np.abs(two[near]).max(initial=0.0)
        assert np.abs(one[near] - two[near]).max(initial=0.0) <= slack * max(size, 1e-3) + 8 * own, name
