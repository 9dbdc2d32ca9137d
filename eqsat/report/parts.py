"""Parts of a report: typed records, and the JSON of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eqsat.certify.record import CheckedRegion
from eqsat.moved import FormerDict


@dataclass(frozen=True)
class OpaqueNode(FormerDict):
    """A node that is kept as it is: its name, the operator it has in the model, and the reason."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Baseline(FormerDict):
    """The outcome of a search other than the one asked for: its cost, in units of the objective, and seconds."""

    name: str
    cost: float
    seconds: float
    status: str


@dataclass(frozen=True, slots=True)
class Usage(FormerDict):
    """The kernels that one run of a graph launches, and the bytes it takes: those of values that are live at once, at
    most, and those of its weights."""

    launches: int
    peak_memory: float
    weights: int


@dataclass(frozen=True, slots=True)
class EqualBlocks(FormerDict):
    """A run of `count` equal blocks of so many `nodes`, of which `grown` were written into the e-graph.

    The second of these stands for the blocks that were not.
    """

    nodes: int
    count: int
    grown: int


@dataclass(frozen=True, slots=True)
class GraphPart(FormerDict):
    """A part of a graph that is too large for one e-graph: its nodes and its cost before and after, and its `tries`.

    Parts around the cuts are searched after the others, which their names say. `why` is the reason for which a part was
    left as it was, where its search failed or there was no time for it, else "".
    """

    name: str
    nodes: tuple[int, int]
    costs: tuple[float, float]
    tries: int
    why: str = ""


@dataclass(frozen=True, slots=True)
class Finalist(FormerDict):
    """A graph that could be the result, and the reason for which it was kept or not; the first one is the original.

    `predicted` is its cost by the model, in units of the objective, `nodes` its size as it is written. `measured` is
    the median of its times, in seconds; `ratio` is the median over rounds of its time over the original's, `bound` the
    upper 95 % bound of that ratio. The three are None where it was not timed, the last two for the original.
    """

    name: str
    nodes: int
    predicted: float
    measured: float | None
    ratio: float | None
    bound: float | None
    kept: bool
    why: str


@dataclass(frozen=True, slots=True)
class SessionLevel(FormerDict):
    """A level of ONNX Runtime's graph optimisation that the result was timed at, and why it was kept or not.

    `ratio` is the median of its time over that at the level "all", None where it was not timed, and `bound` the upper
    95 % bound of it over so many `sessions` made anew; `new_old` and `new_old_bound` are the same of its time over that
    of the original at "all". They are None where it was not timed in new sessions.
    """

    name: str
    ratio: float | None
    bound: float | None = None
    new_old: float | None = None
    new_old_bound: float | None = None
    sessions: int = 0
    kept: bool = False
    why: str = ""


@dataclass(frozen=True, slots=True)
class InputModel(FormerDict):
    """The model that was optimised: its name, the SHA-256 of it as it was given, and the content that was hashed.

    `hashed` is "file" for the bytes of a file; "files" for the lines that `sha256sum` prints, in the model's folder,
    for the file and the sorted files of its tensors; "model" for a ModelProto as it is written; "graph" for the content
    of a graph built in Python or traced.
    """

    name: str
    hashed: str
    sha256: str


@dataclass(frozen=True, slots=True)
class RunMachine(FormerDict):
    """The machine of a run: its processor, the cores that the process may use, threads of the runtime, and system."""

    processor: str
    cores: int
    threads: int
    system: str


@dataclass(frozen=True)
class CostedSizes(FormerDict):
    """Sizes of named dims at which a model was costed, with their weight."""

    sizes: Mapping[str, int]
    weight: float


@dataclass(frozen=True)
class StepCost(FormerDict):
    """A kernel or a conversion of a result: operators, the value it computes, states, and its cost.

    `operands` are the different states of its operands, `result` is that of its first result, `arithmetic` is "" where
    it is that of the element type. `estimated` is False where its seconds were measured.
    """

    op: str
    value: str
    operands: Sequence[str]
    result: str
    arithmetic: str
    seconds: float
    flops: float
    bytes: float
    estimated: bool


@dataclass(frozen=True)
class ControlChange(FormerDict):
    """A change to control flow: a node that reading put others in place of, or a body that was optimised by itself.

    `nodes` counts nodes more than before where that is known; `predicted` is in units of the objective.
    """

    what: str
    nodes: int | None = None
    rules: Sequence[str] = ()
    predicted: float | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that are computed in another way: none, as bodies have values of their own."""
        return ()

    @property
    def measured(self) -> None:
        """The seconds that were measured to be saved: control flow is not timed apart."""
        return None


@dataclass(frozen=True)
class CertificateSummary(FormerDict):
    """The certificate of a result: `kind`, the largest `error`, and a `text` that says how it was checked.

    `regions`, `folded` constants, `draws` and `sizes` are those of the check, `bodies` those that were checked by
    themselves; all are None where a run ended before there was anything to check.
    """

    kind: str
    error: float
    regions: Sequence[CheckedRegion] | None = None
    folded: int | None = None
    draws: int | None = None
    sizes: Sequence[Mapping[str, int]] | None = None
    text: str = ""
    bodies: Sequence[BodyCertificate] | None = None


@dataclass(frozen=True)
class BodyCertificate(FormerDict):
    """The certificate of a body that was optimised by itself, and its place in the model."""

    place: str
    certificate: CertificateSummary

    def as_dict(self) -> dict[str, Any]:
        """The certificate with the place among its fields."""
        return {"place": self.place, **self.certificate.as_dict()}
