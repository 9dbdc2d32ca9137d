"""The tree and the floors of the package, and the rooms that each step of a run uses, read from the sources.

`python docs/_architecture.py` updates the generated parts of `architecture.md` and of CONTRIBUTING, and the picture.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from html import escape
from pathlib import Path

DOCS = Path(__file__).resolve().parent
PACKAGE = DOCS.parent / "eqsat"
PICTURE = DOCS / "images" / "architecture.svg"
PAGES = (DOCS / "architecture.md", DOCS.parent / "CONTRIBUTING.md")
#: The steps of a run, methods of `Run`, in order.
STEPS = ("read", "with_bodies", "saturate", "choose", "measure", "certify", "finish")

_WIDTH, _ROW, _BOX, _GAP = 1080, 58, 40, 10


@cache
def modules() -> Mapping[str, ast.Module]:
    """The syntax tree of every module, by its name."""
    trees = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = ("eqsat", *path.relative_to(PACKAGE).with_suffix("").parts)
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        trees[name] = ast.parse(path.read_text(encoding="utf-8"))
    return trees


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Modules of the package that are imported anywhere in a tree, each with the local name it defines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.partition(".")[0] == "eqsat":
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield (inner if inner in modules() else node.module), alias.asname or alias.name
        elif isinstance(node, ast.Import):
            yield from ((alias.name, alias.asname or alias.name) for alias in node.names if alias.name in modules())


def computed(tree: ast.AST) -> set[str]:
    """Names that a tree uses outside annotations."""
    names: set[str] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Name):
            names.add(node.id)
        stated = (getattr(node, "annotation", None), getattr(node, "returns", None))
        pending += [child for child in ast.iter_child_nodes(node) if child not in stated]
    return names


def room(module: str) -> str:
    """The room of a module: the folder or file at the top of the package that it is in."""
    return module.split(".")[1] if "." in module else "__init__"


@cache
def needs() -> Mapping[str, frozenset[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = {}
    for name, tree in modules().items():
        found.setdefault(room(name), set()).update(room(other) for other, _ in imported(tree))
    return {name: frozenset(others - {name, "__init__"}) for name, others in found.items() if name != "__init__"}


@cache
def floors() -> Mapping[str, int]:
    """The floor of each room: one above the highest room that it imports."""

    @cache
    def floor(name: str) -> int:
        return 1 + max((floor(other) for other in needs()[name]), default=-1)

    return {name: floor(name) for name in sorted(needs(), key=lambda one: (floor(one), one))}


def about(name: str) -> str:
    """The summary line of a module's docstring as Markdown."""
    text = (ast.get_docstring(modules()[name]) or "").partition("\n\n")[0]
    return " ".join(text.split())


def tree() -> str:
    """Rooms and the folders in them, each with the summary of its docstring."""
    lines = []
    for name in modules():
        depth = name.count(".")
        folder = any(other.startswith(f"{name}.") for other in modules())
        if depth == 1 or (folder and depth > 1):
            ending = "/" if folder else ".py"
            lines.append(f"{'  ' * (depth - 1)}* `{name.rpartition('.')[2]}{ending}`: {about(name)}")
    return "\n".join(lines)


def floor_table() -> str:
    """A table of floors."""
    rows: dict[int, list[str]] = {}
    for name, floor in floors().items():
        rows.setdefault(floor, []).append(f"`{name}`")
    lines = [f"| {floor} | {', '.join(names)} |" for floor, names in sorted(rows.items())]
    return "\n".join(["| floor | rooms |", "|---|---|", *lines])


@cache
def modules_used() -> Mapping[str, tuple[str, ...]]:
    """The modules that each step of a run uses."""
    run = modules()["eqsat.run"]
    homes = {local: module for module, local in imported(run)}
    (body,) = (node for node in run.body if isinstance(node, ast.ClassDef) and node.name == "Run")
    methods = {node.name: node for node in body.body if isinstance(node, ast.FunctionDef)}
    return {step: tuple(sorted({homes[name] for name in worked(step, methods) if name in homes})) for step in STEPS}


