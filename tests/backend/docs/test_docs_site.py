"""The site builds without a warning and without a network, its links lead somewhere, and its reference is whole."""

import ast
import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import textwrap
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from sphinx.util.inventory import InventoryFile

import eqsat
import eqsat.testing
from eqsat import cli
from eqsat.errors import UsageError
from eqsat.language.graphs.builder import Builder
from eqsat.language.ops import OPS
from eqsat.rewrites.rules.loader import shipped_rules

ROOT = Path(__file__).parents[3]
#: Elements that load something, and the attribute that says what.
LOADS = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src", "video": "src"}
#: What a sentence about a shape has.
SHAPE = re.compile(r"shape|rank|\bdims?\b|ax[ei]s|element|scalar|vector|matri|window|spatial|row-major|by name", re.I)
#: Names that stand for an amount, and the word that says in which unit.
UNITS = {
    r"(^|_)(seconds|time_limit|p10|p90)$": r"\bseconds?\b",
    r"(^|_)(bytes|nbytes|memory_bytes)$": r"\bbytes?\b",
}
#: A docstring that says what is done leaves open what comes back.
DEEDS = re.compile(r"^(Declares|Makes|Writes|Runs|Checks|Reads|Gives|Computes|Raises|Draws|Says)\b")


class Page(HTMLParser):
    """What one page loads, links to, and calls by a name."""

    def __init__(self, text):
        super().__init__()
        self.loaded, self.links, self.names, self.words = [], [], set(), []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        if tag in LOADS and given.get(LOADS[tag]) and given.get("rel") not in ("next", "prev", "index", "search"):
            self.loaded.append(given[LOADS[tag]])
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        self.names |= {given[key] for key in ("id", "name") if given.get(key)}

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="session")
def site(tmp_path_factory):
    """The built site; tests in another process wait for the one that builds it."""
    shared = tmp_path_factory.getbasetemp().parent if "PYTEST_XDIST_WORKER" in os.environ else None
    folder = (shared or tmp_path_factory.mktemp("docs")) / "site"
    if shared is None:
        return _built(folder)
    try:
        (shared / "site.lock").touch(exist_ok=False)
    except FileExistsError:
        return _awaited(folder, shared / "site.done")
    fault = ""
    try:
        return _built(folder)
    except AssertionError as error:
        fault = str(error)
        raise
    finally:
        (shared / "site.said").write_text(fault)
        (shared / "site.said").replace(shared / "site.done")


def _awaited(folder, done, seconds=300):
    """The site that another process builds."""
    end = time.monotonic() + seconds
    while not done.exists() and time.monotonic() < end:
        time.sleep(0.2)
    assert done.read_text() == "", "the process that builds the site failed, and says why"
    return folder


def _built(folder):
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(folder)]
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    return folder


@pytest.fixture(scope="session")
def pages(site):
    return {path: Page(path.read_text(encoding="utf-8")) for path in sorted(site.rglob("*.html"))}


@pytest.fixture(scope="session")
def described(site):
    """Every object that the reference describes, by its name."""
    inventory = InventoryFile.loads((site / "objects.inv").read_bytes(), uri="")
    kinds = ("function", "class", "method", "property", "exception", "attribute", "data")
    return {name for kind in kinds for name in inventory.data.get(f"py:{kind}", {}) if name.startswith("eqsat")}


def test_every_page_is_there_and_can_be_searched(site, pages):
    for source in (ROOT / "docs").rglob("*.md"):
        assert (site / source.relative_to(ROOT / "docs")).with_suffix(".html") in pages
    for notebook in (ROOT / "notebooks").glob("*.py"):
        assert site / "tutorials" / f"{notebook.stem}.html" in pages
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    found = json.loads(index[index.index("(") + 1 : index.rindex(")")])
    assert {"index", "compare", "reference/operators", "tutorials/first_look"} <= set(found["docnames"])
    assert "saturation" in found["terms"] or "satur" in found["terms"]


def test_pages_load_nothing_from_elsewhere(pages):
    for path, page in pages.items():
        far = [source for source in page.loaded if urlsplit(source).netloc]
        assert not far, f"{path.name} loads {far}"


def test_style_sheets_load_nothing_from_elsewhere(site):
    sheets = list((site / "_static").rglob("*.css"))
    assert sheets
    for path in sheets:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", text), path.name


def test_every_link_within_the_site_leads_somewhere(site, pages):
    followed = 0
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme == "https", link
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.exists(), f"{path.relative_to(site)} links to {link}"
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].names, f"{path.relative_to(site)} links to {link}"
            followed += 1
    assert followed > 1000


def test_generated_pages_have_every_operator_rule_and_command(site, pages):
    operators, library, derived, commands = (
        "".join(pages[site / "reference" / f"{name}.html"].words)
        for name in ("operators", "rule-library", "derived-laws", "command-line")
    )
    assert all(name in operators for name, one in OPS.items() if one.is_shipped)
    for rule in shipped_rules():
        assert rule.name in (derived if rule.origin == "derived" else library)
    for path in _commands(cli.commands, "eqsat"):
        assert f"Usage: {path}" in commands, path


def _commands(group, path):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from _commands(command, f"{path} {name}")


