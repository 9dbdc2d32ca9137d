"""Graphs on NumPy as one list of calls: what runs between references, and that results are those of a run by nodes."""

import gc
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

import eqsat
from eqsat.errors import BackendError, DeclarationError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration.spec import same_as
from eqsat.language.graphs.interpret import run
from eqsat.language.ops import OPS
from eqsat.language.terms import OPAQUE, Attrs, Graph, Node, TensorType
from eqsat.runtime.backend import select
from eqsat.runtime.numpy.call_list import CallList, has_call_list
from eqsat.system.deadline import Deadline, TimeUp
from tests.support.c_programs import graph_of

PACKAGE = Path(eqsat.__file__).parent
#: References of operators, and the arithmetic that they call.
REFERENCES = tuple(str(PACKAGE / "language" / folder) for folder in ("ops", "arithmetic"))
X = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
F4 = TensorType.of("float32", (4, 4))


def chain(count, size=4):
    """As many operators, one after the other, each of which reads the input again."""
    g = eqsat.Graph("chain")
    x = g.input("x", (size, 4))
    y = x
    steps = (eqsat.relu, lambda y: y + x, lambda y: y @ x, lambda y: eqsat.clip(eqsat.exp(y), -1, 1))
    for number in range(count):
        y = steps[number % 4](y) if size == 4 else y + x
    g.output("y", y)
    return g.build()


def nothing(node, operands):
    raise AssertionError("no opaque node is here")


def calls_of(call):
    """The functions of eqsat that a call enters and that are no part of references: their names, in order."""
    entered = []

    def watch(frame, event, arg):
        code = frame.f_code
        is_ours = code.co_filename.startswith((str(PACKAGE), "<calls of"))
        if event == "call" and is_ours and not code.co_filename.startswith(REFERENCES):
            entered.append(code.co_name)

    sys.setprofile(watch)
    try:
        call()
    finally:
        sys.setprofile(None)
    return entered


def test_nothing_of_eqsat_runs_between_references_however_many_there_are():
    few, many = (select("numpy").compile(chain(count)).bind({"x": X}) for count in (3, 300))
    assert calls_of(few).count("calls") == calls_of(many).count("calls") == 1
    assert calls_of(few) == calls_of(many) and len(calls_of(many)) < 15
    # The count tells: node by node, several functions run for each.
    graph = chain(300)
    assert len(calls_of(lambda: run(graph, {"x": X}, Floats()))) > 5 * len(graph.nodes)


def test_a_program_that_runs_again_runs_as_a_list():
    program = select("numpy").compile(chain(300))
    first, second = (calls_of(lambda: program.run({"x": X})) for _ in range(2))
    third = calls_of(lambda: program.run({"x": X}))
    assert "calls" not in first and "calls" in second
    assert len(third) < 50 < len(first)


@pytest.mark.parametrize("seed", range(2))
def test_every_operator_makes_the_same_bits_either_way(seed):
    names = sorted(n for n, one in OPS.items() if one.sample is not None and not one.random and one.is_shipped)
    assert len(names) > 100
    for name in names:
        graph, inputs = graph_of(name, 2, seed)
        assert has_call_list(graph), name
        with np.errstate(all="ignore"):
            wanted = run(graph, inputs, Floats())
            made = dict(zip(graph.outputs, CallList(graph, nothing)(*inputs.values()), strict=True))
        for output, array in wanted.items():
            assert type(made[output]) is type(array) and made[output].dtype == array.dtype, name
            assert made[output].tobytes() == array.tobytes() and made[output].shape == array.shape, name


def test_outputs_may_be_inputs_constants_and_one_another():
    g = eqsat.Graph("several")
    x = g.input("x", (4, 4))
    one = g.constant(X)
    left, right = eqsat.split(x + one, 2, axis=1)
    for name, value in {"left": left, "x again": x, "left again": left, "one": one, "y": eqsat.exp(right)}.items():
        g.output(name, value)
    graph = g.build()
    program = select("numpy").compile(graph)
    first, second = program.run({"x": X}), program.run({"x": X})
    assert list(first) == list(second) == list(graph.outputs)
    for name, array in first.items():
        np.testing.assert_array_equal(second[name], array)


def test_results_that_nothing_reads_are_left_out():
    half = TensorType.of("float32", (4, 2))
    node = Node("split", ("x",), ("", "b"), Attrs(OPS["split"].complete({"axis": 1, "sizes": (2, 2)})))
    graph = Graph("half", ("x",), {"b": "b"}, (node,), {}, {"x": F4, "b": half})
    (made,) = CallList(graph, nothing)(X)
    np.testing.assert_array_equal(made, X[:, 2:])


def test_opaque_nodes_are_called_in_their_place():
    seen = []

    def opaque(node, operands):
        seen.append((node.outputs, [None if one is None else one.copy() for one in operands]))
        return [operands[0] + 1, None]

    nodes = (
        Node("relu", ("x",), ("y",), OPS["relu"].complete({})),
        Node(OPAQUE, ("y", None), ("z", ""), Attrs(op_type="Other")),
        Node("neg", ("z",), ("w",), OPS["neg"].complete({})),
    )
    graph = Graph("opaque", ("x",), {"w": "w"}, nodes, {}, dict.fromkeys("xyzw", F4))
    (made,) = CallList(graph, opaque)(X)
    np.testing.assert_array_equal(made, -(np.maximum(X, 0) + 1))
    ((outputs, operands),) = seen
    assert outputs == ("z", "") and operands[1] is None
    np.testing.assert_array_equal(operands[0], np.maximum(X, 0))


