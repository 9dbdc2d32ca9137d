"""The page and the widget in a real headless Chromium: clicks, search, keys, history, and that nothing leaves."""

import base64
import json
from dataclasses import replace

import pytest
from playwright import sync_api as playwright

from eqsat.explorer.page.fragment import diff_html, fragment
from eqsat.explorer.page.page import page
from eqsat.explorer.page.static import eclass_table
from eqsat.explorer.view.views import ClassView, FormView, RunView
from tests.support import run_views

expect = playwright.expect


def node(tab, side, label):
    return tab.locator(f'[data-side="{side}"] .node', has=tab.locator("text.name", has_text=label)).first


def box_of(target):
    """Where an element is, asked in one step: a drawing may replace its nodes between two."""
    return target.evaluate_all("([one]) => one.getBoundingClientRect().toJSON()")


def in_view(tab, target):
    box, frame = box_of(target), box_of(tab.locator(".drawing").first)
    return box["y"] >= frame["y"] and box["y"] + box["height"] <= frame["y"] + frame["height"]


def test_a_click_on_a_node_opens_its_class_with_all_forms(visit):
    tab = visit("small")
    expect(tab.locator("aside")).to_be_hidden()
    node(tab, 0, "add").click()
    expect(tab.locator("aside h2")).to_have_text("sum_out class 5")
    rows = tab.locator(".forms tbody tr")
    expect(rows).to_have_count(3)
    expect(rows.nth(0)).to_contain_text("by matmul-distributes")
    expect(rows.nth(0).locator(".operands a")).to_have_text(["x", "w"])
    expect(rows.nth(0).locator(".tag")).to_have_text(["chosen"])
    expect(rows.nth(0).locator(".number")).to_have_text(["12 µs", "12 µs"])
    expect(rows.nth(1).locator(".tag")).to_have_text(["original"])
    expect(rows.nth(1).locator(".number")).to_have_text(["est. 2 µs", "est. 26 µs"])
    expect(rows.nth(2)).to_contain_text("by add-commutes")
    # the same class in the result is marked
    expect(tab.locator('[data-side="1"] .node.same')).to_contain_text("matmul")


def test_links_to_operands_make_a_history_and_an_address_opens_a_class(visit):
    tab = visit("small", "#class=5")
    expect(tab.locator("aside h2")).to_contain_text("sum_out")
    tab.locator('[data-operand="7"]').click()
    expect(tab.locator("aside h2")).to_have_text("w class 7")
    assert "class=7" in tab.url
    tab.get_by_role("button", name="Back").click()
    expect(tab.locator("aside h2")).to_have_text("sum_out class 5")
    tab.get_by_role("button", name="Forward").click()
    expect(tab.locator("aside h2")).to_have_text("w class 7")
    tab.get_by_role("button", name="Close the class").click()
    expect(tab.locator("aside")).to_be_hidden()
    node(tab, 0, "relu").click()
    expect(tab.locator("aside h2")).to_have_text("relu_out class 6")
    tab.go_back()
    expect(tab.locator("aside")).to_be_hidden()


def test_a_constant_on_a_node_opens_its_own_class(visit):
    tab = visit("small")
    tab.get_by_role("button", name="constant w1", exact=True).click()
    expect(tab.locator("aside h2")).to_have_text("w1 class 1")


def test_an_address_of_a_class_that_is_not_there_says_so(visit):
    tab = visit("small", "#class=99")
    expect(tab.locator("aside")).to_contain_text("no class 99")


def test_blocks_fold_and_unfold_with_their_costs_and_changes(visit):
    tab = visit("small")
    left = tab.locator('[data-side="0"]')
    expect(left.locator(".node")).to_have_count(6)
    left.get_by_role("button", name="Fold block head").click()
    expect(left.locator(".node")).to_have_count(4)
    folded = left.get_by_role("button", name="Unfold block head")
    expect(folded).to_contain_text("2 ops · 24 µs")
    expect(folded.locator(".badge")).to_have_text(["1"])
    expect(folded).to_be_focused()
    tab.keyboard.press("Enter")
    expect(left.locator(".node")).to_have_count(6)
    left.get_by_role("button", name="Fold all blocks", exact=True).click()
    expect(left.locator(".node")).to_have_count(2)


