"""The page, the pictures and the layout of a run, without a browser: structure, escaping, what goes where."""

import base64
import hashlib
import json
import random
import re
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from xml.etree import ElementTree

import pytest

pytest.importorskip("igraph", reason="the layout needs igraph (pip install eqsat[explore])")

from eqsat.errors import MissingExtraError
from eqsat.explorer.page.fragment import MOST_CHARACTERS, diff_html, fragment
from eqsat.explorer.page.layout import MOST_ITEMS, arrange, layered
from eqsat.explorer.page.page import page
from eqsat.explorer.page.payload import payload
from eqsat.explorer.page.static import MOST_NODES, diff_svg, eclass_table, folded, image
from eqsat.explorer.view.views import GraphView, NodeView, RunView
from eqsat.system.figure import figure_class
from tests.support import run_views


class Parsed(HTMLParser):
    """The tags of a page in order, their attributes, and what scripts and styles hold."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.held = [], defaultdict(list)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.held[len(self.tags) - 1].append(data)

    def handle_endtag(self, tag):
        self.tags.append((f"/{tag}", {}))

    def of(self, tag):
        return [(attrs, "".join(self.held[at])) for at, (name, attrs) in enumerate(self.tags) if name == tag]


@pytest.fixture(scope="module")
def large():
    return run_views.large()


def data_of(text):
    (data,) = (held for attrs, held in Parsed(text).of("script") if attrs.get("type") == "application/json")
    return json.loads(data)


@pytest.mark.parametrize("view", [run_views.small(), run_views.hostile(), RunView("empty")], ids=lambda v: v.title[:6])
def test_a_page_is_one_file_whose_policy_allows_its_own_script_and_style_alone(view):
    text = page(view)
    parsed = Parsed(text)
    assert [tag for tag, _ in parsed.tags].count("script") == 2
    (policy,) = (attrs["content"] for tag, attrs in parsed.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    digest = {
        name: f"'sha256-{base64.b64encode(hashlib.sha256(held.encode()).digest()).decode()}'"
        for name, (_, held) in (("script-src", parsed.of("script")[1]), ("style-src", parsed.of("style")[0]))
    }
    assert rules["default-src"] == "'none'"
    assert {name: rules[name] for name in digest} == digest
    assert not any({"src", "href", "action"} & set(attrs) for _, attrs in parsed.tags)
    assert set(re.findall(r"\w+://[\w./]+", text)) <= {"http://www.w3.org/2000/svg"}


def test_hostile_texts_change_nothing_in_the_markup_and_arrive_as_they_are():
    harmless, hostile = (page(view) for view in (run_views.small(), run_views.hostile()))
    assert [tag for tag, _ in Parsed(hostile).tags] == [tag for tag, _ in Parsed(harmless).tags]
    assert "\u2028" not in hostile
    data = data_of(hostile)
    assert set(run_views.HOSTILE) <= set(data["texts"])
    assert data["title"] == run_views.HOSTILE[1]
    assert [rule[0] for rule in data["rules"]] == list(run_views.HOSTILE)


def test_a_text_that_looks_like_a_place_of_the_template_stays_text():
    text = page(RunView("{{script}}{{data}}", report="{{style}}"))
    assert data_of(text)["title"] == "{{script}}{{data}}"
    assert "<title>{{script}}{{data}} - eqsat</title>" in text


def test_the_data_of_a_page_hold_the_run():
    view = run_views.small()
    data = data_of(page(view))
    texts = data["texts"]
    for graph, shown in zip((view.original, view.result), data["graphs"], strict=True):
        assert [texts[at] for at in shown["label"]] == [node.label for node in graph.nodes]
        assert shown["seconds"] == [node.seconds for node in graph.nodes]
        assert shown["change"] == [node.change for node in graph.nodes]
        assert shown["eclass"] == [node.eclass for node in graph.nodes]
    assert data["classes"]["id"] == [each.eclass for each in view.classes]
    forms = [form for each in view.classes for form in each.forms]
    assert data["classes"]["forms"] == [len(each.forms) for each in view.classes]
    assert [texts[at] for at in data["classes"]["op"]] == [form.op for form in forms]
    assert data["classes"]["operands"] == [list(form.operands) for form in forms]
    assert data["classes"]["marks"] == [form.chosen + 2 * form.original + 4 * form.estimated for form in forms]


def test_the_page_of_a_large_run_stays_small_and_an_e_graph_that_is_too_large_is_not_laid_out_whole(large):
    text = page(large)
    assert sum(len(each.forms) for each in large.classes) > 20_000
    assert len(text) < 4_000_000
    assert data_of(text)["whole"] is None
    assert data_of(page(run_views.small()))["whole"] is not None


def test_a_cost_that_is_not_finite_is_unknown_in_the_data():
    view = run_views.small()
    form = replace(view.classes[0].forms[0], total=float("inf"), seconds=float("nan"))
    data = payload(replace(view, classes=(replace(view.classes[0], forms=(form,)),)))
    assert (data["classes"]["total"], data["classes"]["seconds"]) == ([None], [None])


def test_layers_put_readers_below_and_sources_next_to_their_first_reader():
    layers = layered(5, [(0, 1), (1, 2), (3, 2), (0, 2)])
    assert layers.layer[:4] == (0, 1, 2, 1)
    assert [len(bends) for bends in layers.bends] == [0, 0, 0, 1]
    assert layers.bends[3][0][0] == 1


def test_edges_that_leave_one_vertex_share_their_bends_until_they_part():
    layers = layered(5, [(0, 1), (1, 2), (2, 3), (3, 4), (0, 3), (0, 4)])
    long, longer = layers.bends[4:]
    assert long == longer[:2]
    assert [layer for layer, _ in longer] == [1, 2, 3]


def test_bends_belong_to_their_edges_where_a_graph_has_several_parts():
    square = [(0, 1), (1, 2), (2, 3), (0, 3)]
    layers = layered(9, [(a + 4, b + 4) for a, b in square] + square)
    assert [[layer for layer, _ in bends] for bends in layers.bends] == [[], [], [], [1, 2]] * 2
    assert len(set(zip(layers.layer, layers.across, strict=True))) == 9


def test_layers_of_a_graph_with_cycles_and_loops_exist_and_bends_follow_each_edge():
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 1), (0, 3)]
    layers = layered(5, edges)
    assert layers == layered(5, edges)
    assert len(layers.bends[4]) == 3
    for (a, b), bends in zip(edges, layers.bends, strict=True):
        route = [layers.layer[a], *(layer for layer, _ in bends), layers.layer[b]]
        assert all(abs(one - other) == 1 for one, other in pairwise(route)) or a == b


def test_cycles_and_loops_of_any_kind_have_layers():
    for seed in range(60):
        rng = random.Random(seed)
        edges = [(a, b) for a in range(9) for b in range(9) if rng.random() < 0.3]
        layers = layered(9, edges)
        assert all(layers.layer[a] != layers.layer[b] for a, b in edges if a != b)


def test_every_edge_runs_from_port_to_port_through_the_blocks_between_its_ends(large):
    graph = large.original
    layout = arrange(graph)
    keys = [node.key for node in graph.nodes]
    index = {path: number for number, path in enumerate(block.path for block in layout.blocks)}
    drawn = defaultdict(set)
    for block in layout.blocks:
        for line in block.lines:
            start, end = block.items[line.start], block.items[line.end]
            assert start.kind in ("node", "block", "in")
            assert end.kind in ("node", "block", "out")
            if start.kind == "node":
                assert start.index == line.source
            if end.kind == "node":
                drawn[line.source].add(end.index)
            if end.kind == "block":  # the value goes on inside
                inner = layout.blocks[end.index]
                assert any(inner.items[one.start].kind == "in" and one.source == line.source for one in inner.lines)
    assert {(keys[a], keys[b]) for a, ends in drawn.items() for b in ends} == {(a, b) for a, b, _ in graph.edges}
    placed = Counter(item.index for block in layout.blocks for item in block.items if item.kind == "node")
    assert placed == Counter(range(len(keys)))
    assert all(layout.blocks[index[block.path]] is block for block in layout.blocks)


def test_items_of_a_layer_stand_apart(large):
    for block in arrange(large.original).blocks:
        places = defaultdict(list)
        for layer, across in zip(block.layer, block.across, strict=True):
            places[layer].append(across)
        for row in map(sorted, places.values()):
            assert all(b - a > 0.99 for a, b in pairwise(row))


def test_a_graph_without_blocks_is_cut_into_parts_that_follow_its_edges(large):
    flat = replace(large.original, nodes=tuple(replace(node, block=()) for node in large.original.nodes))
    layout = arrange(flat)
    assert max(len(block.items) for block in layout.blocks) <= MOST_ITEMS
    outer = layout.blocks[0]
    assert all(outer.layer[line.start] < outer.layer[line.end] for line in outer.lines)


def test_constants_stand_on_the_operators_that_read_them_and_by_themselves_where_an_output_does():
    nodes = (
        NodeView("w", "constant", "w"),
        NodeView("v", "constant", "v"),
        NodeView("f", "operator", "relu"),
        NodeView("y", "output", "y"),
    )
    layout = arrange(GraphView("g", nodes, (("w", "f", ""), ("v", "f", ""), ("v", "y", ""), ("f", "y", ""))))
    assert layout.tucked == {2: (0,)}
    assert {item.index for item in layout.blocks[0].items} == {1, 2, 3}


def test_the_still_picture_holds_both_graphs_with_costs_and_numbered_changes():
    root = ElementTree.fromstring(diff_svg(run_views.small()))
    texts = [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert Counter(texts) >= Counter({"Original": 1, "Result": 1, "matmul": 3, "1": 4, "12 µs": 3, "est. 2 µs": 1})
    assert "w1" not in texts


def test_the_still_picture_of_a_large_graph_folds_blocks_and_sums_their_costs(large):
    narrow = run_views.large(layers=40)
    drawn = folded(narrow.original)
    blocks = [node for node in drawn.nodes if node.kind == "block"]
    assert len(drawn.nodes) <= MOST_NODES
    assert {f"layer.{n}" for n in range(9, 40)} <= {node.label for node in blocks}
    assert any(node.label == "attention" for node in blocks), "blocks are opened while there is room"
    assert [node.detail for node in folded(large.original).nodes if node.kind == "block"] == ["5000 ops · 19.3 ms"]


def test_hostile_texts_cannot_run_in_pictures_and_tables():
    view = run_views.hostile()
    ElementTree.fromstring(diff_svg(view))
    for text in (eclass_table(view.classes[0]), diff_html(view), image(diff_svg(view), view.title)):
        assert not re.search(r"<(script|img src=x)|<!--", text)
        assert {tag.strip("/") for tag, _ in Parsed(text).tags} <= {
            "table",
            "caption",
            "thead",
            "tbody",
            "tr",
            "th",
            "td",
            "img",
            "ol",
            "li",
        }
        assert not any(name.startswith("on") for _, attrs in Parsed(text).tags for name in attrs)


def test_the_table_of_a_class_lists_forms_by_cost_and_marks_the_chosen_one():
    text = eclass_table(run_views.small().classes[5])
    rows = re.findall(r"<tr>(.*?)</tr>", text)[1:]
    assert [re.sub(r"<[^>]+>", "|", row).strip("|").split("||")[0] for row in rows][:2] == ["chosen", "original"]
    assert "bold" in rows[0] and "bold" not in rows[1]
    assert "matmul-distributes" in rows[0]
    assert "shared parts counted each time; the choice counts them once" in text
    assert re.findall(r"<th [^>]*>([^<]*)", text) == ["", "form", "of classes", "own cost", "tree cost", "by rule"]


def test_a_fragment_is_still_first_and_its_frame_is_closed_off(large):
    text = fragment(run_views.small(), still="<p>still</p>")
    assert text.startswith("<p>still</p><details>")
    ((frame, _),) = Parsed(text).of("iframe")
    assert frame["sandbox"] == "allow-scripts"
    assert data_of(frame["srcdoc"])["title"] == "small"
    heavy = replace(large, report="x" * MOST_CHARACTERS)
    assert "<iframe" not in fragment(heavy)
    assert "write it to a file" in fragment(heavy)


def test_the_figure_of_growth_has_every_step_and_the_rules_that_fired_most(large):
    pytest.importorskip("matplotlib", reason="needs matplotlib (pip install eqsat[explore])")
    from eqsat.explorer.page.plots import growth_figure

    above, below = growth_figure(large.growth).axes
    assert [list(line.get_ydata()) for line in above.lines] == [
        [step.nodes for step in large.growth],
        [step.classes for step in large.growth],
    ]
    heights = Counter()
    for bars in below.containers:
        heights.update({number: bar.get_height() for number, bar in enumerate(bars)})
    assert [heights[n] for n in range(len(large.growth))] == [sum(step.fired.values()) for step in large.growth]
    assert [text.get_text() for text in below.get_legend().get_texts()][-1] == "others"
    assert len(below.containers) == 13


def test_a_notebook_shows_a_figure_whatever_backend_is_on(large):
    pytest.importorskip("matplotlib", reason="needs matplotlib (pip install eqsat[explore])")
    from eqsat.explorer.page.plots import growth_figure

    assert growth_figure(large.growth)._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize("package", ["igraph", "matplotlib", "anywidget"])
def test_what_is_not_installed_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.setitem(sys.modules, f"{package}.figure", None)
    from eqsat.explorer.page import plots, widget

    widget.widget_class.cache_clear()
    figure_class.cache_clear()
    calls = {
        "igraph": lambda: page(run_views.small()),
        "matplotlib": lambda: plots.growth_figure(()),
        "anywidget": lambda: widget.egraph_widget(run_views.small()),
    }
    with pytest.raises(
        MissingExtraError, match=rf"(?s){package} is not installed.*pip install 'eqsat\[(explore|plot)\]'"
    ):
        calls[package]()


def test_the_widget_keeps_its_data_with_its_view():
    pytest.importorskip("anywidget", reason="needs anywidget (pip install eqsat[explore])")
    from eqsat.explorer.page.widget import egraph_widget

    view = run_views.small()
    widget = egraph_widget(view, selected=5)
    seen = []
    widget.observe(lambda change: seen.append(change["name"]), names=["selected", "data"])
    widget.selected = None
    flipped = [replace(form, chosen=not form.chosen) for form in view.classes[5].forms[:2]]
    widget.view = replace(view, classes=(replace(view.classes[5], forms=tuple(flipped)),))
    assert seen == ["selected", "data"]
    assert widget.data["classes"]["marks"] == [7, 0]
    assert widget.data["graphs"] == []
    assert {"data", "selected", "height"} <= set(widget.keys)
