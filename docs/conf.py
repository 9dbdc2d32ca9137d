"""Configuration of Sphinx: `python -m sphinx -W -b html docs build/docs`. The build needs no network."""

from __future__ import annotations

import sys
from importlib.metadata import version as installed
from pathlib import Path
from typing import TYPE_CHECKING, Any

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

import _sources  # noqa: E402  (a module beside this file)

from eqsat.language.graphs.builder import Builder  # noqa: E402

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "eqsat"
author = "the eqsat developers"
version = release = installed("eqsat")

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_*.py", "conf.py", "power/*.rules", "**/.ipynb_checkpoints"]
#: Pages of parts whose optional packages are not installed.
exclude_patterns += [page for page, part in _sources.PARTS.items() if not _sources.is_here(part)]

html_theme = "furo"
html_title = f"eqsat {version}"
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False

myst_heading_anchors = 3
#: Notebooks contain their outputs, which a test compares with a run.
nb_execution_mode = "off"
nb_merge_streams = True
#: Widgets would load scripts from a content network; the pages do not use them.
nb_ipywidgets_js: dict[str, Any] = {}

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# Signatures of calls are made from their options: their sources state no defaults.
autodoc_preserve_defaults = False
autodoc_default_options = {"members": True}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88
default_role = "code"
#: Quotes in docstrings are mostly Python code.
smartquotes = False

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def setup(app: Sphinx) -> None:
    """Register the adaptation of pages with Sphinx."""
    _sources.register(app)
    # Users call the builder Graph; autodoc names a class by its definition.
    Builder.__name__ = Builder.__qualname__ = "Graph"
