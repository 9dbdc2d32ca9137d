"""Strategies for types, tensors, attributes and graphs: what they draw is as asked, and shrinks to the smallest."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.errors import NoSuchExample

from eqsat.errors import GraphError, UsageError
from eqsat.language.arithmetic.floats import FloatNamespace, Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.ops import OPS
from eqsat.language.terms import Attrs, TensorType
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.testing import attributes, feeds, graphs, instances, rules, tensor_types, tensors
from eqsat.testing.strategies.choices import ChoiceSource

QUIET = settings(
    max_examples=2000, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
)
FLOAT = TensorType.of("float32", (2, 3))


def smallest(strategy, condition):
    return find(strategy, condition, settings=QUIET)


def ops(graph):
    return [n.op for n in graph.nodes]


@given(tensor_types(dtypes=("int64", "bool"), ranks=(1, 2), dims=(0, 4)))
def test_types_keep_to_the_ranges_asked(drawn):
    assert drawn.dtype.value in ("int64", "bool")
    assert 1 <= drawn.rank <= 2
    assert all(0 <= d <= 4 for d in drawn.static)


def test_types_reach_dims_of_zero_and_shrink():
    assert smallest(tensor_types(dims=(0, 3)), lambda t: 0 in t.static).static == (0,)
    assert smallest(tensor_types(), lambda t: t.rank == 2).static == (1, 1)


@pytest.mark.parametrize("ranges", [{"ranks": (2, 1)}, {"dims": (-1, 2)}])
def test_ranges_that_hold_nothing_are_refused(ranges):
    with pytest.raises(UsageError, match=r"tensor_types: .* = \(.*\n.*expected \(least, most\)"):
        smallest(tensor_types(**ranges), bool)


@given(st.data(), tensor_types(dtypes=("float16", "bfloat16", "float64", "int8", "uint8", "bool"), dims=(0, 3)))
def test_tensors_are_of_their_type_and_finite(data, wanted):
    drawn = data.draw(tensors(wanted))
    assert (drawn.shape, drawn.dtype) == (wanted.static, wanted.dtype.numpy)
    assert np.isfinite(np.asarray(drawn, np.float64)).all()


@given(tensors(TensorType.of("int64", (4,)), limit=2))
def test_integers_keep_to_a_limit(drawn):
    assert ((drawn == 0) | (drawn == 1)).all()


def test_special_elements_come_only_when_asked_for():
    for test in (np.isnan, np.isposinf, np.isneginf):
        found = smallest(tensors(FLOAT, special=True), lambda x, test=test: test(x).any())
        assert np.count_nonzero(found) == 1
    assert smallest(tensors(FLOAT), lambda x: x.any()).tolist() == [[0, 0, 0], [0, 0, 1]]


def test_elements_without_a_strategy_are_refused():
    with pytest.raises(UsageError, match="no strategy for elements of string"):
        smallest(tensors(TensorType.of("string", (1,))), bool)


@settings(max_examples=200)
@given(st.data())
def test_attributes_are_complete_and_fit(data):
    graph = data.draw(graphs(max_nodes=1))
    node = graph.nodes[-1]
    types = [graph.type(v) for v in node.inputs]
    drawn = data.draw(attributes(node.op, types))
    assert set(drawn) == set(OPS[node.op].attrs)
    OPS[node.op].result_types(types, drawn)


def test_attributes_shrink():
    found = smallest(attributes("transpose", [TensorType.of("float32", (2, 3, 4))]), lambda a: a["perm"] != (0, 1, 2))
    assert found == Attrs(perm=(0, 2, 1))


def test_an_operator_without_a_sample_rule_or_of_no_name_is_refused():
    with pytest.raises(GraphError, match=r"no operator 'relux'\n.*\n.*did you mean relu"):
        smallest(graphs(["relux"]), bool)


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_graphs_compute_what_their_types_say(data):
    graph = data.draw(graphs(max_nodes=4))
    assert 1 <= len(graph.nodes) <= 4
    found = run(graph, data.draw(feeds(graph)), Floats())
    for name, array in found.items():
        assert array.shape == graph.type(graph.outputs[name]).static


def test_nothing_is_read_by_an_index_from_an_axis_without_elements():
    def reads_nothing(graph):
        return any(n.op == "gather" and 0 in graph.type(n.inputs[0]).static for n in graph.nodes)

    with pytest.raises(NoSuchExample):
        smallest(graphs(["topk", "gather"]), reads_nothing)


@given(graphs(["add", "split"], min_nodes=2, max_nodes=3, dtypes=("float16",)))
def test_graphs_have_the_operators_and_dtypes_asked_for(graph):
    assert set(ops(graph)) <= {"add", "split"}
    assert 2 <= len(graph.nodes) <= 3
    assert {graph.type(v).dtype.value for v in graph.outputs.values()} == {"float16"}


def test_graphs_shrink_to_the_smallest_shapes_and_fewest_nodes():
    graph = smallest(graphs(["relu", "conv", "matmul"]), lambda g: "conv" in ops(g))
    assert ops(graph) == ["conv"]
    assert {graph.type(v).static for v in graph.inputs} == {(1, 1, 1, 1)}


def test_graphs_share_values_and_use_several_outputs():
    graph = smallest(graphs(["add", "neg"]), lambda g: any(len(readers) > 1 for readers in g.consumers.values()))
    assert len(graph.nodes) == 2
    graph = smallest(
        graphs(["split", "relu"]), lambda g: any(n.op == "relu" and g.producers.get(n.inputs[0]) for n in g.nodes)
    )
    assert len(graph.nodes) == 2


def test_graphs_begin_with_the_inputs_given():
    graph = smallest(graphs(["matmul"], inputs={"x": FLOAT}), lambda g: g.consumers.get("x"))
    assert graph.type("x") == FLOAT
    assert graph.nodes[0].inputs[0] == "x"
    with pytest.raises(UsageError, match="2 to 1 nodes"):
        smallest(graphs(min_nodes=2, max_nodes=1), bool)


@given(st.data())
def test_feeds_give_named_dims_one_size(data):
    import eqsat

    g = eqsat.Graph("named")
    g.output("y", g.input("x", ("n", 3)) + g.input("z", ("n", 1)))
    made = data.draw(feeds(g.build(), sizes=data.draw(st.sampled_from([{}, {"n": 4}]))))
    assert made["x"].shape[0] == made["z"].shape[0] <= 4


def test_rules_are_the_shipped_ones_that_are_asked_for():
    assert smallest(rules(), lambda r: True) == shipped_rules()[0]
    found = smallest(rules(phases=["merge"], ops=["conv"]), lambda r: True)
    assert found.phase == "merge"
    assert "conv" in found.operators()
    with pytest.raises(UsageError, match="no rule of phases"):
        rules(phases=["mergers"])


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.data(), rules())
def test_instances_meet_the_conditions(data, rule):
    assert rule.refused(data.draw(instances(rule, traces=2))) is None


def test_choices_take_the_simplest_first():
    rng = ChoiceSource(lambda bound: 0)
    assert (rng.random(), rng.randint(2, 5), rng.randrange(1, 9, 2), rng.getrandbits(8)) == (0.0, 2, 1, 0)
    assert (rng.choice("ab"), rng.sample(range(4), 2), rng.uniform(1.0, 2.0)) == ("a", [0, 1], 1.0)
    last = ChoiceSource(lambda bound: bound - 1)
    order = [1, 2, 3]
    last.shuffle(order)
    assert order == [3, 2, 1]
    assert last.choice("ab") == "b"
    assert last.random() < 1.0
    for wrong in (lambda: rng.choice([]), lambda: rng.sample([1], 2), lambda: rng.randint(2, 1)):
        with pytest.raises((ValueError, IndexError)):
            wrong()


def test_references_of_drawn_attributes_run():
    graph = smallest(graphs(["softmax"]), lambda g: g.nodes[0].attrs["axis"] == 1)
    made = OPS["softmax"].reference(FloatNamespace(), np.zeros((1, 2)), axis=1)
    assert graph.type(graph.nodes[0].outputs[0]).static == (1, 1)
    assert made.tolist() == [[0.5, 0.5]]


def test_importing_it_without_hypothesis_says_what_to_install():
    code = "import sys; sys.modules['hypothesis'] = None; from eqsat.testing import graphs"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "MissingExtraError: eqsat.testing needs hypothesis\n" in made.stderr
    assert "pip install 'eqsat[testing]'" in made.stderr
    lines = (
        "import sys; sys.modules['hypothesis'] = None",
        "import eqsat.testing",
        "try: from eqsat.testing import graphs",
        "except ImportError: print('caught')",
    )
    assert subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True).stdout == "caught\n"
