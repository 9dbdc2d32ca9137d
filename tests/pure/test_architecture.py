"""Who may import whom, what importing eqsat loads, and how long a file may be, read from the sources."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "eqsat"
MODULES = sorted(PACKAGE.rglob("*.py"))

#: A room imports from rooms on lower floors, or from itself.
FLOORS = {
    "errors": 0,
    "moved": 0,
    "system": 1,
    "language": 2,
    "egraph": 3,
    "runtime": 3,
    "rewrites": 4,
    "costs": 4,
    "extract": 5,
    "quantisation": 5,
    "certify": 6,
    "report": 7,
    "loading": 8,
    "options": 8,
    "steps": 9,
    "run": 10,
    "buckets": 11,
    "pytorch": 11,
    "calls": 12,
    "frontier": 12,
    "bench": 13,
    "explorer": 13,
    "testing": 13,
    "onnx_backend": 13,
    "doctor": 14,
    "commands": 15,
    "cli": 16,
    "__main__": 17,
}
#: Packages that one room alone may import.
FENCED = {"egglog": {"egraph"}, "highspy": {"extract"}, "click": {"cli", "commands"}}
#: What `import eqsat` must not load.
HEAVY = {
    "onnx",
    "onnxruntime",
    "egglog",
    "z3",
    "highspy",
    "scipy",
    "rich",
    "numpy",
    "pandas",
    "matplotlib",
    "igraph",
    "torch",
}
MOST_LINES = 400
#: Files side by side in a folder, its __init__.py not counted.
MOST_FILES = 15


#: Rooms whose names and sentences were gone over; the list may only grow.
REWORDED = (
    "bench",
    "buckets",
    "calls.py",
    "certify",
    "commands",
    "costs",
    "egraph",
    "explorer",
    "extract",
    "frontier.py",
    "language",
    "options",
    "pytorch",
    "quantisation",
    "report",
    "rewrites",
    "run.py",
    "runtime",
    "steps",
    "system",
    "testing",
)


def is_reworded(path):
    return path.relative_to(PACKAGE).as_posix().startswith(REWORDED)


def room(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path):
    """Every module that a file names in an import, wherever the import stands."""
    package = ["eqsat", *path.relative_to(PACKAGE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            outer = package[: len(package) - node.level + 1] if node.level else []
            base = ".".join([*outer, *([node.module] if node.module else [])])
            # `from eqsat import x` names the module eqsat.x
            yield from (f"eqsat.{alias.name}" for alias in node.names) if base == "eqsat" else [base]


def module_of(path):
    """The name of the module in a file."""
    parts = ("eqsat", *path.relative_to(PACKAGE).with_suffix("").parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported_files():
    """The modules of the package by module that names them in an import, wherever that stands.

    `from eqsat.a import b` names the module eqsat.a.b where there is one, else eqsat.a.
    """
    names = {module_of(path): path for path in MODULES}
    graph = {}
    for module, path in names.items():
        graph[module] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                graph[module] |= {alias.name for alias in node.names} & names.keys()
            elif isinstance(node, ast.ImportFrom):
                assert not node.level, f"{module} imports by a relative name"
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                graph[module] |= {name if name in names else node.module for name in whole} & names.keys()
    return graph


def circle_in(graph):
    """Modules that import each other in turn, the first once more at the end; nothing where there is no circle."""
    done = set()
    for start in graph:
        path, pending = [], [(start, iter(sorted(graph[start])))]
        while pending:
            module, rest = pending[-1]
            if module not in path:
                path.append(module)
            following = next((other for other in rest if other not in done), None)
            if following in path:
                return [*path[path.index(following) :], following]
            if following is not None:
                pending.append((following, iter(sorted(graph[following]))))
            else:
                done.add(path.pop())
                pending.pop()
    return []


def loaded(statement, *names):
    """Which of these packages a fresh interpreter has loaded after a statement."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(m.partition('.')[0] for m in sys.modules)))"
    out = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(json.loads(out.stdout.splitlines()[-1])) & set(names)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_only_from_its_own_room_and_from_lower_floors(path):
    here = room(path)
    if here == "__init__":
        return
    assert here in FLOORS, f"{here} stands on no floor"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "eqsat":
            there = rest.partition(".")[0]
            assert there == here or FLOORS[there] < FLOORS[here], f"{here} (floor {FLOORS[here]}) imports {name}"
        elif top in FENCED:
            assert here in FENCED[top], f"{here} imports {top}"


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_stays_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MOST_LINES


def test_no_file_imports_itself_through_others():
    """Imports in functions and for type checkers count."""
    assert circle_in(imported_files()) == []


def test_a_circle_is_found_wherever_it_begins():
    assert circle_in({"a": {"b"}, "b": {"c", "d"}, "c": set(), "d": {"b"}}) == ["b", "d", "b"]
    assert circle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