def test_a_large_graph_starts_folded_and_unfolds_to_what_is_near_the_view(visit):
    tab = visit("large")
    left = tab.locator('[data-side="0"]')
    assert left.locator(".node").count() < 50
    expect(left.get_by_role("button", name="Unfold block layer.0", exact=True)).to_be_visible()
    left.get_by_role("button", name="Unfold all blocks").click()
    expect(left.locator('[data-node="1"]')).to_be_visible()
    assert left.locator("svg *").count() < 6000
    left.get_by_role("button", name="Show it whole").click()
    tab.wait_for_timeout(100)
    assert left.locator(".node").count() == 5002, "from afar all are drawn, without texts"
    assert left.locator(".node text").count() == 0


def test_search_finds_a_node_inside_folded_blocks_and_opens_its_class(visit):
    tab = visit("medium")
    assert tab.locator('[data-side="0"] [data-node="1111"]').count() == 0
    tab.keyboard.press("/")
    expect(tab.locator("#search")).to_be_focused()
    tab.keyboard.type("N1111_OUT")
    expect(tab.locator("#found [role=option]").first).to_contain_text("n1111_out")
    tab.keyboard.press("Enter")
    found = tab.locator('[data-side="0"] [data-node="1111"]')
    expect(found).to_have_class("node operator chosen same")
    assert in_view(tab, found)
    expect(tab.locator("aside h2")).to_contain_text("n1111_out")
    for block in ("layer.55", "mlp"):
        expect(
            tab.locator('[data-side="0"]').get_by_role("button", name=f"Fold block {block}", exact=True)
        ).to_be_visible()


def test_search_finds_operators_blocks_and_classes_and_says_when_there_is_nothing(visit):
    tab = visit("medium")
    box = tab.locator("#search")
    box.fill("layer.42")
    tab.locator("#found [role=option]", has_text="block, result").first.click()
    for side in (0, 1):  # the block of that path is shown on both sides
        target = tab.locator(f'[data-side="{side}"] [data-block].chosen')
        expect(target).to_contain_text("layer.42")
        assert in_view(tab, target)
    box.fill("gelu")
    expect(tab.locator("#found [role=option]")).to_have_count(40)
    expect(tab.locator("#found")).to_contain_text("more")
    box.fill("nothing of this name")
    expect(tab.locator("#found")).to_contain_text("Nothing has that name.")
    tab.keyboard.press("Escape")
    expect(tab.locator("#found")).to_be_hidden()


def test_a_change_is_coloured_numbered_and_shown_alone(visit):
    tab = visit("small")
    expect(tab.locator('[data-side="0"] .node.changed.hue1')).to_have_count(3)
    expect(tab.locator('[data-side="0"] .node .badge')).to_have_text(["1", "1", "1"])
    tab.locator(".chip").click()
    expect(tab.locator(".chip")).to_have_attribute("aria-pressed", "true")
    expect(tab.locator('[data-side="0"] .node.dim text.name')).to_have_text(["x", "y", "relu"])
    tab.get_by_role("tab", name="Changes (1)").click()
    article = tab.locator("article")
    for text in ("14 µs", "13 µs", "sum_out", "matmul-distributes", "= x (w1 + w2)", "1 gap in the steps"):
        expect(article).to_contain_text(text)
    tab.get_by_role("tab", name="Graphs").click()
    tab.locator(".chip").click()
    expect(tab.locator(".node.dim")).to_have_count(0)


def test_nodes_do_not_lie_on_each_other(visit):
    tab = visit("medium")
    tab.locator('[data-side="0"]').get_by_role("button", name="Unfold all blocks").click()
    boxes = tab.evaluate(
        """() => [...document.querySelectorAll('[data-side="0"] .node > .frame')].map((frame) =>
            ["x", "y", "width", "height"].map((name) => Number(frame.getAttribute(name))))"""
    )
    assert len(boxes) > 20
    for i, (x, y, width, height) in enumerate(boxes):
        for left, top, wide, high in boxes[i + 1 :]:
            assert x + width <= left or left + wide <= x or y + height <= top or top + high <= y


