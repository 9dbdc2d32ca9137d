"""Candidate equations: terms that the generator found equal at one choice of shapes and attributes, and their file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eqsat.rewrites.rules.json_lines import read_json_lines, write_json_lines


@dataclass(frozen=True, slots=True)
class CandidateEquation:
    """Two graphs with equal outputs on random data, at the shapes in `shapes` and with the attributes written out.

    `left` and `right` hold one term an output, in the syntax of rules with literal attributes, such as
    ``transpose(x, perm=(1, 0))``; the right side may be a single ``split(…)`` that yields every output in order. A part
    of a split that stands alone is written as a ``slice``. Variables are named x, y, z, … in the order in which the
    left side meets them, and the right side uses no others. `left_ops` and `right_ops` count distinct operators.
    `lossy` says by how much the two differ in float32 beyond rounding, 0.0 where they do not.
    """

    name: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    shapes: Mapping[str, tuple[int, ...]]
    left_ops: int
    right_ops: int
    fingerprint: str = ""
    lossy: float = 0.0
    dtypes: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The equation as one line in the syntax of rules, without conditions."""
        return f"{self.name}: {', '.join(self.left)} => {', '.join(self.right)}"


def read_candidates(path: Path) -> Iterator[CandidateEquation]:
    """The candidates of a file of JSON lines; RuleError with the line for one that is none."""

    def make(record: dict[str, Any]) -> CandidateEquation:
        record["left"], record["right"] = tuple(record["left"]), tuple(record["right"])
        record["shapes"] = {name: tuple(shape) for name, shape in record["shapes"].items()}
        return CandidateEquation(**record)

    return read_json_lines(path, make, "candidate", "the generator", "run `eqsat rules generate` again")


def write_candidates(candidates: Iterable[CandidateEquation], path: Path) -> None:
    """Write the candidates, in order, in place of the file."""
    write_json_lines(candidates, path)
