"""The e-graph: encoding, matching, limits, types, facts, explanations, decoding."""

from __future__ import annotations

import os
import tempfile

import numpy as np
import onnx
import pytest

import eqsat.language.ops
from eqsat.costs.model.model import CostModel
from eqsat.egraph.decode import decode
from eqsat.egraph.derived import fold_derived
from eqsat.egraph.encode import Encoding, encode
from eqsat.egraph.engine import Engine, EngineError
from eqsat.egraph.explain import CONGRUENCE, Explainer
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits, Saturation
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.errors import ExtractionError, ShapeError, UnsoundRuleError
from eqsat.extract import solve
from eqsat.extract.tensors.assembly import assemble
from eqsat.extract.tensors.tensors import tensor_problem
from eqsat.language.graphs.builder import Builder
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms.graph import Graph
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.system.deadline import Deadline, TimeUp

OPS = eqsat.language.ops


def two_products() -> Graph:
    """(x @ w) @ v, the weights constant."""
    g = Builder("two")
    x = g.input("x", (2, 4))
    g.output("y", (x @ g.constant(np.ones((4, 3), np.float32))) @ g.constant(np.ones((3, 5), np.float32)))
    return g.build()


def grow(graph: Graph, rules: str, **limits: float) -> tuple[Encoding, Saturation, Snapshot]:
    encoding = encode(graph)
    report = Saturator(encoding.egraph, parse_rules(rules, origin="candidate"), Limits(**limits)).run()  # type: ignore[arg-type]
    return encoding, report, snapshot(encoding)


ASSOCIATIVE = "assoc: (x @ y) @ z <=> x @ (y @ z) if rank(y) == 2, rank(z) == 2"


def test_equal_subexpressions_and_constants_are_one_class() -> None:
    g = Builder("cse")
    x = g.input("x", (3,))
    one = g.constant(np.float32([1, 2, 3]))
    two = g.constant(np.float32([1, 2, 3]))
    g.output("a", x + one)
    g.output("b", x + two)
    encoding = encode(g.build())
    egraph = encoding.egraph
    assert egraph.find(encoding.roots["a"]) == egraph.find(encoding.roots["b"])


@pytest.mark.parametrize("count", [3, 33, 64, 2048])
def test_nodes_of_many_operands_are_equal_where_all_operands_are(count: int) -> None:
    g = Builder("wide")
    x = g.input("x", (count, 2))
    rows = [x[i : i + 1] for i in range(count)]
    g.output("a", g.apply("concat", *rows, axis=0))
    g.output("b", g.apply("concat", *(g.apply("neg", -row) for row in rows), axis=0))
    g.output("c", g.apply("concat", *(g.apply("neg", -row) for row in reversed(rows)), axis=0))
    g.output("d", g.apply("concat", *rows[:-1], axis=0))
    encoding, report, _ = grow(g.build(), "%phase simplify\ntwice: neg(neg(x)) => x")
    a, b, c, d = (encoding.egraph.find(encoding.roots[name]) for name in "abcd")
    assert a == b and len({a, c, d}) == 3 and report.fired["twice"] == count


def test_an_operand_among_very_many_is_matched() -> None:
    g = Builder("wide")
    x = g.input("x", (100, 2))
    rows = [x[i : i + 1] for i in range(100)]
    g.output("y", g.apply("relu", g.apply("concat", *rows, axis=0)))
    _, report, _ = grow(g.build(), "into: relu(concat(*xs, axis=a)) => concat(*[relu(x) for x in xs], axis=a)")
    assert report.fired["into"] == 1


def test_constants_that_differ_in_a_bit_are_not_one() -> None:
    g = Builder("bits")
    x = g.input("x", (1,))
    g.output("a", x * g.constant(np.float32([0.0])))
    g.output("b", x * g.constant(np.float32([-0.0])))
    encoding = encode(g.build())
    assert encoding.egraph.find(encoding.roots["a"]) != encoding.egraph.find(encoding.roots["b"])