def test_a_small_e_graph_is_drawn_whole_and_a_large_one_around_a_class(visit):
    tab = visit("small", "#pane=egraph")
    expect(tab.locator(".class")).to_have_count(9)
    expect(tab.locator(".class .form")).to_have_count(12)
    tab.locator('[data-class="5"].class').click()
    expect(tab.locator("aside h2")).to_contain_text("sum_out")
    expect(tab.locator(".class.chosen")).to_have_attribute("data-class", "5")
    tab.get_by_role("button", name="Show the class in focus with its neighbours alone").click()
    expect(tab.locator(".class")).to_have_count(8)
    large = visit("medium", "#pane=egraph&class=1111")
    expect(large.locator('.class.chosen[data-class="1111"]')).to_be_visible()
    near = {int(one.get_attribute("data-class")) for one in large.locator(".class").all()}
    assert {1108, 1109, 1110, 1112} < near
    large.get_by_label("Filter classes").fill("n777_out")
    large.locator("[data-listed]").click()
    expect(large.locator('.class.chosen[data-class="777"]')).to_be_visible()


def test_of_a_class_with_many_operands_as_many_are_drawn_as_can_be_surveyed(visit, files):
    def of(number, op, operands):
        form = FormView(number, op, "", operands, 1e-6, 1e-6, False, True, True)
        return ClassView(number, "f", False, (f"v{number}",), (), (form,))

    classes = (*(of(n, "input", ()) for n in range(400)), of(400, "concat", tuple(range(400))))
    (files / "wide.html").write_text(page(RunView("wide", classes=classes)), encoding="utf-8")
    tab = visit("wide", "#class=400")
    expect(tab.locator("svg .class")).to_have_count(24)
    expect(tab.locator("aside .operands a")).to_have_count(400)


def test_rules_sort_and_growth_and_report_are_shown(visit):
    tab = visit("small", "#pane=rules")
    names = tab.locator(".rules tbody td:first-child")
    expect(names).to_have_text(["add-commutes", "matmul-distributes"])
    tab.get_by_role("button", name="Sort by fired").click()
    expect(names).to_have_text(["matmul-distributes", "add-commutes"])
    tab.get_by_role("tab", name="Growth").click()
    expect(tab.locator(".chart rect")).to_have_count(3)
    expect(tab.locator(".chart circle.nodes")).to_have_count(3)
    tab.get_by_role("tab", name="Report").click()
    expect(tab.locator("#pane-report")).to_contain_text("saved 14 us")
    expect(tab.locator("#pane-report")).to_contain_text("a note")


def test_a_page_of_one_pane_has_no_tabs_and_opens_classes_all_the_same(visit, files):
    (files / "single.html").write_text(page(run_views.small(), pane="egraph"), encoding="utf-8")
    tab = visit("single")
    expect(tab.get_by_role("tab")).to_have_count(0)
    tab.locator("#search").fill("relu_out")
    tab.keyboard.press("Enter")
    expect(tab.locator("aside h2")).to_have_text("relu_out class 6")
    expect(tab.locator(".class.chosen")).to_have_attribute("data-class", "6")


def test_hostile_names_are_shown_as_they_are_and_do_nothing(visit):
    tab = visit("hostile")
    for pane in ("egraph", "changes", "growth", "rules", "report", "graphs"):
        tab.locator(f"#tab-{pane}").click()
    for at, text in enumerate(run_views.HOSTILE):
        tab.locator("#search").fill(text)
        tab.keyboard.press("Enter")
        tab.evaluate("(at) => { location.hash = `pane=graphs&class=${at}`; }", at)
        title = " ".join(text.split())
        expect(tab.locator("aside h2")).to_contain_text(title)
    counts = tab.evaluate(
        "['script', 'img', 'style', 'iframe', 'b'].map((tag) => document.querySelectorAll(tag).length)"
    )
    assert counts[:4] == [2, 0, 1, 0]
    assert tab.title().startswith("</script>")


