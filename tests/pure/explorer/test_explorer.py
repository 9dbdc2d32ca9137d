"""The explorer on small graphs: growth step by step, equal forms, changed costs, and what it refuses."""

from __future__ import annotations

import math
import signal
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.costs.model.asked import Application
from eqsat.egraph.egraph import CONST, INPUT
from eqsat.egraph.encode import encode
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Limits
from eqsat.errors import CostError, EqsatError, UsageError
from eqsat.explorer.explorer import Explorer
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run_node
from eqsat.language.terms.graph import Node
from eqsat.rewrites.rules.loader import load_rules
from eqsat.rewrites.rules.parser import parse_rules
from tests.support.choices import enumerate_choices

ASSOCIATIVE = "assoc: (x @ y) @ z <=> x @ (y @ z) if rank(y) == 2, rank(z) == 2"


def attention(width: int = 8) -> eqsat.Graph:
    """softmax(0.25 q k') v with q, k and v of one input."""
    g = eqsat.Graph("attention")
    rng = np.random.default_rng(0)
    x = g.input("x", (1, 4, width))
    weights = [rng.standard_normal((width, width)).astype(np.float32) for _ in range(3)]
    q, k, v = (x @ g.constant(w, name=n) for w, n in zip(weights, ("wq", "wk", "wv"), strict=True))
    g.output("y", eqsat.softmax((q @ k.transpose(0, 2, 1)) * 0.25, axis=-1) @ v)
    return g


def chain(count: int = 4) -> tuple[eqsat.Graph, list[eqsat.Tensor]]:
    """A product of matrices that no order makes equally dear."""
    g = eqsat.Graph("chain")
    sizes = [2, 64, 3, 48, 5, 32, 7][: count + 1]
    factors = [g.input(f"m{i}", (a, b)) for i, (a, b) in enumerate(pairwise(sizes))]
    made = [factors[0]]
    for factor in factors[1:]:
        made.append(made[-1] @ factor)
    g.output("y", made[-1])
    return g, made


def associative(count: int = 4) -> tuple[Explorer, list[eqsat.Tensor]]:
    g, made = chain(count)
    return eqsat.explore(g, rules=parse_rules(ASSOCIATIVE), layouts="row"), made


def state(ex: Explorer) -> tuple[Any, ...]:
    report, egraph = ex.session.saturator.report, ex.session.encoding.egraph
    return egraph.size(), report.fired, report.refused, [g[:3] for g in report.growth], report.stopped_by


def test_steps_one_by_one_come_to_what_a_run_comes_to() -> None:
    graph = attention().build()
    whole = eqsat.explore(graph, time_limit=150)
    whole.grow()
    run = whole.session.saturator.report
    ex = eqsat.explore(graph, time_limit=150)
    sizes, phases = [], []
    while (taken := ex.step()).steps:
        assert len(taken.steps) == 1
        sizes.append(taken.steps[0].after)
        phases.append(taken.steps[0].phase)
        assert ex.session.saturator.report.stopped_by in ("paused", run.stopped_by)
    assert state(ex) == state(whole)
    assert phases == [s.phase for s in run.steps]
    assert sum((s.fired for s in run.steps), Counter()) == run.fired
    assert all(s.matched >= s.fired for s in run.steps)
    assert [len(s.firings) for s in run.steps] == [s.fired.total() for s in run.steps]


def test_growth_goes_on_around_the_best_choice() -> None:
    graph = attention().build()
    encoding = encode(graph)
    near = Saturator(encoding.egraph, load_rules(), Limits(seconds=60)).run()
    ex = eqsat.explore(graph)
    ex.grow()
    grown = ex.session.saturator.report
    assert [s.firings for s in grown.steps[: len(near.steps)]] == [s.firings for s in near.steps]
    assert ex.session.encoding.egraph.size() > encoding.egraph.size()


def test_a_step_says_which_rule_fired_where_and_what_was_refused() -> None:
    g = attention()
    ex = eqsat.explore(g)
    taken = ex.step("merge")
    assert taken.fired == {"matmuls-merge-along-n": 1}
    assert taken.where == {"matmuls-merge-along-n": ["matmul_0", "matmul_1", "matmul_2"]}
    (before, _), (after, _) = taken.before, taken.after
    assert before == 13 < after == ex.session.encoding.egraph.size()[0]
    assert "matmuls-merge-along-n" in str(taken)
    assert "matmul_0, matmul_1, matmul_2" in taken._repr_html_()
    refused = ex.step("simplify").refused
    assert refused["mul-one"] == {"not all 1": 1}
    assert "1 × not all 1" in str(ex.session.totals().rows())
    ex.grow()
    rest = ex.step()
    assert not rest.steps
    assert "no step: saturated within the radius" in str(rest)


