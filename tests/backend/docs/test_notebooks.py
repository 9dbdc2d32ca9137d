"""The notebooks: each runs in a Jupyter kernel, and what is committed beside its Python file is that notebook."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest
from nbclient.exceptions import CellExecutionError

from notebooks.pairing import FOLDER, LARGEST, cells, executed, sources

ROOT = Path(__file__).parents[3]
NAMES = {
    "an_operator_in_five_lines",
    "first_hour",
    "first_look",
    "how_the_integer_program_decides",
    "inside_the_egraph",
    "measured_costs_and_layouts",
    "write_a_rule",
    "your_own_operator",
}
#: Folders of a machine, as outputs would show them.
PLACES = re.compile(r"(?:/(?:home|root|tmp|work|Users|usr|var|opt|mnt|private)/|[A-Z]:\\\\|file://)")
each = pytest.mark.parametrize("path", sources(), ids=lambda path: path.stem)


def committed(path):
    return nbformat.read(path.with_suffix(".ipynb"), as_version=4)


def outputs(notebook):
    return [(cell, output) for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]


def shown(output):
    """What an output shows, by kind; the text of a stream is plain text."""
    return {"text/plain": output.text} if output.output_type == "stream" else dict(output.get("data", {}))


def test_the_notebooks_are_those_that_are_meant():
    assert {path.stem for path in sources()} == NAMES
    assert {path.stem for path in FOLDER.glob("*.ipynb")} == NAMES


@each
def test_a_notebook_runs_and_shows_what_its_committed_copy_shows(path):
    """Its own assertions check its claims; figures and times differ from run to run, so kinds are compared."""
    found = executed(path)
    assert outputs(found)
    for now, then in zip(found.cells, committed(path).cells, strict=True):
        kinds = [sorted(kind for output in cell.get("outputs", ()) for kind in shown(output)) for cell in (now, then)]
        assert kinds[0] == kinds[1], now.source
    assert not [output for _, output in outputs(found) if output.output_type == "error"]
    assert not [output.text for _, output in outputs(found) if output.get("name") == "stderr"], "it warns"


@each
def test_a_committed_notebook_is_that_of_its_python_file(path):
    wanted, found = cells(path), committed(path)
    assert [(c.cell_type, c.source, c.id) for c in found.cells] == [(c.cell_type, c.source, c.id) for c in wanted.cells]
    assert found.metadata == wanted.metadata, "run python -m notebooks.pairing"


@each
def test_a_committed_notebook_was_run_from_top_to_bottom(path):
    found = committed(path)
    counts = [cell.execution_count for cell in found.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    assert not [output for _, output in outputs(found) if output.output_type == "error"]
    assert sum(bool(cell.outputs) for cell in found.cells if cell.cell_type == "code") >= len(counts) / 2


@each
def test_a_committed_notebook_is_small_and_says_nothing_of_the_machine(path):
    file = path.with_suffix(".ipynb")
    assert file.stat().st_size <= LARGEST
    assert all(cell.metadata == {} for cell in committed(path).cells)
    for cell, output in outputs(committed(path)):
        for kind, data in shown(output).items():
            text = data if isinstance(data, str) else json.dumps(data)
            if kind.startswith("text/"):
                assert not PLACES.search(text), (cell.source, PLACES.search(text))
                assert len(text) <= 200_000, cell.source
        assert not set(shown(output)) - {"text/plain", "text/html", "image/png"}


@each
def test_a_notebook_teaches_in_short_cells(path):
    """Every code cell stands below text, and its claims are asserted somewhere."""
    notebook = cells(path)
    code = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown"
    assert notebook.cells[0].source.startswith("# ")
    assert sum("assert" in source for source in code) >= 5
    assert all(len(line) <= 100 for source in code for line in source.splitlines())
    assert "benchmarks" not in "".join(code)


@each
def test_links_between_notebooks_lead_somewhere(path):
    texts = [cell.source for cell in cells(path).cells if cell.cell_type == "markdown"]
    for target in re.findall(r"\]\(([^)#]+)\)", "".join(texts)):
        assert (path.parent / target).exists(), target


def test_a_cell_that_fails_is_reported(tmp_path):
    broken = tmp_path / "broken.py"
    broken.write_text("# %% [markdown]\n# # Broken\n\n# %%\nprint(1)\n\n# %%\nassert 1 + 1 == 3\n", encoding="utf-8")
    with pytest.raises(CellExecutionError, match="1 \\+ 1 == 3"):
        executed(broken)


def test_streams_of_one_cell_are_one_output_and_addresses_are_left_out(tmp_path):
    path = tmp_path / "two.py"
    source = "import sys\nprint(1)\nsys.stdout.flush()\nprint(2)\nprint(object())\n"
    path.write_text(f"# %%\n{source}", encoding="utf-8")
    ((_, output),) = outputs(executed(path))
    assert output.text == "1\n2\n<object object at 0x…>\n"