def test_sizes_that_only_a_run_knows_are_run_node_by_node():
    graph = chain(3, "n")
    program = select("numpy").compile(graph)
    assert not has_call_list(graph)
    for size in (2, 5, 2):
        x = np.full((size, 4), 2, np.float32)
        np.testing.assert_array_equal(program.run({"x": x})["y"], 4 * x)


def test_values_are_given_up_after_their_last_reader_unless_they_are_kept():
    alive, living = [], []

    @eqsat.op(infer=same_as())
    def watched_value(xp, x):
        """The operand plus one, whose array is remembered."""
        made = xp.add(x, xp.number(1, x))
        living.append(sum(one() is not None for one in alive))
        alive.append(weakref.ref(made))
        return made

    g = eqsat.Graph("watched")
    y = g.input("x", (4, 4))
    for _ in range(6):
        y = eqsat.watched_value(y)
    g.output("y", y)
    graph = g.build()
    lists = {kept: CallList(graph, nothing, kept=kept) for kept in (False, True)}
    for kept, counts in ((False, [0, 1, 1, 1, 1, 1]), (True, [0, 1, 2, 3, 4, 5])):
        alive.clear()
        living.clear()
        (made,) = lists[kept](X)
        np.testing.assert_allclose(made, X + 6, rtol=1e-6)
        assert living == counts


def test_a_users_reference_that_fails_is_named_with_its_operands():
    @eqsat.op(infer=same_as())
    def picky_value(xp, x):
        """The operand, if it is small."""
        if xp.max(x) > 5:
            raise RuntimeError("too large")
        return x

    @eqsat.op(infer=same_as())
    def uneven_value(xp, x):
        """The operand, or a part of it where its first element is positive."""
        return x[:1] if not xp.exact and x[0, 0] > 0 else x

    g = eqsat.Graph("picky")
    g.output("y", eqsat.uneven_value(eqsat.picky_value(eqsat.neg(g.input("x", (4, 4))))))
    call = CallList(g.build(), nothing)
    small, large, positive = np.ones_like(X), np.full_like(X, -6), -np.ones_like(X)
    np.testing.assert_array_equal(call(small)[0], -small)
    with pytest.raises(DeclarationError, match=r"'picky_value': its reference fails on float32\[4, 4\].*too large"):
        call(large)
    with pytest.raises(DeclarationError, match=r"'uneven_value': its reference makes shapes \[1, 4\]"):
        call(positive)


def test_indices_beyond_their_operand_are_an_error_of_the_backend():
    g = eqsat.Graph("picked")
    g.output("y", eqsat.gather(g.input("x", (4, 4)), g.input("at", (2,), "int64"), axis=0))
    program = select("numpy").compile(g.build())
    good, bad = np.array([0, 3]), np.array([0, 9])
    for _ in range(2):
        np.testing.assert_array_equal(program.run({"x": X, "at": good})["y"], X[good])
        with pytest.raises(BackendError, match="NumPy failed: index 9 is out of bounds"):
            program.run({"x": X, "at": bad})


def test_a_list_looks_at_the_deadline_between_stretches_and_counts_every_node():
    graph = chain(300)
    call = CallList(graph, nothing)
    with Deadline(steps=1000) as deadline:
        call(X)
        assert deadline.steps == 1000 - len(graph.nodes) < 1000
    with Deadline(steps=100), pytest.raises(TimeUp):
        call(X)
    large = chain(9, 1 << 17)
    with Deadline(steps=100) as deadline:
        CallList(large, nothing)(np.ones((1 << 17, 4), np.float32))
        assert deadline.steps == 91
    with Deadline(1e-4), pytest.raises(TimeUp):
        CallList(large, nothing)(np.ones((1 << 17, 4), np.float32))
    # Nodes that take long are each looked at before they begin.
    assert CallList(large, nothing).text.count("check(1)") == 9


def test_an_opaque_node_that_fails_does_so_alike_each_time():
    """Also beside one without results, and in a graph whose name no file has."""

    def fails(node, operands):
        raise BackendError("it fails")

    nodes = (Node(OPAQUE, ("x",), ("y",), Attrs(op_type="Other")), Node(OPAQUE, ("y",), (), Attrs(op_type="Silent")))
    graph = Graph("a\0b", ("x",), {"y": "y"}, nodes, {}, dict.fromkeys("xy", F4))
    calls = CallList(graph, fails)
    for _ in range(2):
        with pytest.raises(BackendError, match="it fails"):
            calls(X)
    (made,) = CallList(graph, lambda node, operands: operands)(X)
    np.testing.assert_array_equal(made, X)


def test_a_program_that_is_dropped_gives_its_constants_back_at_once():
    g = eqsat.Graph("weights")
    g.output("y", g.input("x", (4, 4)) @ g.constant(np.ones((4, 4), np.float32)))
    graph = g.build()
    program = select("numpy").compile(graph)
    (constant,) = graph.constants.values()
    held = weakref.ref(constant.array)
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):
            program.run({"x": np.ones((4, 4), np.float32)})
        del program, graph, constant, g
        assert held() is None
    finally:
        gc.enable()