@pytest.mark.parametrize("after", [1, 2, 5, 9, 30, 80, 105])
def test_growth_that_was_interrupted_goes_on_and_loses_no_match(after: int) -> None:
    whole, _ = associative(6)
    whole.grow()
    assert whole.session.saturator.report.stopped_by == "saturated"
    left = [after]

    def should_stop() -> bool:
        left[0] -= 1
        return left[0] == 0

    ex = eqsat.explore(chain(6)[0], rules=parse_rules(ASSOCIATIVE), layouts="row", should_stop=should_stop)
    first = ex.grow()
    assert first.stopped_by == "interrupted"
    assert "grow() goes on" in str(first)
    assert first.steps
    assert ex.choose("greedy").cost > 0
    assert ex.grow().stopped_by == "saturated"
    assert state(ex) == state(whole)
    assert ex.choose().cost == pytest.approx(whole.choose().cost, rel=1e-12)


def test_limits_that_stopped_growth_can_be_raised() -> None:
    whole, _ = associative(6)
    whole.grow()
    ex = eqsat.explore(chain(6)[0], rules=parse_rules(ASSOCIATIVE), layouts="row", node_limit=16)
    assert ex.grow().stopped_by == "node_limit"
    assert ex.session.encoding.egraph.size()[0] < 41
    assert ex.grow(node_limit=1000).stopped_by == "saturated"
    assert state(ex) == state(whole)
    late = eqsat.explore(chain(6)[0], rules=parse_rules(ASSOCIATIVE), layouts="row", time_limit=1e-9)
    assert late.grow().stopped_by == "time_limit"
    assert late.grow(time_limit=30).stopped_by == "saturated"
    with pytest.raises(UsageError, match="node_limit = 0"):
        ex.grow(node_limit=0)


def test_ctrl_c_keeps_what_was_found() -> None:
    sent = []

    def progress(news: eqsat.Progress) -> None:
        if news.phase == "saturate" and news.detail == "expand" and not sent:
            sent.append(news.nodes)
            signal.raise_signal(signal.SIGINT)

    ex = eqsat.explore(attention(), progress=progress)
    first = ex.grow()
    assert first.stopped_by == "interrupted"
    assert ex.session.encoding.egraph.size()[0] >= sent[0] > 13
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ex.grow().stopped_by == "radius_limit"
    whole = eqsat.explore(attention())
    whole.grow()
    assert state(ex) == state(whole)


def test_another_thread_is_told_that_the_e_graph_is_not_its_own() -> None:
    ex, _ = associative()
    ex.step()
    with ThreadPoolExecutor(1) as pool:
        for call in (ex.step, ex.grow, ex.choose):
            with pytest.raises(UsageError, match="in the thread that made it") as error:
                pool.submit(call).result()
            assert "hand the work to that thread" in str(error.value)
    assert threading.current_thread() is threading.main_thread()
    assert ex.grow().stopped_by == "saturated"


def test_all_forms_of_every_class_compute_the_same_numbers() -> None:
    ex = eqsat.explore(attention())
    ex.grow()
    snapshot, egraph = ex.session.snapshot, ex.session.encoding.egraph
    floats = Floats(wide=True)
    feed = np.random.default_rng(1).standard_normal((1, 4, 8))
    known: dict[int, np.ndarray] = {}

    def value(position: int) -> np.ndarray | None:
        node = snapshot.nodes[position]
        if node.op == INPUT:
            return feed
        if node.op == CONST:
            constant = snapshot.constants[node.attrs["index"]]
            return np.asarray(floats.constant(constant.array, constant.type))
        if any(k not in known for k in node.operands):
            return None
        types = [snapshot.classes[k].type for k in node.operands]
        step = Node(node.op, (), (), node.attrs)
        (made,) = run_node(floats, step, [known[k] for k in node.operands], types, list(node.types))  # type: ignore[arg-type]
        return np.asarray(made)

    while len(known) < len(snapshot.classes):
        before = len(known)
        for leader, found in snapshot.classes.items():
            made = next((v for p in found.nodes if (v := value(p)) is not None), None)
            if leader not in known and made is not None:
                known[leader] = made
        assert len(known) > before
    checked = 0
    for leader in snapshot.classes:
        for form in ex.eclass(leader):
            assert egraph.find(form.enode) == leader
            position = next(p for p in snapshot.classes[leader].nodes if snapshot.nodes[p].number == form.enode)
            np.testing.assert_allclose(value(position), known[leader], rtol=1e-6, atol=1e-8)
            checked += 1
    assert checked == len(snapshot.nodes) > 100


