"""Text of results in a Jupyter kernel: as everywhere else, and without empty blocks between cells."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]

SETUP = """
import numpy as np
import eqsat

g = eqsat.Graph("g")
x = g.input("x", (4, 8))
w = np.arange(64, dtype=np.float32).reshape(8, 8) / 64
g.output("y", (x @ w) + (x @ (2 * w)))
result = eqsat.optimize(g, measure=False, steps=100_000)
front = eqsat.pareto(g, "time", "flops", steps=100_000)
explorer = eqsat.explore(g, steps=100_000)
grown = explorer.grow()
result.save("g.onnx")
"""
TEXTS = {
    "report": "str(result.report)",
    "result": "repr(result)",
    "explanation": "str(result.explain())",
    "front": "str(front)",
    "explorer": "repr(explorer)",
    "growth": "str(grown)",
    "forms": "str(explorer.eclass('y'))",
    "choice": "str(explorer.choose())",
    "difference": "str(explorer.diff())",
    "view": "explorer.view().report",
}
ALL = "import json\nprint(json.dumps({" + ", ".join(f"{name!r}: {text}" for name, text in TEXTS.items()) + "}))"
SHOWN = ["result", "result.report", "result.explain()", "result.plan", "result.graph", "g", "front", "explorer"]
COMMAND = "from eqsat import cli\ncode = cli.run(['inspect', 'g.onnx'])"


def settled(text):
    """A text without colours and figures, which differ from run to run, and the room they take."""
    plain = re.sub(r"\x1b\[[\d;]*m", "", text)
    return re.sub(r"\s+", " ", re.sub(r"[\d.]+(e-\d+)?", "0", plain))


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    folder = tmp_path_factory.mktemp("jupyter")
    more = {"EQSAT_COST_TABLE": str(folder / "costs.sqlite3"), "EQSAT_EVIDENCE": str(folder / "evidence")}
    return folder, {**os.environ, **more, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="module")
def outputs(settings):
    """The outputs of each cell, by its source."""
    folder, environment = settings
    sources = [SETUP, "print(result.report)", ALL, *SHOWN, COMMAND]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    client = NotebookClient(notebook, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}})
    client.execute(env=environment, cwd=str(folder))
    return {cell.source: cell.outputs for cell in notebook.cells}


@pytest.fixture(scope="module")
def outside(settings):
    """What the same prints in Python alone, by name, and the command."""
    folder, environment = settings
    command = [sys.executable, "-c", "\n".join([SETUP, ALL, COMMAND])]
    printed = subprocess.run(command, check=True, capture_output=True, text=True, env=environment, cwd=folder).stdout
    texts, _, inspected = printed.partition("\n")
    return {**json.loads(texts), "inspected": inspected}


def stream(cell):
    assert {(output.output_type, output.get("name")) for output in cell} == {("stream", "stdout")}
    return "".join(output.text for output in cell)


def test_text_is_the_same_as_outside(outputs, outside):
    texts = json.loads(stream(outputs[ALL]))
    assert {name: settled(text) for name, text in texts.items()} == {n: settled(outside[n]) for n in TEXTS}
    assert all(texts.values())


def test_a_printed_report_is_the_report(outputs, outside):
    assert settled(stream(outputs["print(result.report)"])).strip() == settled(outside["report"]).strip()


def test_a_command_prints_into_its_cell(outputs, outside):
    assert settled(stream(outputs[COMMAND])) == settled(outside["inspected"])


@pytest.mark.parametrize("expression", SHOWN)
def test_a_value_is_shown_as_html_and_as_text(outputs, expression):
    (shown,) = outputs[expression]
    assert shown.output_type == "execute_result"
    assert {"text/html", "text/plain"} <= set(shown.data)
    assert "<script" not in re.sub(r'srcdoc="[^"]*"', "", shown.data["text/html"])


def test_no_block_is_put_between_cells(outputs):
    assert outputs[SETUP] == []
    assert not [output for cell in outputs.values() for output in cell if output.output_type == "display_data"]
