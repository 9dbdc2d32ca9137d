"""What `optimize` returns: the graph, how it came about, and ways to run it and to write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eqsat.language.graph import Graph
from eqsat.report import Report
from eqsat.runtime.backend import Program, select

if TYPE_CHECKING:
    from onnx import ModelProto


@dataclass(frozen=True)
class Change:
    """Values that are computed in another way, and the rules that lead from the old way to the new one."""

    value: str
    before: str
    after: str
    rules: tuple[str, ...]
    values: tuple[str, ...] = ()

    @staticmethod
    def together(changes: Sequence[Change]) -> Change:
        """Changes by the same rules as one."""
        first = changes[0]
        return Change(first.value, first.before, first.after, first.rules, tuple(c.value for c in changes))

    def as_dict(self) -> dict[str, Any]:
        """The change as JSON has it."""
        return {
            "what": f"{len(self.values)} × {self.before} -> {self.after}",
            "values": list(self.values),
            "rules": list(self.rules),
        }

    def __str__(self) -> str:
        shown = ", ".join(self.values[:3]) + (", …" if len(self.values) > 3 else "")
        return f"{len(self.values)} × {self.before} -> {self.after} ({shown}): {', then '.join(self.rules)}"


@dataclass(frozen=True)
class Explanation:
    """The chains of rules behind a result; `unexplained` counts values whose chain was not found."""

    changes: tuple[Change, ...]
    unexplained: int

    @property
    def share(self) -> float:
        """The share of changed values that a chain of rules explains; 1 where nothing changed."""
        explained = sum(len(c.values) for c in self.changes)
        return explained / (explained + self.unexplained) if explained + self.unexplained else 1.0

    def __str__(self) -> str:
        lines = [str(change) for change in self.changes] or ["nothing changed"]
        if self.unexplained:
            lines.append(f"{self.unexplained} changed values have no recorded chain of rules")
        return "\n".join(lines)


@dataclass(frozen=True)
class Result:
    """An optimised graph with its report.

    `graph` is the result; `report` says what changed, what it costs and how it was checked. `source` is the model as it
    was given where that was kept.
    """

    graph: Graph
    report: Report
    explanation: Explanation
    source: Any = None
    threads: int | None = None
    opset: int | None = None

    @cached_property
    def _program(self) -> Program:
        return select().compile(self.graph, threads=self.threads)

    def run(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as NumPy arrays; BackendError for inputs that do not fit."""
        return self._program.run(inputs)

    def to_onnx(self, path: str | Path | None = None, opset: int | None = None) -> ModelProto:
        """The result as an ONNX model at its own opset or a chosen one; written to `path` too, if one is given.

        ExportModelError for a target that cannot be written or an operator the opset lacks.
        """
        from eqsat.language.onnx.exporter import to_model

        if path is not None:
            self.save(path, opset)
        return to_model(self.graph, opset or self.opset)

    def save(self, path: str | Path, opset: int | None = None) -> None:
        """Writes the result as an ONNX file, atomically and without a copy of the weights in memory."""
        from eqsat.language.onnx.exporter import save

        save(self.graph, Path(path), opset or self.opset)

    def explain(self) -> Explanation:
        """Which rules led from each changed value to what computes it now."""
        return self.explanation

    def __repr__(self) -> str:
        return str(self.report)
