"""Schedules judged and computed in a process of its own, which is ended where it takes too long.

A problem of a few statements can take isl minutes, and nothing interrupts it from inside. Such a schedule is unknown,
as is any where isl is not installed, and unknown ones are never legal. A computation that isl finds no schedule for in
time has none of isl's.
"""

from __future__ import annotations

import base64
import hashlib
import importlib
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eqsat.errors import EqsatError, UsageError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import ConstraintKind, Fusion, MappingOptions
from eqsat.runtime.kernels.nests.scheduling.chains import StatementChain
from eqsat.runtime.kernels.nests.scheduling.computed import ComputedPlan
from eqsat.runtime.kernels.nests.tree import Node
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.system.extras import missing, require

Answer = Literal["legal", "illegal", "unknown"]

#: Seconds after which an analysis is given up.
MOST_SECONDS = 20.0
_LEGALITY = "eqsat.runtime.kernels.polyhedral.legality"
_SCHEDULER = "eqsat.runtime.kernels.polyhedral.scheduler"
#: Schedules that were computed, by the hash of what was asked for; the oldest are forgotten.
_computed: dict[bytes, PlanAnswer] = {}
_MOST_KEPT = 256
#: The modules are found where the parent finds them.
_MAIN = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from eqsat.runtime.kernels.polyhedral.child import answer_request
answer_request()
"""


@dataclass(frozen=True)
class ScheduleJudgement:
    """An answer about a schedule, and what it rests on where it is not "legal"."""

    answer: Answer
    reason: str = ""
    remedy: str = ""

    @property
    def is_legal(self) -> bool:
        """True of a schedule that was proved; an unknown one is none."""
        return self.answer == "legal"

    def __bool__(self) -> bool:
        raise TypeError("a judgement is legal, illegal or unknown: ask is_legal")


@dataclass(frozen=True)
class ScheduleRequest:
    """A question to isl: runs of chains that may share loops, by number, and how they may.

    `constraints` are relations between elements, by kind, as those of MappingOptions. They name statements by their
    places among all `count`, of which those that have elements are chains: at the `places`, where constraints are.
    """

    runs: tuple[tuple[int, ...], ...]
    fusion: Fusion
    skewing: bool = True
    constraints: tuple[tuple[ConstraintKind, str], ...] = ()
    places: tuple[int, ...] = ()
    count: int = 0


@dataclass(frozen=True)
class PlanAnswer:
    """A schedule that isl computed, or the reason why there is none."""

    plan: ComputedPlan | None
    reason: str = ""


def computed_plan(
    computation: Computation, chains: Sequence[StatementChain], request: ScheduleRequest, seconds: float = MOST_SECONDS
) -> PlanAnswer:
    """Have isl compute a schedule for the chains of a computation; UsageError for constraints that none can keep.

    An answer is kept for as long as the process runs, one that time ran out for excepted.
    """
    try:
        require("islpy")
    except ImportError:
        return PlanAnswer(None, missing("islpy").what)
    analysis, arguments = f"{_SCHEDULER}:compute_plan", (computation, tuple(chains), request)
    key = hashlib.sha256(pickle.dumps(arguments)).digest()
    if key in _computed:
        return _computed[key]
    lines = _answered(analysis, arguments, seconds, True)
    if isinstance(lines, ScheduleJudgement):
        return PlanAnswer(None, lines.reason)
    answer, text, remedy = lines
    if answer == "refused":
        raise UsageError(text, where=computation.name, expected="constraints of elements of its statements, that a "
                         "schedule can keep beside their dependences", remedy=remedy)  # fmt: skip
    made = pickle.loads(base64.b64decode(text)) if answer == "made" else None
    found = PlanAnswer(made, "" if answer == "made" else text)
    while len(_computed) >= _MOST_KEPT:
        _computed.pop(next(iter(_computed)), None)
    _computed[key] = found
    return found


def judge_schedule(
    computation: Computation, options: MappingOptions, seconds: float = MOST_SECONDS
) -> ScheduleJudgement:
    """Judge the loops that the scheduler makes of a computation."""
    return judged(f"{_LEGALITY}:check_schedule", (computation, options), seconds)


def judge_tree(computation: Computation, nodes: Sequence[Node], seconds: float = MOST_SECONDS) -> ScheduleJudgement:
    """Judge loops by the statements that they are to compute."""
    return judged(f"{_LEGALITY}:check_tree", (computation, tuple(nodes)), seconds)


def judge_mapping(computation: Computation, options: GpuMapping, seconds: float = MOST_SECONDS) -> ScheduleJudgement:
    """Judge the kernels for a GPU that the scheduler makes of a computation."""
    return judged(f"{_LEGALITY}:check_mapping", (computation, options), seconds)


def judged(analysis: str, arguments: tuple[Any, ...], seconds: float) -> ScheduleJudgement:
    """Have an analysis, `module:function`, answer in another process within so many seconds.

    The analysis raises IllegalScheduleError, or returns False, for an illegal schedule; any other error is unknown.
    """
    try:
        require("islpy")
    except ImportError:
        return _without_islpy()
    made = _answered(analysis, arguments, seconds, False)
    return made if isinstance(made, ScheduleJudgement) else ScheduleJudgement(*made)


def _answered(analysis: str, arguments: tuple[Any, ...], seconds: float, is_value: bool) -> Any:
    """The three parts of the answer of another process; an unknown judgement where it gives none."""
    command = [sys.executable, "-c", _MAIN, json.dumps(sys.path)]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps((analysis, arguments, is_value)),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        remedy = "pass more seconds, or a smaller computation"
        return ScheduleJudgement("unknown", f"not decided in {seconds:g} s", remedy)
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        return ScheduleJudgement("unknown", f"the analysis ended with status {done.returncode}")
    return json.loads(lines[-1])


def answer_request() -> None:
    """Run the analysis on standard input, and write its judgement, or what it computed, to standard output."""
    analysis, arguments, is_value = pickle.load(sys.stdin.buffer)
    if is_value:
        print(json.dumps(_value(analysis, arguments)))
        return
    made = _judgement(analysis, arguments)
    print(json.dumps([made.answer, made.reason, made.remedy]))


def _value(analysis: str, arguments: tuple[Any, ...]) -> tuple[str, str, str]:
    """The result of an analysis, or why there is none."""
    module, _, name = analysis.partition(":")
    try:
        made = getattr(importlib.import_module(module), name)(*arguments)
    except UsageError as error:
        return "refused", error.what, error.remedy
    except EqsatError as error:
        return "none", str(error), error.remedy
    except Exception as error:  # noqa: BLE001 - whatever ends an analysis, there is no schedule
        return "none", f"{type(error).__name__}: {error}", ""
    return "made", base64.b64encode(pickle.dumps(made)).decode(), ""


def _judgement(analysis: str, arguments: tuple[Any, ...]) -> ScheduleJudgement:
    module, _, name = analysis.partition(":")
    try:
        kept = getattr(importlib.import_module(module), name)(*arguments)
    except IllegalScheduleError as error:
        return ScheduleJudgement("illegal", str(error))
    except ImportError:
        return _without_islpy()
    except EqsatError as error:
        return ScheduleJudgement("unknown", str(error), error.remedy)
    except Exception as error:  # noqa: BLE001 - whatever ends an analysis, it has proved nothing
        return ScheduleJudgement("unknown", f"{type(error).__name__}: {error}")
    if kept is False:
        return ScheduleJudgement("illegal", "an order breaks a dependence")
    if kept is None or kept is True:
        return ScheduleJudgement("legal")
    return ScheduleJudgement("unknown", f"the analysis returned {kept!r}")


def _without_islpy() -> ScheduleJudgement:
    error = missing("islpy")
    return ScheduleJudgement("unknown", error.what, error.remedy)
