"""The explorer on real models: blocks, views, tables, the page, and the command line."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import onnx
import pytest

import eqsat
from benchmarks.models import load
from benchmarks.models.sru import sru_text_classifier
from eqsat.explorer.explorer import Explorer
from eqsat.explorer.view.blocks import LEAST, MOST, blocks, by_value, inherited
from eqsat.explorer.view.tables import COSTS, ENODES, FIRINGS
from eqsat.explorer.view.views import GraphView
from eqsat.language.onnx.read.model import read
from eqsat.rewrites.rules.loader import load_rules


@pytest.fixture(scope="module")
def squeezenet() -> Explorer:
    """SqueezeNet grown to its end."""
    ex = eqsat.explore(load("squeezenet1_1"))
    ex.grow()
    return ex


@pytest.mark.parametrize(
    ("name", "path", "size"),
    [
        ("bert_base", ("encoder", "layer.5", "attention", "self"), 19),
        ("resnet50", ("layer3", "layer3.1"), 10),
        ("llama", ("model", "layers.2", "self_attn"), 38),
        ("squeezenet1_1", ("features", "features.9"), 7),
        ("resnet50_dynamo", ("layer2.1",), 7),
    ],
)
def test_names_of_nodes_or_weights_give_blocks(name: str, path: tuple[str, ...], size: int) -> None:
    graph = read(load(name)).graph
    found = blocks(graph)
    assert len(found) == len(graph.nodes)
    assert all(found)
    sizes = Counter(found)
    assert sizes[path] == size
    assert max(sizes.values()) <= MOST
    assert len(sizes) < len(found) / LEAST


def test_a_model_whose_nodes_are_numbered_is_cut_where_little_crosses() -> None:
    graph = read(load("nasnet_a")).graph
    found = blocks(graph)
    sizes = Counter(found)
    assert all(found)
    assert 10 <= min(sizes.values()) <= max(sizes.values()) <= MOST
    assert [p for i, p in enumerate(found) if i == 0 or found[i - 1] != p] == list(sizes)
    crossing = []
    for index in range(len(found) - 1):
        made = {v for node in graph.nodes[: index + 1] for v in node.outputs}
        crossing.append(len({v for node in graph.nodes[index + 1 :] for v in node.inputs if v in made}))
    cuts = [count for count, one, other in zip(crossing, found, found[1:], strict=False) if one != other]
    assert max(cuts) <= 4
    assert sum(cuts) / len(cuts) < 0.7 * sum(crossing) / len(crossing)
    assert len(blocks(read(load("taso_bert")).graph)) == 112


def test_new_nodes_take_the_block_of_what_they_lead_to(squeezenet: Explorer) -> None:
    graph = squeezenet.result.graph
    known = by_value(squeezenet.session.given.graph)
    found = inherited(graph, known)
    assert all(found)
    fresh = [i for i, node in enumerate(graph.nodes) if not any(v in known for v in node.outputs)]
    assert fresh
    for index in fresh:
        readers = [
            found[i] for i, n in enumerate(graph.nodes) if not set(n.inputs).isdisjoint(graph.nodes[index].outputs)
        ]
        assert found[index] in readers


def check(graph: GraphView) -> None:
    keys = {node.key for node in graph.nodes}
    assert len(keys) == len(graph.nodes)
    assert {k for edge in graph.edges for k in edge[:2]} <= keys
    kinds = {node.key: node.kind for node in graph.nodes}
    read_by = {a for a, _, _ in graph.edges}
    assert all(node.key in read_by for node in graph.nodes if node.kind in ("operator", "constant"))
    assert {kinds[b] for _, b, _ in graph.edges} <= {"operator", "opaque", "conversion", "output"}
    assert all(node.block and node.eclass is not None for node in graph.nodes if node.kind == "operator")


def test_the_view_agrees_with_the_result(squeezenet: Explorer) -> None:
    result = squeezenet.optimize(measure=False)
    view = squeezenet.view()
    assert view.original is not None
    assert view.result is not None
    for graph in (view.original, view.result):
        check(graph)
    operators = Counter(n.label for n in view.result.nodes if n.kind == "operator")
    assert operators == result.report.operators_after
    assert math.isclose(math.fsum(n.seconds or 0 for n in view.result.nodes), result.report.cost_after, rel_tol=1e-6)
    assert math.isclose(math.fsum(n.seconds or 0 for n in view.original.nodes), result.report.cost_before, rel_tol=1e-6)
    assert [c.what for c in view.changes] == [c.what for c in result.report.changes]
    assert {n.change for n in view.result.nodes} - {None} <= {c.number for c in view.changes}
    assert {n.change for n in view.original.nodes} - {None} == {c.number for c in view.changes}
    assert sum(len(c.forms) for c in view.classes) == result.report.enodes
    assert len(view.classes) == result.report.eclasses
    classes = {c.eclass: c for c in view.classes}
    for node in view.result.nodes:
        if node.kind == "operator":
            assert any(form.chosen for form in classes[node.eclass].forms)
    for graph in (view.original, view.result):
        for node in graph.nodes:
            if node.kind == "operator" and graph is view.original:
                assert set(node.names) & set(classes[node.eclass].values)
    assert {r.name: r.fired for r in view.rules} == dict(result.report.rules_fired)
    assert [(g.phase, g.nodes, g.classes) for g in view.growth] == [g[:3] for g in result.report.growth]
    assert json.loads(json.dumps(view.as_dict()))["title"] == view.title


def test_what_is_grown_and_then_chosen_is_what_optimize_returns() -> None:
    model = sru_text_classifier(steps=2, hidden=8)
    ex = eqsat.explore(model)
    ex.grow()
    one, other = ex.optimize(measure=False).report.to_json(), eqsat.optimize(model, measure=False).report.to_json()
    for report in (one, other):
        report.pop("seconds")
        report["growth"] = [g[:3] for g in report["growth"]]
        report["baselines"] = [b["name"] for b in report["baselines"]]
    assert one == other
    assert str(ex.report) == str(ex.result.report)


def test_tables_have_a_row_for_each_e_node_firing_and_kernel(squeezenet: Explorer) -> None:
    table, firings, costs = squeezenet.table(), squeezenet.firings(), squeezenet.costs()
    report = squeezenet.report
    assert tuple(table.columns) == ENODES
    assert tuple(firings.columns) == FIRINGS
    assert tuple(costs.columns) == COSTS
    assert len(table) == report.enodes
    assert table.eclass.nunique() == report.eclasses
    assert table.enode.is_unique
    assert (table[table.original].rule == "").all()
    assert (table[table.rule != ""].groupby("eclass").size() > 0).all()
    assert firings.groupby("rule").fired.sum().loc[lambda n: n > 0].to_dict() == dict(report.rules_fired)
    assert math.isclose(costs.seconds.sum(), squeezenet.choice.cost, rel_tol=1e-6)


def test_pictures_of_growth_and_of_the_difference(squeezenet: Explorer) -> None:
    assert squeezenet.growth().axes
    html = squeezenet.diff()._repr_html_()
    assert "data:image/svg+xml" in html
    assert "://" not in html.replace("http://www.w3.org", "")
    assert squeezenet.eclass("/classifier/classifier.1/Conv").name in squeezenet._repr_html_()


def test_the_widget_has_the_class_in_focus(squeezenet: Explorer) -> None:
    name = "/features/features.9/Concat_output_0"
    assert squeezenet.widget(name).selected == squeezenet.eclass(name).eclass


@pytest.fixture
def model(folder: Path) -> Path:
    """A small model in an empty folder."""
    onnx.save(sru_text_classifier(steps=2, hidden=8), "model.onnx")
    return folder


@pytest.mark.usefixtures("model")
def test_the_command_prints_what_was_found_and_writes_the_page(run) -> None:  # type: ignore[no-untyped-def]
    code, out, err = run("explore", "model.onnx", "--html", "page.html", "--tensor", "logits")
    assert (code, [line for line in err.splitlines() if "error" in line]) == (0, [])
    page = Path("page.html").read_text(encoding="utf-8")
    rules = [line.split()[0] for line in out.partition("rule ")[2].splitlines()[1:6]]
    assert set(rules) <= {rule.name for rule in load_rules()}
    assert all(rule in page for rule in rules)
    for words in ("e-nodes", "saturated", "proved to be the best", "1. ", "logits, float32", "wrote page.html"):
        assert words in out
    assert page.lower().startswith("<!doctype html>")
    assert {p.name for p in Path().iterdir()} - {"costs.sqlite3"} == {"model.onnx", "page.html"}


@pytest.mark.usefixtures("model")
def test_optimize_writes_the_page_of_its_own_run(run) -> None:  # type: ignore[no-untyped-def]
    assert run("optimize", "model.onnx", "-o", "plain.onnx", "--no-measure")[0] == 0
    code, out, _ = run("optimize", "model.onnx", "-o", "out.onnx", "--no-measure", "--html", "page.html")
    assert code == 0
    assert "wrote out.onnx and page.html" in out
    assert Path("out.onnx").read_bytes() == Path("plain.onnx").read_bytes()
    assert "its page" in run("optimize", "model.onnx", "-o", "same", "--no-measure", "--html", "same")[2]


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--open",), "--open without a page"),
        (("--html", "model.onnx"), "the target is the input"),
        (("--html", "none/page.html"), "the folder of the target does not exist"),
        (("--tensor", "logit"), "did you mean 'logits'"),
        (("--node-limit", "0"), "node_limit = 0"),
        (("--device", "abacus"), "abacus"),
    ],
)
def test_the_command_refuses(run, options: tuple[str, ...], message: str) -> None:  # type: ignore[no-untyped-def]
    before = Path("model.onnx").read_bytes()
    code, _, err = run("explore", "model.onnx", *options)
    assert code == 2
    assert message in err
    assert Path("model.onnx").read_bytes() == before