def test_forms_have_their_costs_and_the_chosen_one_is_marked() -> None:
    ex, made = associative()
    ex.grow()
    forms = ex.eclass("y")
    assert forms.values == ("matmul_2",)
    assert len(forms) == 3 == len({form.text for form in forms})
    assert [form.op for form in forms] == ["matmul"] * 3
    assert sum(form.chosen for form in forms) == sum(form.original for form in forms) == 1
    assert forms[0].chosen
    assert forms[0].total == pytest.approx(ex.choice.cost)
    assert min(form.total or math.inf for form in forms) == forms[0].total
    fired = ex.session.saturator.report.fired
    assert all((form.rule in fired) != form.original for form in forms)
    assert next(form for form in forms if form.original).rule == ""
    assert next(form for form in forms if form.original).text == "matmul(matmul_1, m3)"
    assert all(form.cost is not None and form.estimated for form in forms)
    for same in (made[-1], "matmul_2", forms.eclass, forms, forms[1], f"#{forms.eclass}"):
        assert ex.eclass(same).eclass == forms.eclass
    assert "chosen" in str(forms)
    assert "font-weight:bold" in forms._repr_html_()
    assert ex.best["y"] == forms[0]
    assert ex.best.cost == ex.choice.cost


def test_the_cost_of_a_tree_is_named_and_told_from_that_of_the_choice() -> None:
    g = eqsat.Graph("shared")
    x = g.input("x", (64, 64))
    shared = x @ x
    g.output("y", eqsat.relu(shared) + eqsat.tanh(shared))
    ex = eqsat.explore(g, rules=parse_rules(ASSOCIATIVE), layouts="row")
    ex.grow()
    forms = ex.eclass("y")
    (product,) = ex.eclass(shared)
    assert product.cost is not None and forms[0].total is not None
    assert forms[0].total == pytest.approx(ex.choice.cost + product.cost), "the tree counts the product twice"
    note = "tree cost: with the cheapest operands, shared parts counted each time; the choice counts them once"
    for text in (str(forms), forms._repr_html_()):
        assert note in text
        assert "with what it needs" not in text
    assert note not in str(ex.eclass("x")), "an input is no tree"


def test_the_integer_program_chooses_what_enumeration_finds_best_at_any_costs() -> None:
    ex, _ = associative(5)
    ex.grow()
    rng = np.random.default_rng(0)

    def least() -> float:
        program = ex.session.extraction.problem.program
        return min(math.fsum(program.costs[o] for o in c.values()) for c in enumerate_choices(program))

    seen = set()
    for _ in range(8):
        assert ex.choose("ilp").cost == pytest.approx(least(), rel=1e-12)
        assert ex.choice.status == "optimal"
        assert ex.choice.gap == 0
        seen.add(ex.best["y"].enode)
        ex.reprice(ex.best["y"], float(rng.uniform(1e-6, 1e-5)))
    assert len(seen) > 1


def test_a_dearer_form_is_left_and_a_change_taken_back() -> None:
    ex, _ = associative()
    ex.grow()
    before, grown = ex.best["y"], state(ex)
    cost = ex.best.cost
    flips = ex.reprice(before, 1.0)
    assert ex.best["y"].enode != before.enode
    assert "matmul_2" in {name for name, _, _ in flips.rows}
    assert ex.best.cost > cost
    assert [form.cost for form in ex.eclass("y") if form.enode == before.enode] == [1.0]
    assert len(ex.repriced) == 1
    assert ex.repriced[0] in repr(ex)
    dearer = ex.reprice("matmul", lambda seconds: 10 * seconds)
    assert dearer.after.cost == pytest.approx(10 * dearer.before.cost)
    assert not dearer.rows
    assert "the choice stays" in dearer._repr_html_()
    assert "<table" not in dearer._repr_html_(), "a table without rows is a heading over nothing"
    assert "<table" in flips._repr_html_()
    ex.undo()
    assert ex.undo().after.cost == cost
    assert ex.best["y"].enode == before.enode
    assert state(ex) == grown
    with pytest.raises(UsageError, match="no cost was changed"):
        ex.undo()


