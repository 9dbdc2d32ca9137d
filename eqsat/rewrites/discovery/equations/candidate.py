"""Candidate equations: terms that the generator found equal at one choice of shapes and attributes, and their file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from eqsat.errors import RuleError


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
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        try:
            record = json.loads(line)
            record["left"], record["right"] = tuple(record["left"]), tuple(record["right"])
            record["shapes"] = {name: tuple(shape) for name, shape in record["shapes"].items()}
            yield CandidateEquation(**record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise RuleError(
                f"no candidate: {error}",
                where=f"{path}:{number}",
                expected="one JSON object a line, written by the generator",
                remedy="run `eqsat rules generate` again",
            ) from None


def write_candidates(candidates: Iterable[CandidateEquation], path: Path) -> None:
    """Write the candidates, in order, in place of the file."""
    text = "".join(json.dumps(asdict(c), ensure_ascii=False) + "\n" for c in candidates)
    partial = path.with_name(path.name + ".tmp")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)