@pytest.mark.parametrize("folder", sorted({path.parent for path in MODULES}), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_folder_holds_few_files(folder):
    assert len([path for path in folder.glob("*.py") if path.name != "__init__.py"]) <= MOST_FILES


def test_a_class_name_stands_for_one_class():
    homes = {}
    for path in MODULES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                homes.setdefault(node.name, []).append(path)
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}


@pytest.mark.parametrize("path", [p for p in MODULES if is_reworded(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_a_docstring_names_its_object_or_says_what_to_do(path):
    documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = [n for n in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(n, documented)]
    docstrings = [ast.get_docstring(node) or "" for node in nodes]
    assert [d for d in docstrings if d.startswith(("What ", "Whether ", "How ", "Which "))] == []


def test_the_reader_of_imports_sees_all_forms(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "PACKAGE", tmp_path)
    (tmp_path / "a").mkdir()
    path = tmp_path / "a" / "b.py"
    path.write_text("import x.y\ndef f():\n    from eqsat import op\n    from . import c\n    from ..d import e\n")
    assert list(imports(path)) == ["x.y", "eqsat.op", "eqsat.a", "eqsat.d"]


def test_importing_eqsat_loads_nothing_heavy():
    assert loaded("import eqsat", *HEAVY) == set()


def test_building_a_graph_loads_numpy_alone():
    build = "import eqsat; g = eqsat.Graph(); g.output('y', eqsat.softmax(g.input('x', (2,)), axis=-1)); g.build()"
    assert loaded(build, *HEAVY) == {"numpy"}


@pytest.mark.parametrize("extractor", ["ilp", "greedy", "backtracking"])
def test_extraction_works_without_egglog_and_onnx(extractor, tmp_path):
    nodes = {"dear": {"eclass": "a", "cost": 2}, "cheap": {"eclass": "a", "cost": 1}}
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"nodes": nodes, "root_eclasses": ["a"]}))
    solve = (
        "sys.modules.update(dict.fromkeys(('egglog', 'onnx', 'onnxruntime')))\n"
        "from eqsat.extract import Node, Problem, solve\n"
        "from eqsat.extract.problem.gym import read_gym\n"
        f"for problem in Problem([Node(0, (), 2.0), Node(0, (), 1.0)], roots=[(0, 0)]), read_gym({str(path)!r}):\n"
        f"    assert solve(problem, extractor={extractor!r}).cost == 1.0"
    )
    assert loaded(solve, "z3", "rich", "scipy") == set()


def test_the_command_for_extraction_works_without_egglog_and_onnx(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"nodes": {"x": {"eclass": "a"}}, "root_eclasses": ["a"]}))
    run = (
        "sys.modules.update(dict.fromkeys(('egglog', 'onnx', 'onnxruntime')))\n"
        "from eqsat import cli\n"
        f"assert cli.run(['extract', {str(path)!r}]) == 0"
    )
    assert loaded(run, "z3") == set()


def test_public_names_resolve_lazily_and_others_do_not():
    import eqsat

    assert eqsat.errors.EqsatError is eqsat.EqsatError
    assert eqsat.__version__
    assert eqsat.Graph("g").name == "g"
    assert {"Graph", "optimize", "softmax", "__version__"} <= set(dir(eqsat))
    for name in ("nonsense", "np", "Sequence"):
        assert name not in dir(eqsat)
        with pytest.raises(AttributeError, match=f"module 'eqsat' has no attribute '{name}'"):
            getattr(eqsat, name)


def test_the_page_and_the_picture_of_the_architecture_are_made_from_the_code(monkeypatch):
    """`python docs/_architecture.py` writes them anew."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import _architecture

    for page in _architecture.PAGES:
        text = page.read_text(encoding="utf-8")
        assert "made by docs/_architecture.py" in text
        assert _architecture.rewritten(text) == text
    assert _architecture.PICTURE.read_text(encoding="utf-8") == _architecture.picture()
    assert set(_architecture.floors()) == set(FLOORS)
    for name, needed in _architecture.needs().items():
        assert all(_architecture.floors()[other] < _architecture.floors()[name] for other in needed)


#: Names with an underscore that other packages call: notebooks ask for pictures by them, and widgets for their scripts.
PROTOCOLS = {"_repr_html_", "_repr_png_", "_esm", "_css", "_exit"}


@pytest.mark.parametrize("path", sorted((ROOT / "tests").rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_tests_touch_nothing_private_of_the_package(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {"self", "cls"}
    touched = [
        ast.unparse(node)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in PROTOCOLS
        and not (isinstance(node.value, ast.Name) and node.value.id in own)
    ]
    imported = [
        f"{node.module}.{alias.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("eqsat")
        for alias in node.names
        if alias.name.startswith("_")
    ]
    named = [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith("eqsat.")
        and "._" in node.value
        and " " not in node.value
    ]
    assert touched + imported + named == []
