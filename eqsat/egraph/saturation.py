"""Limits of saturation, and the record of its steps."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Limits:
    """Limits of saturation: e-nodes, rounds, seconds; the number of merges that may have made a tensor that is merged
    again; the number of firings, simplifications apart, that may lie between an e-node and the original graph
    (`radius`); the number of matches of a query in one step above which it is skipped in that step.
    """

    nodes: int = 20_000
    rounds: int = 12
    seconds: float = 15.0
    generations: int = 2
    radius: int = 3
    matches: int = 50_000


@dataclass
class SaturationStep:
    """One phase's rules matched once and applied: e-nodes and e-classes before and after, what matched, fired and was
    refused in it, and whether anything new came of it.

    `firings` are the rules that fired, each with the e-nodes its roots were matched in, in order. `seconds` are since
    saturation began. `stopped` is the limit that ended the step before its end; the work left is done first when
    growth goes on.
    """

    phase: str
    before: tuple[int, int]
    after: tuple[int, int] = (0, 0)
    seconds: float = 0.0
    changed: bool = False
    matched: Counter[str] = field(default_factory=Counter)
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    firings: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    stopped: str = ""


@dataclass
class Saturation:
    """The course of a saturation: why it stopped, how often each rule fired and was refused and why, and the growth
    after each step (phase, e-nodes, e-classes, seconds).

    `stopped_by` is "saturated", "radius_limit" where only matches too far from the original are left, "node_limit",
    "round_limit", "time_limit", "step_limit" or "interrupted"; "paused" between two steps that are taken one by one.
    `steps` are the records of all steps, the last one also where it was cut short. `made` says from which e-node on
    e-nodes were made by which rule; those before the first are of the original graph.
    """

    stopped_by: str = "saturated"
    fired: Counter[str] = field(default_factory=Counter)
    refused: Counter[tuple[str, str]] = field(default_factory=Counter)
    growth: list[tuple[str, int, int, float]] = field(default_factory=list)
    seconds: float = 0.0
    steps: list[SaturationStep] = field(default_factory=list)
    made: list[tuple[int, str]] = field(default_factory=list)