def test_the_policy_stops_scripts_and_requests_that_are_not_the_page_s_own(visit):
    tab = visit("small")
    blocked = tab.evaluate(
        """async () => {
            const found = [];
            addEventListener("securitypolicyviolation", (event) => found.push(event.effectiveDirective));
            const script = document.createElement("script");
            try { script.textContent = "globalThis.ran = true"; } catch (error) { found.push(error.name); }
            document.body.append(script);
            try { await fetch("https://example.org/"); } catch (error) { found.push("fetch refused"); }
            document.body.append(Object.assign(document.createElement("img"), { src: "https://example.org/a.png" }));
            await new Promise((done) => setTimeout(done, 200));
            return [found, globalThis.ran ?? false];
        }"""
    )
    assert {"TypeError", "connect-src", "fetch refused", "img-src"} <= set(blocked[0])
    assert blocked[1] is False
    # the browser reports the picture as asked for, then refused; the violations are on the console, as they should be
    assert tab.refused == [("https://example.org/a.png", "csp")]
    tab.asked.remove("https://example.org/a.png")
    tab.wrong.clear()


def test_all_can_be_done_by_keys(visit):
    tab = visit("small")
    tab.locator("#tab-graphs").focus()
    tab.keyboard.press("ArrowRight")
    expect(tab.locator("#tab-egraph")).to_have_attribute("aria-selected", "true")
    tab.keyboard.press("ArrowLeft")
    expect(tab.locator("#pane-graphs")).to_be_visible()
    for _ in range(40):
        tab.keyboard.press("Tab")
        if tab.evaluate("document.activeElement.classList.contains('node')"):
            break
    tab.keyboard.press("Enter")
    expect(tab.locator("aside")).to_be_visible()
    tab.keyboard.press("Escape")
    expect(tab.locator("aside")).to_be_hidden()
    drawing = tab.locator(".drawing").first
    drawing.focus()
    before = box_of(node(tab, 0, "relu"))
    tab.keyboard.press("ArrowDown")
    tab.keyboard.press("+")
    after = box_of(node(tab, 0, "relu"))
    assert after["width"] > before["width"]


def test_the_wheel_scrolls_and_zooms_and_a_drag_moves(visit):
    tab = visit("small")
    target = node(tab, 0, "relu")
    first = box_of(target)
    tab.mouse.move(200, 600)
    tab.mouse.wheel(0, 50)
    moved = box_of(target)
    assert moved["y"] == pytest.approx(first["y"] - 50, abs=1)
    tab.keyboard.down("Control")
    tab.mouse.wheel(0, -200)
    tab.keyboard.up("Control")
    assert box_of(target)["width"] > 1.3 * first["width"]
    before = box_of(target)
    tab.mouse.move(60, 500)
    tab.mouse.down()
    tab.mouse.move(90, 540, steps=3)
    tab.mouse.up()
    assert box_of(target)["x"] == pytest.approx(before["x"] + 30, abs=2)
    expect(tab.locator("aside")).to_be_hidden()


def test_the_page_follows_the_dark_scheme_and_prints(visit):
    light, dark = visit("small"), visit("small", color_scheme="dark")
    colours = "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.body).color"
    assert light.evaluate(colours) == "rgb(246, 247, 249)rgb(28, 36, 48)"
    assert dark.evaluate(colours) == "rgb(18, 22, 28)rgb(228, 233, 240)"
    light.emulate_media(media="print")
    expect(light.locator(".tabs")).to_be_hidden()
    expect(light.locator(".drawing").first).to_be_visible()


