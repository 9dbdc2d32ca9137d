"""Random nodes and graphs as functions of the language, against the references of their operators."""

import numpy as np
from hypothesis import HealthCheck, Phase, event, given, settings
from hypothesis import strategies as st

from eqsat.language.comprehension.graphs.nodes.node import stated_node
from eqsat.language.comprehension.graphs.operators import NAME, DeclaredRegion, declare_region
from eqsat.language.comprehension.graphs.regions import RegionStep, region_function
from eqsat.language.ops import OPS
from eqsat.language.terms import Graph, Node, evaluate
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.theories.regions.equations import region_evidence
from eqsat.rewrites.theories.regions.finding import FunctionRegion
from eqsat.runtime.backend import execute
from eqsat.testing import feeds, graphs

COMMON = settings(
    deadline=None, suppress_health_check=list(HealthCheck), phases=[Phase.reuse, Phase.generate], derandomize=True
)
MOVES = ["transpose", "reshape", "concat", "slice", "pad", "expand", "tile"]
SUMS = ["matmul", "gemm", "conv", "max_pool", "avg_pool"]
OTHERS = ["add", "mul", "relu", "tanh", "reduce_sum", "reduce_max", "softmax"]


def step_of(graph, node):
    types = tuple(graph.type(value) for value in node.inputs)
    stated = stated_node(node, types, graph.type(node.outputs[0]))
    return None if stated is None else RegionStep(node, types, graph.type(node.outputs[0]), stated)


def sizes_of(function, types):
    """The sizes that a function names, by the types of its operands."""
    found = {}
    for operand, type in zip(function.operands, types, strict=True):
        for extent, dim in zip(function.scope.parameters[operand].extents, type.dims, strict=True):
            if isinstance(extent, str):
                assert found.setdefault(extent, dim) == dim
    return found


def at(value, sizes):
    if isinstance(value, tuple):
        return tuple(at(one, sizes) for one in value)
    return evaluate(value, sizes) if isinstance(value, Sym) else value


@settings(COMMON, max_examples=150)
@given(st.data(), st.sampled_from([*MOVES, *SUMS]))
def test_a_stated_node_is_what_its_reference_makes(data, op):
    graph = data.draw(graphs([op], min_nodes=1, max_nodes=1, dtypes=("float32",)))
    (node,) = [one for one in graph.nodes if one.op == op]
    inputs = data.draw(feeds(graph))
    step = step_of(graph, node)
    event(f"{op} is {'refused' if step is None else 'stated'}")
    if step is None:
        return
    function = step.stated.function
    sizes = sizes_of(function, step.operands)
    assert all(condition.at(sizes) for condition in step.stated.conditions)
    given_attrs = OPS[op].complete(node.attrs)
    assert all(at(value, sizes) == given_attrs[name] for name, value in (step.stated.attrs or {}).items())
    values = {**inputs, **{name: one.array for name, one in graph.constants.items()}}
    with np.errstate(all="ignore"):
        made = function(*[np.asarray(values[one]) for one in node.inputs])
        expected = execute(graph, inputs, "numpy")
    (result,) = [name for name, value in graph.outputs.items() if value == node.outputs[0]]
    np.testing.assert_allclose(made, expected[result], rtol=1e-4, atol=1e-5)


def region_graph(graph):
    """A graph with one node in place of the last nodes that are stated, and how many these are; None where it has
    none."""
    steps = [step_of(graph, node) for node in graph.nodes]
    first = next((k + 1 for k in reversed(range(len(steps))) if steps[k] is None), 0)
    taken = steps[first:]
    results = list(dict.fromkeys(v for v in graph.outputs.values() if any(v == one.node.outputs[0] for one in taken)))
    found = region_function(taken, results) if taken and results else None
    if found is None:
        return None
    text = repr(found.function)
    spec = declare_region(DeclaredRegion("region_of_graphs", text, NAME))
    node = Node(spec.name, found.operands, tuple(results))
    rest = tuple(one for one in graph.nodes if one not in [step.node for step in taken])
    kept = {name: graph.type(name) for one in (node, *rest) for name in (*one.inputs, *one.outputs)}
    kept |= {name: graph.type(name) for name in (*graph.inputs, *graph.outputs.values())}
    return Graph("regions", graph.inputs, graph.outputs, (*rest, node), graph.constants, kept), len(taken)


@settings(COMMON, max_examples=25)
@given(st.data())
def test_a_region_with_movements_and_products_is_what_its_operators_make(data):
    graph = data.draw(graphs([*MOVES, *SUMS, *OTHERS], min_nodes=3, max_nodes=7, dtypes=("float32",)))
    made = region_graph(graph)
    if made is None:
        event("refused")
        return
    whole, steps = made
    event(f"{steps} steps")
    inputs = data.draw(feeds(graph))
    with np.errstate(all="ignore"):
        expected = execute(graph, inputs, "numpy")
        found = [execute(whole, inputs, backend) for backend in ("numpy", "c")]
    for values in found:
        for name, value in expected.items():
            np.testing.assert_allclose(values[name], value, rtol=1e-4, atol=1e-4)


def region_of(graph):
    """A whole graph as a region, its values numbered; None where a node is not stated, or makes no output."""
    made = [value for node in graph.nodes for value in node.outputs]
    numbers = {name: place for place, name in enumerate(dict.fromkeys([*graph.inputs, *graph.constants, *made]))}
    steps = {}
    for node in graph.nodes:
        step = step_of(graph, node)
        if step is None:
            return None
        inputs, (output,) = tuple(str(numbers[one]) for one in node.inputs), [numbers[one] for one in node.outputs]
        renamed = Node(node.op, inputs, (str(output),), node.attrs)
        steps[output] = RegionStep(renamed, step.operands, step.result, step.stated)
    results = tuple(dict.fromkeys(numbers[one] for one in graph.outputs.values() if numbers[one] in steps))
    return FunctionRegion(steps, results) if results else None


@settings(COMMON, max_examples=12)
@given(st.data())
def test_no_equation_of_a_region_is_false(data):
    graph = data.draw(graphs([*MOVES, *SUMS, *OTHERS], min_nodes=2, max_nodes=4, dtypes=("float32",)))
    region = region_of(graph)
    found = None if region is None else region.declared()
    if found is None:
        event("refused")
        return
    declared, _ = found
    law = declared.law.replace(NAME, declare_region(declared).name)
    (rule,) = parse_rules(f"region-of-a-graph: {law}", origin="identity")
    evidence = region_evidence(rule)
    event(evidence.verdict)
    assert evidence.verdict != "refuted", evidence.detail
