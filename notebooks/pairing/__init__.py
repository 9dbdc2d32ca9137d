"""Execution of notebooks: cells are read from Python files, executed, and written with their outputs.

A notebook is a Python file in `notebooks` with cells in jupytext's percent format. `python -m notebooks.pairing`
executes each one in a Jupyter kernel of its own and writes it with its outputs as an .ipynb file beside it;
with names, such as `first_look`, only those.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbclient import NotebookClient
from nbformat import NotebookNode

FOLDER = Path(__file__).resolve().parents[1]
#: The maximum size of a notebook with its outputs, in bytes.
LARGEST = 300_000
#: The time limit of a cell, in seconds.
CELL_SECONDS = 120
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}
#: Patterns that differ from run to run (addresses of objects), and their replacements.
_VOLATILE = ((re.compile(r"(?<= at )0x[0-9a-f]{6,}"), "0x…"),)


def sources() -> list[Path]:
    """The Python files of all notebooks, by name."""
    return sorted(FOLDER.glob("*.py"))


def cells(path: Path) -> NotebookNode:
    """The notebook of a Python file, without outputs; deterministic."""
    notebook = jupytext.read(path, fmt="py:percent")
    notebook.metadata = NotebookNode(
        kernelspec=NotebookNode(KERNEL),
        language_info=NotebookNode(name="python"),
        jupytext={"formats": "ipynb,py:percent"},
    )
    notebook.nbformat, notebook.nbformat_minor = 4, 5
    for number, cell in enumerate(notebook.cells):
        cell["id"] = f"cell-{number}"
        cell["metadata"] = NotebookNode()
    return notebook


def executed(path: Path) -> NotebookNode:
    """The notebook with outputs, run in a kernel of its own and in a temporary folder.

    Raises nbclient's CellExecutionError if a cell fails. Costs, evidence and tuned kernels are stored in that folder,
    so that every run begins without any.
    """
    notebook = cells(path)
    with tempfile.TemporaryDirectory() as folder:
        settings = {
            "EQSAT_COST_TABLE": str(Path(folder) / "costs.sqlite3"),
            "EQSAT_EVIDENCE": str(Path(folder) / "evidence"),
            "EQSAT_TUNING_CACHE": str(Path(folder) / "tuning.sqlite3"),
            "PYTHONPATH": os.pathsep.join([str(FOLDER.parent), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        client = NotebookClient(
            notebook,
            timeout=CELL_SECONDS,
            kernel_name="python3",
            allow_errors=False,
            record_timing=False,
            resources={"metadata": {"path": folder}},
        )
        client.execute(env={**os.environ, **settings}, cwd=folder)
    return cleaned(notebook)


def cleaned(notebook: NotebookNode) -> NotebookNode:
    """The notebook with streams joined, without metadata of the run."""
    notebook.metadata["language_info"] = NotebookNode(name="python")
    for cell in notebook.cells:
        cell["metadata"] = NotebookNode()
        if cell["cell_type"] == "code":
            cell["outputs"] = [_output(output) for output in _joined(cell["outputs"])]
    return notebook


def write(path: Path) -> Path:
    """Execute the notebook of a Python file and write it beside the file, completely or not at all."""
    target = path.with_suffix(".ipynb")
    text = nbformat.writes(executed(path)) + "\n"
    partial = target.with_suffix(f".{os.getpid()}")
    partial.write_text(text, encoding="utf-8")
    partial.replace(target)
    return target


def _joined(outputs: Iterable[Any]) -> list[Any]:
    """Outputs, with consecutive parts of one stream joined."""
    found: list[Any] = []
    for output in outputs:
        last = found[-1] if found else None
        if (
            last is not None
            and output["output_type"] == last["output_type"] == "stream"
            and last["name"] == output["name"]
        ):
            last["text"] += output["text"]
        else:
            found.append(output)
    return found


def _output(output: Any) -> Any:
    if "metadata" in output:
        output["metadata"] = NotebookNode()
    if "text" in output:
        output["text"] = _without_addresses(output["text"])
    for kind, data in output.get("data", {}).items():
        if kind.startswith("text/"):
            output["data"][kind] = _without_addresses(data)
    return output


def _without_addresses(text: str) -> str:
    for pattern, by in _VOLATILE:
        text = pattern.sub(by, text)
    return text
