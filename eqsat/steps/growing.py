"""The e-graph of a model, and its growth by rules."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.egraph.encode import Encoding, encode, nan_warnings
from eqsat.egraph.saturate import Saturator
from eqsat.egraph.saturation import Saturation
from eqsat.egraph.snapshot import Snapshot, snapshot
from eqsat.language.onnx.read.model import Given
from eqsat.report.report import Progress
from eqsat.rewrites.rules.rule import Rule
from eqsat.steps.log import Log
from eqsat.steps.settings import SATURATE, Settings

#: The share of a call after which nothing is grown from a graph that is not yet in an e-graph.
_ENCODE = 0.6


@dataclass(frozen=True)
class Grown:
    """The e-graph of a model, how it grew, and its e-nodes."""

    encoding: Encoding
    saturation: Saturation
    snapshot: Snapshot


def begin(given: Given, rules: tuple[Rule, ...], settings: Settings, log: Log) -> tuple[Encoding, Saturator]:
    """The e-graph of a model as it was given, and the saturator that grows it."""
    options = settings.options
    encoding = encode(given.graph, finite_math=options.finite_math, doubted=given.doubted, heard=given.heard)
    log.warnings += [*given.warnings, *nan_warnings(encoding)]

    def follow(phase: str, nodes: int) -> None:
        log.say(Progress("saturate", nodes=nodes, detail=phase))

    return encoding, Saturator(encoding.egraph, rules, settings.limits, follow, options.should_stop)


def grow(given: Given, rules: tuple[Rule, ...], settings: Settings, log: Log) -> Grown:
    """The e-graph of a model, grown by rules within the limits."""
    deadline = settings.deadline
    growing = deadline.part(SATURATE)
    with log.phase("saturate"):
        with deadline.part(_ENCODE):
            encoding, saturator = begin(given, rules, settings, log)
        saturator.deadline = growing
        with deadline:
            saturation = saturator.run()
            return Grown(encoding, saturation, snapshot(encoding))