def worked(step: str, methods: Mapping[str, ast.FunctionDef]) -> set[str]:
    """Names that a method uses, and the classes of parameters whose methods it calls."""
    method = methods[step]
    names = computed(method)
    called = [node.func for node in ast.walk(method) if isinstance(node, ast.Call)]
    owners = [(f.value.id, f.attr) for f in called if isinstance(f, ast.Attribute) and isinstance(f.value, ast.Name)]
    classes = {a.arg: computed(a.annotation) for a in method.args.args if a.annotation is not None}
    for owner, name in owners:
        names |= classes.get(owner, set())
        if owner == "self" and name in methods and name not in STEPS:
            names |= worked(name, methods)
    return names


def rooms_of(step: str) -> list[str]:
    """The rooms that a step or its modules in `eqsat.steps` use, without those that every step needs."""
    reached = set()
    for module in modules_used()[step]:
        reached.add(room(module))
        if room(module) == "steps":
            names = computed(modules()[module])
            reached |= {room(other) for other, local in imported(modules()[module]) if local in names}
    quiet = {"errors", "system", "language", "options", "steps", "report", "run"}
    return sorted(reached - quiet, key=lambda name: (floors()[name], name))


def steps_table() -> str:
    """A table of the steps of a run, each with its docstring and the rooms that it uses."""
    (body,) = (n for n in modules()["eqsat.run"].body if isinstance(n, ast.ClassDef) and n.name == "Run")
    said = {
        n.name: (ast.get_docstring(n) or "").partition("\n")[0] for n in body.body if isinstance(n, ast.FunctionDef)
    }
    rows = [f"| `{step}` | {said[step]} | {', '.join(rooms_of(step)) or 'language'} |" for step in STEPS]
    return "\n".join(["| method of `Run` | | works in |", "|---|---|---|", *rows])


def picture() -> str:
    """An SVG of the rooms as boxes on their floors, each numbered by the steps of a run that use it."""
    rows: dict[int, list[str]] = {}
    for name, floor in floors().items():
        rows.setdefault(floor, []).append(name)
    height = _ROW * len(rows) + 2 * _GAP
    marks: dict[str, list[str]] = {}
    for number, step in enumerate(STEPS, start=1):
        for name in rooms_of(step) or ["language"]:
            marks.setdefault(name, []).append(f"{number}")
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height + 30}" font-family="sans-serif">',
        "<title>The floors of eqsat, and the rooms that each step of a run uses</title>",
    ]
    for floor, names in rows.items():
        top = height - _ROW * (floor + 1)
        parts.append(f'<text x="4" y="{top + 25}" font-size="12" fill="#777">{floor}</text>')
        width = (_WIDTH - 30 - _GAP * len(names)) / len(names)
        for place, name in enumerate(names):
            left = 30 + place * (width + _GAP)
            shade = "#dbe9f6" if name in marks else "#f2f2f2"
            size = f'width="{width:.0f}" height="{_BOX}" rx="5"'
            parts.append(f'<rect x="{left:.0f}" y="{top}" {size} fill="{shade}" stroke="#888"/>')
            parts.append(f'<text x="{left + 8:.0f}" y="{top + 25}" font-size="14">{escape(name)}</text>')
            for index, mark in enumerate(reversed(marks.get(name, []))):
                x = left + width - 16 - 22 * index
                parts.append(f'<circle cx="{x:.0f}" cy="{top + 20}" r="9" fill="#24527a"/>')
                text = f'<text x="{x:.0f}" y="{top + 24}" font-size="11" fill="#fff" text-anchor="middle">{mark}</text>'
                parts.append(text)
    steps = ",  ".join(f"{number} {step.replace('_', ' ')}" for number, step in enumerate(STEPS, start=1))
    parts.append(f'<text x="30" y="{height + 18}" font-size="13">{escape(steps)}</text>')
    return "\n".join([*parts, "</svg>\n"])


#: The generated parts of pages, by the name in their comment.
PARTS = {"tree": tree, "floors": floor_table, "steps": steps_table}


def rewritten(text: str) -> str:
    """A page with its generated parts updated."""
    for name, make in PARTS.items():
        begin = f"<!-- made by docs/_architecture.py: {name} -->\n"
        head, mark, rest = text.partition(begin)
        if mark:
            text = f"{head}{mark}{make()}\n<!-- end -->{rest.partition('<!-- end -->')[2]}"
    return text


def main() -> None:
    """Write the pages and the picture."""
    for page in PAGES:
        page.write_text(rewritten(page.read_text(encoding="utf-8")), encoding="utf-8")
    PICTURE.write_text(picture(), encoding="utf-8")


if __name__ == "__main__":
    main()