def _members(owner, name):
    """The public methods and properties of a class that it defines itself."""
    for member, value in vars(owner).items():
        if not member.startswith("_") and (callable(value) or isinstance(value, property | classmethod | staticmethod)):
            yield f"{name}.{member}"


def public_names():
    """What users are told to call: it has to be in the reference."""
    yield from (f"eqsat.{name}" for name in eqsat.__all__)
    yield from (f"eqsat.{name}" for name in dir(eqsat) if not name.startswith("_") and name not in eqsat.__all__)
    yield from (f"eqsat.testing.{name}" for name in eqsat.testing.__all__)
    yield from (f"eqsat.errors.{name}" for name, one in vars(eqsat.errors).items() if inspect.isclass(one))
    for name in ("Graph", "Tensor", "Result", "Report", "PrecisionPolicy", "State", "Progress", "Explorer"):
        yield from _members(getattr(eqsat, name), f"eqsat.{name}")


def test_the_reference_describes_every_public_name(described):
    own = {name.replace("eqsat.EqsatError", "eqsat.errors.EqsatError") for name in public_names()}
    missing = sorted(own - described)
    assert not missing, missing


def test_every_docstring_of_the_reference_says_what_it_has_to(described):
    faults = [f"{name}: {fault}" for name in sorted(described) for fault in docstring_faults(name, _found(name))]
    assert not faults, "\n".join(faults)


def _found(name):
    """The object of a name of the reference."""
    parts = name.split(".")
    count = next(n for n in range(len(parts), 0, -1) if _is_module(".".join(parts[:n])))
    found = importlib.import_module(".".join(parts[:count]))
    for part in parts[count:]:
        found = inspect.getattr_static(found, part) if inspect.isclass(found) else getattr(found, part)
    return found


def _is_module(name):
    """Whether a name is that of a module, and not of what its package puts in the module's place."""
    outer, _, last = name.rpartition(".")
    try:
        found = importlib.import_module(name)
    except ModuleNotFoundError:
        return False
    return not outer or getattr(importlib.import_module(outer), last, found) is found


def docstring_faults(name, found):
    """What a docstring lacks: a sentence, what comes back, shapes, units, errors by name, or its source."""
    inner = found.fget if isinstance(found, property) else getattr(found, "__func__", found)
    inner = getattr(inner, "func", inner)
    if not (callable(inner) or inspect.isclass(inner)):
        return
    text = inspect.getdoc(inner) or ""
    first = text.split("\n\n")[0].strip()
    if not first.endswith((".", ":")):
        yield f"begins with no sentence: {first[-60:]!r}"
    signature = _signature(inner)
    returned = "" if signature is None or inspect.isclass(inner) else str(signature.return_annotation)
    if returned not in ("", "None", "NoReturn") and DEEDS.match(first) and not re.search("returns?", text, re.I):
        yield "does not say what it returns"
    told = " ".join([text, *([inspect.getdoc(_owner(name)) or ""] if "." in name else [])])
    for error in sorted(_raised(inner)):
        if error not in told:
            yield f"raises {error} and does not say so"
    if signature is not None:
        annotations = " ".join([returned, *(str(p.annotation) for p in signature.parameters.values())])
        if re.search(r"\bTensor(Like)?\b|ndarray|\bArray\b", annotations) and not SHAPE.search(told):
            yield "takes or returns tensors and says nothing of shapes"
        for pattern, unit in UNITS.items():
            for parameter in signature.parameters:
                if re.search(pattern, parameter) and not re.search(unit, told):
                    yield f"does not say the unit of {parameter}"
    operator = OPS.get(name.removeprefix("eqsat."))
    if operator is not None and operator.onnx and f"ONNX {operator.onnx}" not in text:
        yield f"does not name its source, ONNX {operator.onnx}"


def _owner(name):
    owner = _found(name.rpartition(".")[0])
    return owner if inspect.isclass(owner) else None


def _signature(found):
    try:
        return inspect.signature(found)
    except (TypeError, ValueError):
        return None


def _raised(found):
    """The errors of eqsat that a function, or the making of an object, raises by itself."""
    functions = [found] if not inspect.isclass(found) else [vars(found).get(n) for n in ("__init__", "__post_init__")]
    for function in functions:
        if not inspect.isfunction(function) or "<string>" in function.__code__.co_filename:
            continue
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        for node in ast.walk(tree):
            error = getattr(getattr(node, "exc", None), "func", None)
            if isinstance(error, ast.Name) and hasattr(eqsat.errors, error.id):
                yield error.id


def test_operators_without_an_index_form_have_a_sentence_on_shapes():
    shipped = [one for one in OPS.values() if one.is_shipped]
    assert {one.name for one in shipped if one.shapes} == {
        one.name for one in shipped if not (one.index or one.pointwise)
    }


def test_a_docstring_that_lacks_something_is_found():
    def halved(x: "Tensor", seconds: float) -> "Tensor":  # noqa: F821
        """Makes less of it."""
        raise UsageError(x)

    assert {
        "unit" in f or "shapes" in f or "UsageError" in f or "returns" in f for f in docstring_faults("halved", halved)
    } == {True}
    assert len(list(docstring_faults("halved", halved))) == 4


def test_the_graph_of_the_reference_is_the_builder(pages, site):
    assert eqsat.Graph is Builder
    assert "alias of" not in "".join(pages[site / "reference" / "graphs.html"].words)