def test_a_rule_unites_both_forms_and_the_tables_of_egglog_agree() -> None:
    encoding, report, frozen = grow(two_products(), ASSOCIATIVE)
    assert report.stopped_by == "saturated"
    assert report.fired == {"assoc": 1}
    root = frozen.classes[frozen.roots["y"]]
    assert [frozen.nodes[i].op for i in root.nodes] == ["matmul", "matmul"]
    rows = {k: v for k, v in encoding.egraph.engine.sizes().items() if k.startswith("op_")}
    assert sum(rows.values()) == len(frozen.nodes)


def test_derived_constants_have_recipes_and_are_folded() -> None:
    graph = two_products()
    _, _, frozen = grow(graph, ASSOCIATIVE)
    folded_class = next(k for k, c in frozen.classes.items() if c.constant and not c.values)
    root = frozen.roots["y"]
    choice = {k: frozen.recipes[k] for k in frozen.recipes}
    choice |= {k: frozen.classes[k].nodes[0] for k in frozen.classes if k not in choice}
    choice[root] = next(i for i in frozen.classes[root].nodes if folded_class in frozen.nodes[i].operands)
    decoded = decode(frozen, choice, graph)
    assert [n.op for n in decoded.graph.nodes] == ["matmul", "matmul"]
    final = fold_derived(decoded.graph)
    assert [n.op for n in final.nodes] == ["matmul"]
    (weight,) = final.constants.values()
    assert (weight.array == np.full((4, 5), 3, np.float32)).all()


def test_a_choice_with_a_cycle_or_a_hole_is_refused() -> None:
    graph = two_products()
    _, _, frozen = grow(graph, ASSOCIATIVE)
    with pytest.raises(ExtractionError, match="no e-node is chosen"):
        decode(frozen, {}, graph)


def test_a_rule_that_changes_the_shape_is_named() -> None:
    g = Builder("bad")
    x = g.input("x", (2, 3))
    g.output("y", x.transpose(1, 0).reshape(2, 3))
    with pytest.raises(UnsoundRuleError, match=r"rule drop-transpose made .* equal to"):
        grow(g.build(), "drop-transpose: transpose(x, perm=p) => x")


def test_a_union_that_named_dims_may_break_is_refused_not_made() -> None:
    g = Builder("named")
    x = g.input("x", ("n", 3))
    g.output("y", x + g.input("b", ("m", 3)))
    _, report, frozen = grow(g.build(), "drop: x + y => x")
    assert not report.fired
    assert any("not provably one type" in reason for _, reason in report.refused)
    assert len(frozen.classes[frozen.roots["y"]].nodes) == 1


@pytest.mark.parametrize(
    ("limits", "reason"),
    [({"nodes": 12}, "node_limit"), ({"seconds": 0.0}, "time_limit"), ({"rounds": 1}, "round_limit")],
)
def test_what_stopped_saturation_is_reported(limits: dict[str, float], reason: str) -> None:
    g = Builder("chain")
    total = g.input("x0", (4,))
    for i in range(1, 7):
        total = total + g.input(f"x{i}", (4,))
    g.output("y", total)
    rules = "%phase expand\ncommute: x + y => y + x\nassociate: (x + y) + z => x + (y + z)"
    _, report, frozen = grow(g.build(), rules, **limits)
    assert report.stopped_by == reason
    assert frozen.roots["y"] in frozen.classes


def test_an_interruption_keeps_what_was_found() -> None:
    encoding = encode(two_products())
    report = Saturator(encoding.egraph, parse_rules(ASSOCIATIVE), Limits(), should_stop=lambda: True).run()
    assert report.stopped_by == "interrupted"
    assert snapshot(encoding).roots


