"""The substitutions counted at nodes are those whose left sides are there, through the node."""

import pytest

import eqsat
from eqsat.language.graphs.partition import partition
from eqsat.rewrites.rules.crossings import crossings
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.parser import parse_rules

RULES = parse_rules(
    "twice: relu(relu(x)) => relu(x)\n"
    "thrice: relu(relu(relu(x))) => relu(x)\n"
    "negated: neg(x) * neg(y) => x * y\n"
    "same: relu(x) => relu(relu(x))\n"
)


def graph_of(build):
    g = eqsat.Graph("g")
    g.output("y", build(g, g.input("x", (2, 3))))
    return g.build()


def relu(g, x):
    return g.apply("relu", x)


def test_a_node_inside_a_left_side_is_counted_once_for_each_place_of_the_root():
    # The second node is inside `twice` at the third, and inside `thrice` at the third and at the fourth.
    graph = graph_of(lambda g, x: relu(g, relu(g, relu(g, relu(g, x)))))
    assert crossings(graph, RULES) == (2, 3, 2, 0)


def test_what_two_places_of_a_left_side_share_is_counted_once():
    def squared(g, x):
        negative = -x
        return negative * negative

    assert crossings(graph_of(squared), RULES) == (1, 0)


def test_a_left_side_that_is_not_there_as_a_whole_counts_nothing():
    assert crossings(graph_of(lambda g, x: -x * relu(g, x)), RULES) == (0, 0, 0)


def test_a_node_that_is_read_by_several_is_counted_for_each():
    def shared(g, x):
        first = relu(g, x)
        return relu(g, first) + relu(g, first)

    assert crossings(graph_of(shared), RULES) == (2, 0, 0, 0)


@pytest.mark.parametrize("length", [4, 9])
def test_a_graph_is_cut_between_what_shipped_rules_join(length):
    def blocks(g, x):
        for _ in range(length):
            x = g.apply("tanh", (x.transpose(1, 0).transpose(1, 0)) * 2.0 * 3.0)
            x = g.apply("sin", x)
        return x

    graph = graph_of(blocks)
    losses = crossings(graph, load_rules())
    found = partition(graph, losses, 12)
    assert len(found.cuts) >= 2 and found.loss == 0
    assert all(loss > 0 for node, loss in zip(graph.nodes, losses, strict=True) if node.op == "transpose")
