"""Runs made by hand, as views: a small one, one whose names are hostile, and a large one."""

from __future__ import annotations

from eqsat.explorer.view.views import (
    ChangeView,
    ClassView,
    FormView,
    GraphView,
    GrowthView,
    NodeView,
    RuleView,
    RunView,
)

HOSTILE = (
    "<img src=x onerror=alert(1)>",
    "</script><script>alert(2)</script>",
    "<!--<script>",
    "line\u2028separator\u2029",
    "\"'`${alert(3)}",
    "javascript:alert(4)",
    "&lt;b&gt; &amp;",
)


def _node(key: str, label: str, block: str = "", **more: object) -> NodeView:
    kind = str(more.pop("kind", "operator"))
    path = tuple(block.split("/")) if block else ()
    return NodeView(key, kind, label, block=path, names=(f"{key}_out",), **more)  # type: ignore[arg-type]


def small() -> RunView:
    """The graph relu(x w1 + x w2), whose two products become one."""
    f32 = "float32[4, 8]"
    inputs = (
        NodeView("x", "input", "x", f32, ("x",), eclass=0),
        NodeView("w1", "constant", "w1", "float32[8, 8]", ("w1",), eclass=1),
        NodeView("w2", "constant", "w2", "float32[8, 8]", ("w2",), eclass=2),
    )
    original = GraphView(
        "original",
        (
            *inputs,
            _node("left", "matmul", "head", detail=f32, seconds=12e-6, change=1, eclass=3),
            _node("right", "matmul", "head", detail=f32, seconds=12e-6, change=1, eclass=4),
            _node("sum", "add", "tail", detail=f32, seconds=2e-6, estimated=True, change=1, eclass=5),
            _node("relu", "relu", "tail", detail=f32, seconds=1e-6, eclass=6),
            NodeView("y", "output", "y", f32, ("y",), eclass=6),
        ),
        (
            ("x", "left", f32),
            ("w1", "left", "float32[8, 8]"),
            ("x", "right", f32),
            ("w2", "right", "float32[8, 8]"),
            ("left", "sum", f32),
            ("right", "sum", f32),
            ("sum", "relu", f32),
            ("relu", "y", f32),
        ),
    )
    result = GraphView(
        "result",
        (
            inputs[0],
            NodeView("w", "constant", "w1 + w2", "float32[8, 8]", ("w",), change=1, eclass=7),
            _node("one", "matmul", "head", detail=f32, seconds=12e-6, change=1, eclass=5),
            _node("relu", "relu", "tail", detail=f32, seconds=1e-6, eclass=6),
            NodeView("y", "output", "y", f32, ("y",), eclass=6),
        ),
        (
            ("x", "one", f32),
            ("w", "one", "float32[8, 8]"),
            ("one", "relu", f32),
            ("relu", "y", f32),
        ),
    )

    def leaf(number: int, op: str, name: str, chosen: bool = True) -> ClassView:
        form = FormView(number, op, name, (), None, 0.0, False, chosen, True)
        return ClassView(number, f32, op == "constant", (name,), (), (form,))

    def form(enode: int, op: str, operands: tuple[int, ...], own: float, total: float, **more: object) -> FormView:
        rest = {"chosen": False, "original": False, "estimated": False, **more}
        return FormView(enode, op, "", operands, own, total, **rest)  # type: ignore[arg-type]

    classes = (
        leaf(0, "input", "x"),
        leaf(1, "constant", "w1"),
        leaf(2, "constant", "w2"),
        ClassView(3, f32, False, ("left_out",), ("head",), (form(3, "matmul", (0, 1), 12e-6, 12e-6, original=True),)),
        ClassView(4, f32, False, ("right_out",), ("head",), (form(4, "matmul", (0, 2), 12e-6, 12e-6, original=True),)),
        ClassView(
            5,
            f32,
            False,
            ("sum_out", "one_out"),
            ("tail",),
            (
                form(5, "add", (3, 4), 2e-6, 26e-6, original=True, estimated=True),
                form(8, "matmul", (0, 7), 12e-6, 12e-6, chosen=True, rule="matmul-distributes"),
                form(9, "add", (4, 3), 2e-6, 26e-6, rule="add-commutes", estimated=True),
            ),
        ),
        ClassView(
            6,
            f32,
            False,
            ("relu_out", "y"),
            ("tail",),
            (form(6, "relu", (5,), 1e-6, 13e-6, chosen=True, original=True), form(10, "max", (5, 8), 1e-6, 14e-6)),
        ),
        ClassView(7, "float32[8, 8]", True, ("w",), (), (form(7, "add", (1, 2), 0.0, 0.0, chosen=True),)),
        leaf(8, "constant", "zero", chosen=False),
    )
    change = ChangeView(
        1,
        "matmul, matmul, add -> matmul",
        ("sum_out",),
        ("matmul-distributes",),
        ("(x w1) + (x w2)", "= x (w1 + w2)  [matmul-distributes]"),
        predicted=14e-6,
        measured=13e-6,
        gaps=1,
    )
    rules = (
        RuleView("matmul-distributes", "a b + a c = a (b + c)", 1, "shipped", "proved"),
        RuleView("add-commutes", "a + b = b + a", 3, "axiom", "stated"),
    )
    growth = (
        GrowthView("given", 7, 7, 0.0),
        GrowthView("simplify", 9, 8, 0.01, {"add-commutes": 2}, {"add-commutes": 4}),
        GrowthView("merge", 11, 9, 0.02, {"add-commutes": 1, "matmul-distributes": 1}, {"add-commutes": 2}),
    )
    return RunView("small", "one change\nsaved 14 us", original, result, classes, (change,), rules, growth, ("a note",))