def test_siblings_merge_all_at_once_and_not_with_what_depends_on_them() -> None:
    g = Builder("siblings")
    x = g.input("x", (1, 4))
    w = g.constant(np.ones((4, 4), np.float32))
    first = [g.input(f"x{i}", (1, 4)) @ w for i in range(3)]
    g.output("late", (x @ w) @ w)
    for i, y in enumerate(first):
        g.output(f"y{i}", y)
    rule = (
        "%phase merge\nrows: [matmul(x, w) for x in xs] => split(matmul(concat(*xs, axis=0), w), axis=0, "
        "sizes=[dim(x, 0) for x in xs]) if rank(w) == 2, all(rank(x) == 2 for x in xs)"
    )
    _, report, frozen = grow(g.build(), rule, generations=1)
    assert report.fired["rows"] == 1
    merged = [n for n in frozen.nodes if n.op == "concat"]
    assert [len(n.operands) for n in merged] == [4]


COLUMNS = (
    "%phase merge\ncolumns: [matmul(a, x) for x in xs] => split(matmul(a, concat(*xs, axis=-1)), axis=-1, "
    "sizes=[dim(x, -1) for x in xs]) if rank(a) == 2, all(rank(x) == 2 for x in xs)"
)


def test_siblings_of_any_depth_merge() -> None:
    """A @ B, A @ C and A @ tanh(D) share A; that one of them comes later is no reason to keep it apart."""
    g = Builder("depths")
    a, b, c, d = (g.input(name, (4, 4)) for name in "abcd")
    for name, x in (("ab", b), ("ac", c), ("late", g.apply("tanh", g.apply("tanh", d)))):
        g.output(name, a @ x)
    _, report, frozen = grow(g.build(), COLUMNS, generations=1)
    assert report.fired["columns"] == 2, "all three, and the two of one depth"
    assert sorted(len(n.operands) for n in frozen.nodes if n.op == "concat") == [2, 3]


def test_siblings_that_are_computed_from_each_other_stay_apart() -> None:
    """Of A @ x and A @ tanh(A @ x) none can wait for the other, but each can be merged with what is not in its way."""
    g = Builder("chain")
    a, x, y = (g.input(name, (4, 4)) for name in "axy")
    first = a @ x
    second = a @ g.apply("tanh", first)
    g.output("third", a @ g.apply("tanh", second))
    g.output("other", a @ g.apply("tanh", g.apply("tanh", g.apply("tanh", y))))
    encoding, _, frozen = grow(g.build(), COLUMNS, generations=1)
    (merged,) = (n for n in frozen.nodes if n.op == "concat")
    other = encoding.egraph.find(encoding.values["x"])
    assert len(merged.operands) == 2 and other in merged.operands, "the first is merged with the one that reads none"


def test_a_spread_matches_any_number_of_operands() -> None:
    g = Builder("spread")
    parts = [g.input(f"x{i}", (2, 3)) for i in range(5)]
    g.output("y", g.apply("relu", g.apply("concat", *parts, axis=1)))
    _, report, frozen = grow(
        g.build(), "relu-of-concat: relu(concat(*xs, axis=k)) => concat(*[relu(x) for x in xs], axis=k)"
    )
    assert report.fired == {"relu-of-concat": 1}
    ops = {frozen.nodes[i].op for i in frozen.classes[frozen.roots["y"]].nodes}
    assert ops == {"relu", "concat"}


def test_a_spread_binds_what_its_elements_share_once() -> None:
    """The same bias in every part moves out of a concat; where one part has another bias it does not."""
    rule = (
        "bias-out: concat(*[add(x, b) for x in xs], axis=k) => add(concat(*xs, axis=k), b) "
        "if off_axis(b, k, rank(xs[0]))"
    )
    for other, fired in ((0.5, 1), (0.25, 0)):
        g = Builder("bias")
        bias, last = (g.constant(np.float32([[v]])) for v in (0.5, other))
        parts = [g.input(f"x{i}", (2, 3)) + (last if i == 2 else bias) for i in range(3)]
        g.output("y", g.apply("concat", *parts, axis=1))
        _, report, _ = grow(g.build(), rule)
        assert report.fired["bias-out"] == fired