def test_a_function_of_applications_stands_in_place_of_the_objective() -> None:
    ex, _ = associative()
    ex.grow()

    def flops(applied: Application) -> float:
        return float(applied.cost.flops)

    flips = ex.reprice(flops)
    assert "flops" in flips.what
    other = eqsat.explore(chain()[0], rules=parse_rules(ASSOCIATIVE), layouts="row", cost=flops)
    other.grow()
    assert ex.best.cost == other.best.cost > 100
    assert ex.best["y"].text == other.best["y"].text


def test_the_result_follows_changed_costs_and_says_so() -> None:
    ex, _ = associative()
    ex.grow()
    plain = ex.optimize(measure=False)
    assert plain.report.cost_after == pytest.approx(ex.best.cost)
    ex.reprice(ex.best["y"], 1.0)
    other = ex.optimize(measure=False)
    assert any("costs were changed" in warning for warning in other.report.warnings)
    assert other.graph.nodes != plain.graph.nodes
    rng, shapes = np.random.default_rng(0), [(2, 64), (64, 3), (3, 48), (48, 5)]
    feeds = {f"m{i}": rng.standard_normal(shape).astype(np.float32) for i, shape in enumerate(shapes)}
    np.testing.assert_allclose(other.run(**feeds)["y"], plain.run(**feeds)["y"], rtol=1e-4)
    assert ex.result is other


def test_a_chain_leads_from_one_form_to_another_by_rules_that_fired() -> None:
    ex, _ = associative()
    ex.grow()
    forms = ex.eclass("y")
    original = next(form for form in forms if form.original)
    for form in forms:
        found = ex.why(original, form)
        assert (found.source, found.target) == (original.text, form.text)
        assert (len(found) > 0) == (form is not original)
        assert set(found.rules) <= set(ex.session.saturator.report.fired)
        assert found.gaps == 0
    assert ex.why("y").target == ex.best["y"].text
    assert "by assoc" in str(ex.why("y"))
    with pytest.raises(UsageError, match="not known to be equal"):
        ex.why("matmul_0", "matmul_1")


def test_what_is_not_there_is_refused_with_what_is_near() -> None:
    ex, _ = associative()
    other, made = chain()
    with pytest.raises(UsageError, match="no value 'matmull_1'") as error:
        ex.eclass("matmull_1")
    assert "did you mean 'matmul_1'" in str(error.value)
    with pytest.raises(UsageError, match="no e-class 4000"):
        ex.eclass(4000)
    with pytest.raises(UsageError, match="names no tensor"):
        ex.eclass(True)
    with pytest.raises(UsageError, match="belongs to graph 'chain'"):
        ex.eclass(made[-1])
    with pytest.raises(UsageError, match="no phase 'grow'"):
        ex.step("grow")
    with pytest.raises(UsageError, match="no extractor 'best'"):
        ex.choose("best")
    with pytest.raises(UsageError, match="no operator 'conv' in the e-graph"):
        ex.reprice("conv", 1.0)
    with pytest.raises(UsageError, match="cost = None"):
        ex.reprice("matmul")
    with pytest.raises(CostError, match=r"cost -1\.0"):
        ex.reprice("matmul", -1.0)
    with pytest.raises(CostError, match="raised ZeroDivisionError"):
        ex.reprice("matmul", lambda seconds: seconds / 0)
    assert ex.repriced == ()
    with pytest.raises(EqsatError, match="node_limit = 0"):
        eqsat.explore(other, node_limit=0)
    with pytest.raises(UsageError, match="the file cannot be written"):
        ex.save("no-such-folder/page.html")


def test_explore_stays_the_function_when_its_package_is_imported() -> None:
    import eqsat.explorer.explorer as imported

    assert callable(eqsat.explore)
    assert imported.explore is eqsat.explore
    assert eqsat.Explorer is Explorer