def hostile() -> RunView:
    """A run of which every text is hostile to a page that is careless with it."""
    count = len(HOSTILE)
    nodes = tuple(
        NodeView(f"n{i}", "operator", text, text, (text,), (text,), 1e-6, False, 1, i) for i, text in enumerate(HOSTILE)
    )
    edges = tuple((f"n{i}", f"n{i + 1}", text) for i, text in enumerate(HOSTILE[:-1]))
    classes = tuple(
        ClassView(
            i,
            text,
            False,
            (text,),
            (text,),
            (FormView(i, text, text, ((i + 1) % count,), 1e-6, 1e-6, False, True, True, text),),
        )
        for i, text in enumerate(HOSTILE)
    )
    changes = (ChangeView(1, HOSTILE[0], HOSTILE, HOSTILE, HOSTILE),)
    rules = tuple(RuleView(text, text, 1, text, text) for text in HOSTILE)
    growth = (GrowthView(HOSTILE[0], 1, 1, 0.0), GrowthView(HOSTILE[1], 2, 2, 0.1, dict.fromkeys(HOSTILE, 1)))
    graph = GraphView(HOSTILE[1], nodes, edges)
    return RunView(HOSTILE[1], "\n".join(HOSTILE), graph, graph, classes, changes, rules, growth, HOSTILE)


def large(layers: int = 250, per_layer: int = 20, forms: int = 4) -> RunView:
    """A run of layers * per_layer nodes in blocks as a transformer has, each the value of a class of some forms."""
    f32 = "float32[1, 128, 768]"
    ops = ("matmul", "add", "reshape", "transpose", "softmax", "layer_norm", "gelu", "mul")
    parts = ("attention", "attention", "mlp", "norm")
    nodes, edges = [NodeView("x", "input", "x", f32, ("x",), eclass=0)], []
    previous = "x"
    for layer in range(layers):
        skip = previous
        for step in range(per_layer):
            number = 1 + layer * per_layer + step
            key, block = f"n{number}", f"encoder/layer.{layer}/{parts[step * len(parts) // per_layer]}"
            changed = 1 + layer // 50 if step == 3 and layer % 10 == 0 else None
            seconds = (1 + step % 7) * 1e-6
            op = ops[step % len(ops)]
            nodes.append(_node(key, op, block, detail=f32, seconds=seconds, change=changed, eclass=number))
            edges.append((previous, key, f32))
            if step in (6, per_layer - 1):
                edges.append((skip, key, f32))
            previous = key
    nodes.append(NodeView("y", "output", "y", f32, ("y",), eclass=len(nodes) - 1))
    edges.append((previous, "y", f32))
    graph = GraphView("original", tuple(nodes), tuple(edges))
    count = 1 + layers * per_layer
    classes = tuple(
        ClassView(
            c,
            f32,
            False,
            nodes[c].names,
            nodes[c].block,
            tuple(
                FormView(
                    c * forms + f,
                    ops[(c + f) % len(ops)],
                    f"axis={f}",
                    (max(0, c - 1), max(0, c - 2 - f)) if c else (),
                    (1 + f) * 1e-6,
                    c * 1e-6,
                    f % 2 == 1,
                    f == 0,
                    f == 0,
                    "" if f == 0 else f"rule-{f}",
                )
                for f in range(forms)
            ),
        )
        for c in range(count)
    )
    changes = tuple(
        ChangeView(n, "matmul, add -> matmul", (f"n{n}_out",), (f"rule-{n % 3 + 1}",), ("a + b", "= b + a"), n * 1e-6)
        for n in range(1, 1 + layers // 50)
    )
    rules = tuple(RuleView(f"rule-{n}", f"f{n}(a) = g{n}(a)", 40 - n, "generated", "proved") for n in range(1, 31))
    growth = tuple(
        GrowthView(
            f"phase {s % 3}", 5000 + 500 * s, 5000 + 60 * s, 0.2 * s, {r.name: (s * r.fired) % 17 for r in rules}
        )
        for s in range(31)
    )
    return RunView(
        "large", "a report", graph, GraphView("result", graph.nodes, graph.edges), classes, changes, rules, growth
    )