def test_two_spreads_in_step_need_equal_lengths() -> None:
    rule = (
        "sum-of-concats: concat(*xs, axis=k) + concat(*ys, axis=k) => concat(*[x + y for x, y in zip(xs, ys)], axis=k) "
        "if len(xs) == len(ys), all(same_shape(x, y) for x, y in zip(xs, ys))"
    )
    for widths, fired in (((1, 2), 1), ((1, 1, 1), 0)):
        g = Builder("zip")
        one = g.apply("concat", g.input("a", (2, 1)), g.input("b", (2, 2)), axis=1)
        two = g.apply("concat", *(g.input(f"c{i}", (2, w)) for i, w in enumerate(widths)), axis=1)
        g.output("y", one + two)
        _, report, _ = grow(g.build(), rule)
        assert report.fired["sum-of-concats"] == fired


def test_an_operand_that_comes_to_have_the_form_is_seen() -> None:
    """One operand of the concat is a relu only once a rule has made it one."""
    g = Builder("late")
    x, y = g.input("x", (2,)), g.input("y", (2,))
    g.output("z", g.apply("concat", g.apply("relu", x), g.apply("maximum", y, g.constant(np.float32([0]))), axis=0))
    rules = (
        "as-relu: maximum(x, c) => relu(x) if is_all(c, 0.0), spans(x, c)\n"
        "relu-out: concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k))"
    )
    _, report, _ = grow(g.build(), rules)
    assert report.fired == {"as-relu": 1, "relu-out": 1}


def test_what_lies_beyond_the_radius_is_not_made() -> None:
    g = Builder("chain")
    total = g.input("x0", (4,))
    for i in range(1, 7):
        total = total + g.input(f"x{i}", (4,))
    g.output("y", total)
    rules = "%phase expand\nassociate: (x + y) + z => x + (y + z)\ncommute: x + y => y + x"
    sizes = []
    for radius in (1, 2, 3):
        _, report, frozen = grow(g.build(), rules, radius=radius)
        assert report.stopped_by == "radius_limit"
        sizes.append(len(frozen.nodes))
    assert sizes == sorted(set(sizes))


def test_a_split_is_held_as_slices_and_comes_out_as_a_split() -> None:
    g = Builder("split")
    a, b = g.apply("split", g.input("x", (2, 6)), axis=1, sizes=(2, 4))
    g.output("a", g.apply("relu", a))
    g.output("b", g.apply("tanh", b))
    graph = g.build()
    encoding = encode(graph)
    frozen = snapshot(encoding)
    assert sum(n.op == "slice" for n in frozen.nodes) == 2
    extraction = tensor_problem(frozen, CostModel())
    made = assemble(extraction, solve(extraction.problem), graph).graph
    assert sorted(n.op for n in made.nodes) == ["relu", "split", "tanh"]
    assert [n.name for n in made.nodes if n.op == "split"] == [n.name for n in graph.nodes if n.op == "split"]


def test_finiteness_follows_constants_and_operators() -> None:
    g = Builder("finite")
    x = g.input("x", (2,))
    finite = x + g.constant(np.float32([1, 2]))
    g.output("finite", finite)
    g.output("masked", x + g.constant(np.float32([0, -np.inf])))
    g.output("quotient", x / finite)
    encoding = encode(g.build())
    facts = {name: encoding.egraph.eclass(k).finite for name, k in encoding.roots.items()}
    assert facts == {"finite": True, "masked": False, "quotient": False}
    lax = encode(g.build(), finite_math=True)
    assert all(lax.egraph.eclass(k).finite for k in lax.roots.values())
    strict = encode(g.build(), finite_math=False)
    assert not any(strict.egraph.eclass(k).finite for k in strict.roots.values())
    constants = [strict.egraph.eclass(strict.values[name]).finite for name in strict.graph.constants]
    assert constants == [True, False]


