"""Adaptation of the sources for Sphinx, so that they stay plain Markdown and plain Python here.

Notebooks are shown with the outputs that `make notebooks` wrote, and are not run again; links to files of the
repository outside this folder become links to the pages that include them; a code block that names a file shows its
name; code in single backticks in docstrings is converted for autodoc; and a comment such as
``<!-- generated: operators -->`` is replaced by the table that `_tables` writes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from pkgutil import resolve_name
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import nbformat
from _tables import TABLES
from docutils import nodes
from pygments.lexers import PythonLexer
from sphinx.addnodes import pending_xref

if TYPE_CHECKING:
    from sphinx.application import Sphinx

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NOTEBOOKS = ROOT / "notebooks"
TUTORIALS = DOCS / "tutorials"

#: Pages of the site that include a file of the repository, or describe a folder, by its path.
PAGES: Mapping[str, str] = MappingProxyType(
    {
        "CHANGELOG.md": "project/changelog.md",
        "CONTRIBUTING.md": "project/contributing.md",
        "benchmarks/README.md": "project/benchmarks.md",
        "README.md": "index.md",
        "docs": "README.md",
    }
)

#: Pages on parts that need optional packages; an index lists them only if these are installed.
PARTS: Mapping[str, str] = MappingProxyType(
    {"reference/explore.md": "eqsat:Explorer", "reference/testing.md": "eqsat.testing:graphs"}
)

_ENTRY = re.compile(r"^(reference/)?(explore|testing|faults)\n", re.M)
_GENERATED = re.compile(r"^<!-- generated: (\w+) -->$", re.M)
_LINK = re.compile(r"\[([^\]]+)\]\(([^)#:\s]+)(#[^)]*)?\)")
_NAMED_BLOCK = re.compile(r"^```(\w+) (\S+\.\w+)\n", re.M)
_LITERAL = re.compile(r"(``.+?``|^ *(?:>>>|\.\.\.) .*$)", re.M | re.S)
_CODE = re.compile(r"(?<![`:])`([^`\n]+(?:\n[^`\n]+)?)`(?!`)")


def register(app: Sphinx) -> None:
    """Connect each step to its Sphinx event."""
    app.connect("builder-inited", write_tutorials)
    app.connect("source-read", adapt_page)
    app.connect("include-read", adapt_included)
    app.connect("env-get-outdated", outdated)
    app.connect("autodoc-process-docstring", adapt_docstring)
    app.connect("doctree-read", adapt_references)
    app.add_lexer("rules", PythonLexer)


def is_here(part: str) -> bool:
    """True if a part of eqsat can be imported."""
    try:
        resolve_name(part)
    except (ImportError, AttributeError):
        return False
    return True


def write_tutorials(_app: Sphinx) -> None:
    """Write every changed notebook beside the pages, and remove those without a source."""
    wanted = {TUTORIALS / f"{path.stem}.ipynb": _notebook(path) for path in sorted(NOTEBOOKS.glob("*.ipynb"))}
    TUTORIALS.mkdir(exist_ok=True)
    for path in set(TUTORIALS.glob("*.ipynb")) - set(wanted):
        path.unlink()
    for path, text in wanted.items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            partial = path.with_suffix(f".{os.getpid()}")
            partial.write_text(text, encoding="utf-8")
            partial.replace(path)


def _notebook(path: Path) -> str:
    """A notebook with its outputs as JSON, with the links of the site."""
    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = _linked(cell["source"], NOTEBOOKS, TUTORIALS)
    return str(nbformat.writes(notebook))


def adapt_page(app: Sphinx, docname: str, source: list[str]) -> None:
    """Insert generated parts, name files above their code blocks, and make links lead to pages."""
    path = Path(str(app.env.doc2path(docname)))
    if path.suffix != ".md":
        return
    text = _GENERATED.sub(lambda found: TABLES[found[1]](), source[0])
    if docname == "index":
        text = _ENTRY.sub(lambda found: found[0] if found[0].strip() in app.env.found_docs else "", text)
    text = _NAMED_BLOCK.sub(r"```{code-block} \1\n:caption: \2\n\n", text)
    source[0] = _linked(text, path.parent, path.parent)


def adapt_included(app: Sphinx, path: Path, docname: str, source: list[str]) -> None:
    """Adapt the links of an included file, which are relative to the folder of the file."""
    page = Path(str(app.env.doc2path(docname)))
    source[0] = _linked(source[0], Path(app.srcdir, path).resolve().parent, page.parent)


def _linked(text: str, folder: Path, page: Path) -> str:
    """A text of a folder with links from a page's folder to pages; other files are named, not linked."""

    def led(found: re.Match[str]) -> str:
        shown, target, anchor = found[1], found[2], found[3] or ""
        path = (folder / target).resolve()
        inside = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else ""
        if inside in PAGES:
            path = DOCS / PAGES[inside]
        elif path.parent == NOTEBOOKS:
            path = TUTORIALS / f"{path.stem}.ipynb"
        elif not path.is_relative_to(DOCS):
            return f"{shown} (`{inside}`)"
        return f"[{shown}]({os.path.relpath(path, page)}{anchor})"

    return _LINK.sub(led, text)


def outdated(app: Sphinx, env: Any, _added: set[str], _changed: set[str], _removed: set[str]) -> list[str]:
    """The pages with parts generated from eqsat, which may have changed although the page has not."""
    known = (name for name in env.found_docs if Path(str(env.doc2path(name))).suffix == ".md")
    return [n for n in known if _GENERATED.search(Path(app.srcdir, env.doc2path(n)).read_text(encoding="utf-8"))]


def adapt_docstring(_app: Sphinx, _kind: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Turn code in single backticks into code in double ones, and escape bars outside code."""
    parts = _LITERAL.split(_CODE.sub(r"``\1``", "\n".join(lines)))
    parts[::2] = [part.replace("|", "\\|") for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def adapt_references(_app: Sphinx, doctree: nodes.document) -> None:
    """Link the annotation `Graph` to the immutable graph; the builder, which users call `Graph`, is `Builder` there."""
    for reference in doctree.findall(pending_xref):
        if reference.get("reftarget") == "Graph":
            reference["reftarget"] = "eqsat.language.terms.graph.Graph"
