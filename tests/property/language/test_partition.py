"""Cuts of graphs, against all cuts that there are, and what holds of every partition."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

import eqsat
from eqsat.errors import GraphError
from eqsat.language.graphs.partition import PARTITIONERS, FlowNetwork, partition
from eqsat.language.terms import DType, Graph, Node, TensorType

PLACE = TensorType(DType.FLOAT32, (2, 2))


@st.composite
def weighed_graphs(draw, least=2, most=12):
    """A graph of nodes that read up to three values made before, of which some have two results, and its losses."""
    nodes, made = [], ["x"]
    for number in range(draw(st.integers(least, most))):
        reads = draw(st.lists(st.sampled_from(made), min_size=1, max_size=3))
        results = tuple(f"v{number}.{k}" for k in range(draw(st.integers(1, 2))))
        nodes.append(Node("opaque", tuple(reads), results))
        made += results
    graph = Graph("g", ("x",), {"y": made[-1]}, tuple(nodes), {}, dict.fromkeys(made, PLACE))
    return graph, draw(st.lists(st.integers(0, 4), min_size=len(nodes), max_size=len(nodes)))


def wires_of(graph):
    """The pairs of a node and one that reads a result of it."""
    makers = {value: number for number, node in enumerate(graph.nodes) for value in node.outputs}
    return {(makers[v], number) for number, node in enumerate(graph.nodes) for v in node.inputs if v in makers}


def cost(wires, losses, before):
    """The sum of losses, and the number, of the nodes before a cut whose results are read after it; None for no cut."""
    if any(before[reader] and not before[maker] for maker, reader in wires):
        return None
    cut = {maker for maker, reader in wires if before[maker] and not before[reader]}
    return sum(losses[node] for node in cut), len(cut)


@given(weighed_graphs(), st.data())
def test_no_cut_loses_less(given_graph, data):
    graph, losses = given_graph
    count = len(graph.nodes)
    first = data.draw(st.integers(1, count - 1))
    last = data.draw(st.integers(1, count - first))
    found = FlowNetwork(graph, losses).minimum_cut(range(count), first, last)
    wires = wires_of(graph)
    middle = product((True, False), repeat=count - first - last)
    every = ((True,) * first + some + (False,) * last for some in middle)
    least = min(one for before in every if (one := cost(wires, losses, before)) is not None)
    before = [number in found.before for number in range(count)]
    assert cost(wires, losses, before) == (found.loss, len(found.cut)) == least
    assert set(range(first)) <= set(found.before) and set(range(count - last, count)) <= set(found.after)
    assert sorted((*found.before, *found.after)) == list(range(count))


@given(weighed_graphs(1, 40), st.integers(1, 12), st.sampled_from(sorted(PARTITIONERS)))
def test_parts_are_small_and_read_nothing_of_later_ones(given_graph, most, method):
    graph, losses = given_graph
    found = partition(graph, losses, most, method)
    assert sorted(node for part in found.parts for node in part) == list(range(len(graph.nodes)))
    assert all(0 < len(part) <= most for part in found.parts)
    where = {node: place for place, part in enumerate(found.parts) for node in part}
    flow = FlowNetwork(graph, losses)
    assert all(where[read] <= where[node] for node in where for read in flow.read[node])
    crossed = {read for node in where for read in flow.read[node] if where[read] < where[node]}
    assert crossed == {node for cut in found.cuts for node in cut.cut}
    assert found.loss == sum(losses[node] for node in crossed)


def chain(count):
    """A graph of nodes each of which reads the one before."""
    nodes = tuple(Node("opaque", (f"v{n}",), (f"v{n + 1}",)) for n in range(count))
    types = dict.fromkeys((f"v{n}" for n in range(count + 1)), PLACE)
    return Graph("chain", ("v0",), {"y": f"v{count}"}, nodes, {}, types)


def test_a_cut_by_flow_is_where_the_least_is_lost_and_a_balanced_one_in_the_middle():
    losses = [5] * 100
    losses[40] = 1
    graph = chain(100)
    assert [len(part) for part in partition(graph, losses, 60).parts] == [41, 59]
    assert partition(graph, losses, 60).loss == 1
    assert partition(graph, losses, 60, "balanced").loss == 5
    assert all(45 <= len(part) <= 55 for part in partition(graph, losses, 60, "balanced").parts)


def test_a_cut_of_nodes_that_lose_much_is_exact():
    graph = chain(5)
    assert FlowNetwork(graph, [10**12, 10**12, 7, 10**12, 10**12]).minimum_cut(range(5), 1, 1).cut == (2,)
    with pytest.raises(GraphError, match="1000000000000 substitutions lost at a cut of 5 nodes"):
        FlowNetwork(graph, [10**12] * 5).minimum_cut(range(5), 1, 1)


def test_losses_that_32_bits_cannot_tell_apart_are_cut_in_coarser_units():
    """A value that all others read is in every cut, however much that loses."""
    g = eqsat.Graph("read by all")
    mask = g.apply("tanh", g.input("x", (2,)))
    value = mask
    for _ in range(40):
        value = g.apply("add", value, mask)
    g.output("y", value)
    graph = g.build()
    losses = [10**9] + [10**6] * 40
    losses[20] = 10**5
    found = partition(graph, losses, 30)
    assert found.loss == 10**9 + 10**5
    assert [part[-1] for part in found.parts] == [20, 40]


@pytest.mark.parametrize(
    ("losses", "most", "method", "message"),
    [
        ([1, 1], 1, "flow", "2 losses, the least of them 1"),
        ([1, 1, -1], 1, "flow", "3 losses, the least of them -1"),
        ([1, 1, 1], 0, "flow", "a partition by 'flow' into parts of 0 nodes"),
        ([1, 1, 1], 1, "metis", "a partition by 'metis' into parts of 1 nodes.*one of 'flow', 'balanced'"),
    ],
)
def test_a_partition_that_cannot_be_is_refused(losses, most, method, message):
    with pytest.raises(GraphError, match=f"(?s){message}"):
        partition(chain(3), losses, most, method)


@pytest.mark.parametrize(("first", "last"), [(0, 1), (1, 0), (2, 2)])
def test_a_cut_without_a_node_on_either_side_is_refused(first, last):
    with pytest.raises(GraphError, match=f"a cut of 3 nodes between {first} first and {last} last ones"):
        FlowNetwork(chain(3), [1, 1, 1]).minimum_cut(range(3), first, last)