def test_an_input_that_a_model_asks_about_is_not_taken_for_finite() -> None:
    """Asked of the input element by element; a question about a product of matrices guards that product alone."""
    g = Builder("asked")
    x, y = g.input("x", (2, 2)), g.input("y", (2, 2))
    g.output("a", g.apply("isnan", g.apply("transpose", x * x, perm=(1, 0))))
    g.output("b", g.apply("isinf", y @ y))
    encoding = encode(g.build())
    assert [encoding.egraph.eclass(encoding.values[v]).finite for v in ("x", "y")] == [False, True]


def custom(*, asked: bool = False, body: bool = False) -> Graph:
    """What an unknown operator makes of x, or an If, multiplied by two weights, and the products added."""
    branch = "then_branch = g () => (float[4, 4] t) { t = Identity (x) }, else_branch = h () => (float[4, 4] e)"
    branch += " { e = Neg (x) }"
    made = f"m = If <{branch}> (c)" if body else "m, n = own.Own (x)"
    isnan = "asked = IsNaN (m)" if asked else "asked = Less (x, x)"
    text = f"""<ir_version: 8, opset_import: ["" : 17, "own" : 1]>
    custom (float[4, 4] x, bool c) => (float[4, 4] y, bool[4, 4] asked) <float[4, 4] m, float[4, 4] n,
      float[4, 4] w = {{{", ".join(["0.5"] * 16)}}}, float[4, 4] v = {{{", ".join(["1.5"] * 16)}}}>
    {{ {made}  {isnan}  a = MatMul (m, w)  b = MatMul (m, v)  y = Add (a, b) }}"""
    return load(onnx.parser.parse_model(text))


@pytest.mark.parametrize(("options", "finite"), [({}, True), ({"asked": True}, False), ({"body": True}, False)])
def test_what_an_unknown_operator_makes_is_taken_as_an_input_is(options: dict[str, bool], finite: bool) -> None:
    """Else no law crosses it; but a model that asks is heard, and a body may divide."""
    graph = custom(**options)
    encoding = encode(graph)
    assert encoding.egraph.eclass(encoding.values["m"]).finite == finite
    assert not encode(graph, finite_math=False).egraph.eclass(encoding.values["m"]).finite
    rules = parse_rules(
        "factor: x @ y + x @ z => x @ (y + z) if rank(y) == 2, rank(z) == 2, finite(x, y, z)", origin="candidate"
    )
    assert bool(Saturator(encoding.egraph, rules, Limits()).run().fired) == finite


def test_a_constant_that_is_added_to_round_is_hidden_from_rules() -> None:
    g = Builder("rounded")
    x = g.input("x", (3,))
    magic, mask = g.constant(np.float32([12582912.0])), g.constant(np.float32([0.0, -1e9, 0.0]))
    g.output("y", (x + magic) - magic)
    g.output("z", x + mask)
    g.output("w", x * g.constant(np.float32([1e30])))
    encoding = encode(g.build())
    known = {
        float(np.abs(encoding.graph.constants[v].array).max()): encoding.egraph.eclass(encoding.values[v]).constant
        for v in encoding.graph.constants
    }
    assert known == {12582912.0: False, 1e9: True, float(np.float32(1e30)): True}


def test_a_chain_of_rules_explains_an_equality() -> None:
    g = Builder("chain")
    x = g.input("x", (2, 2))
    g.output("y", g.apply("relu", g.apply("relu", g.apply("neg", g.apply("neg", x)))))
    g.output("z", g.apply("tanh", g.apply("neg", g.apply("neg", x))) - g.apply("tanh", x))
    encoding, _, frozen = grow(g.build(), "twice: relu(relu(x)) => relu(x)\nback: neg(neg(x)) => x")
    explainer = Explainer(encoding.egraph)
    root = frozen.classes[frozen.roots["y"]]
    target = next(frozen.nodes[i].number for i in root.nodes if frozen.nodes[i].operands == (0,))
    chain = explainer.chain(encoding.roots["y"], target)
    assert chain is not None
    assert [(s.rule, s.backwards) for s in chain] == [("twice", False)]
    tanhs = [k for k, n in enumerate(encoding.egraph.nodes) if n.op == "tanh"]
    between = explainer.chain(*tanhs)
    assert between is not None
    assert [s.rule for s in between] == [CONGRUENCE]
    assert explainer.chain(0, encoding.roots["y"]) is None