def test_a_fragment_opens_in_a_frame_of_its_own_and_is_readable_without_scripts(visit, files):
    view = run_views.small()
    still = diff_html(view) + eclass_table(view.classes[5])
    text = f'<!doctype html><meta charset="utf-8"><body data-ready>{fragment(view, still=still)}'
    (files / "cell.html").write_text(text, encoding="utf-8")
    for scripts in (True, False):
        tab = visit("cell", java_script_enabled=scripts)
        assert tab.locator("img").bounding_box()["height"] > 200
        expect(tab.locator("table")).to_contain_text("matmul-distributes")
    tab = visit("cell")
    tab.locator("summary").click()
    frame = tab.frame_locator("iframe")
    frame.locator('[data-side="1"] .node', has_text="matmul").click()
    expect(frame.locator("aside h2")).to_have_text("sum_out class 5")
    frame.get_by_role("tab", name="E-graph").click()
    expect(frame.locator(".class")).to_have_count(9)


HOST = """<!doctype html><meta charset="utf-8"><style>%s</style><div id="cell"></div><main class="side">around</main>
<script type="application/json" id="given">%s</script>
<script type="module">
const given = JSON.parse(document.getElementById("given").textContent);
const values = { data: given.data[0], selected: null, height: 480 };
const heard = {};
globalThis.saved = [];
globalThis.model = {
  get: (name) => values[name],
  set: (name, value) => { values[name] = value; (heard[`change:${name}`] ?? []).forEach((call) => call()); },
  on: (name, call) => { (heard[name] ??= []).push(call); },
  off: (name, call) => { heard[name] = heard[name].filter((one) => one !== call); },
  save_changes: () => saved.push(values.selected),
};
globalThis.given = given;
globalThis.heard = heard;
const widget = await import(`data:text/javascript;base64,${given.esm}`);
globalThis.end = widget.default.render({ model, el: document.getElementById("cell") });
document.body.dataset.ready = "true";
</script>"""


@pytest.fixture
def widget_page(files):
    from eqsat.explorer.page.widget import egraph_widget

    view = run_views.small()
    widget = egraph_widget(view)
    data = [dict(widget.data)]
    forms = view.classes[5].forms
    chosen = [replace(form, chosen=form.enode == 5) for form in forms]  # a cost changed: the choice flips
    widget.view = RunView(
        view.title, classes=(*view.classes[:5], replace(view.classes[5], forms=tuple(chosen)), *view.classes[6:])
    )
    data.append(dict(widget.data))
    given = json.dumps({"data": data, "esm": base64.b64encode(widget._esm.encode()).decode()})
    (files / "widget.html").write_text(HOST % (widget._css, given.replace("<", "\\u003c")), encoding="utf-8")
    return "widget"


def test_the_widget_says_what_was_clicked_and_shows_what_python_sets(visit, widget_page):
    tab = visit(widget_page)
    tab.asked[:] = [url for url in tab.asked if not url.startswith("data:")]
    expect(tab.locator(".class")).to_have_count(9)
    shown = "[...document.querySelectorAll('main')].map((one) => getComputedStyle(one).display)"
    assert tab.evaluate(shown) == ["flex", "block"], "what stands around the widget keeps its own style"
    tab.locator('.class[data-class="5"]').click()
    assert tab.evaluate("saved") == [5]
    expect(tab.locator("aside h2")).to_contain_text("sum_out")
    tab.evaluate("model.set('selected', 7)")
    expect(tab.locator(".class.chosen")).to_have_attribute("data-class", "7")
    tab.locator('[data-operand="1"]').click()
    assert tab.evaluate("saved") == [5, 1]
    tab.get_by_role("button", name="Close the class").click()
    assert tab.evaluate("saved") == [5, 1, None]
    expect(tab.locator("aside")).to_be_hidden()


def test_the_widget_follows_new_costs_and_lets_go_when_it_is_removed(visit, widget_page):
    tab = visit(widget_page)
    tab.asked[:] = [url for url in tab.asked if not url.startswith("data:")]
    chosen = tab.locator('.class[data-class="5"] .form.chosen')
    expect(chosen).to_contain_text("matmul")
    tab.evaluate("model.set('data', given.data[1])")
    expect(chosen).to_contain_text("add")
    tab.evaluate("end()")
    assert tab.evaluate("Object.values(heard).flat().length") == 0