def test_growth_is_deterministic() -> None:
    first, second = (grow(two_products(), ASSOCIATIVE)[2] for _ in range(2))
    assert first.nodes == second.nodes


def test_a_mistake_in_a_program_becomes_an_error_of_ours() -> None:
    with pytest.raises(EngineError, match="egglog refused a program"):
        Engine().match("no_such_ruleset")


def test_a_query_gives_each_match_once_and_none_where_there_are_too_many() -> None:
    engine = Engine()
    engine.constructor("leaf", 0)
    engine.constructor("relu", 1)
    engine.ruleset("phase")
    for name in ("some", "all"):
        facts = ["(= t1 (relu n0 t0))"] if name == "some" else ["(= t0 (leaf n0))"]
        engine.query(name, "phase", facts, 2 if name == "some" else 1, 1)
    for number in range(3):
        engine.insert(number, "leaf", number, ())
    engine.insert(3, "relu", 7, (0,))
    relations = [("some", 2), ("all", 1)]
    engine.match("phase")
    classes, matches = engine.read(relations, limit=2)
    assert [[classes[c] for c in row[:2]] + [row[2]] for row in matches["some"]] == [[[0], [3], 7]]
    assert "all" not in matches
    engine.match("phase")
    assert engine.read(relations)[1] == {}
    engine.insert(4, "leaf", 9, ())
    engine.match("phase")
    classes, matches = engine.read(relations)
    assert [(classes[c], attrs) for c, attrs in matches["all"]] == [([4], 9)]


def test_what_was_not_handed_over_in_time_is_handed_over_later() -> None:
    readings = iter(range(1000))
    engine = Engine()
    engine.constructor("leaf", 0)
    for number in range(50_000):
        engine.insert(number, "leaf", number % 7, ())
    with Deadline(10.0, now=lambda: next(readings)), pytest.raises(TimeUp):
        engine.flush()
    assert next(readings) < 20
    classes, _ = engine.read([])
    assert sorted(map(len, classes)) == [*[7142] * 1, *[7143] * 6]


@pytest.mark.parametrize("place", ["memory", "folder", "nowhere"])
def test_many_rows_are_handed_over_whatever_files_there_are(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if place != "memory":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    if place == "nowhere":
        monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    engine = Engine()
    engine.constructor("leaf", 0)
    engine.constructor("two", 2)
    for number in range(50, 100):  # before what they are made of; the last reads a pair too
        engine.insert(number, "two", 0, (number - 50, number - 49))
    for number in range(50):
        engine.insert(number, "leaf", number % 5, ())
    engine.union(0, 50)
    classes, _ = engine.read([])
    ends = [[*range(k, 50, 5), *range(50 + k, 100, 5)] if k == 0 else [*range(k, 50, 5)] for k in range(5)]
    assert sorted(map(sorted, classes)) == sorted([*ends, *([*range(50 + k, 100, 5)] for k in range(1, 5))])


def test_equal_lists_of_very_many_operands_make_equal_nodes_though_some_are_shared() -> None:
    engine = Engine()
    engine.constructor("leaf", 0)
    engine.packed("many")
    for number in range(100):
        engine.insert(number, "leaf", number, ())
    engine.insert(100, "many", 0, range(99), packed=True)
    engine.insert(101, "many", 0, [*range(98), 99], packed=True)
    assert len(engine.read([])[0]) == 102
    engine.union(98, 99)
    classes, _ = engine.read([])
    assert [98, 99] in map(sorted, classes) and [100, 101] in map(sorted, classes)
    assert sorted(n for numbers in classes for n in numbers) == list(range(102))


def test_an_operand_that_is_no_tensor_does_not_match() -> None:
    g = Builder("types")
    x = g.input("x", (2,))
    with pytest.raises(ShapeError):
        g.apply("matmul", x, g.input("s", ()))
