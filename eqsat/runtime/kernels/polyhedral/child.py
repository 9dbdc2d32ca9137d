"""Judgements of schedules in a process of its own, which is ended where it takes too long.

A problem of a few statements can take isl minutes, and nothing interrupts it from inside. Such a schedule is unknown,
as is any where isl is not installed, and unknown ones are never legal.
"""

from __future__ import annotations

import importlib
import json
import pickle
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from eqsat.errors import EqsatError
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.tree import Node
from eqsat.runtime.kernels.polyhedral.faults import IllegalScheduleError
from eqsat.system.extras import missing, require

Answer = Literal["legal", "illegal", "unknown"]

#: Seconds after which an analysis is given up.
MOST_SECONDS = 20.0
_LEGALITY = "eqsat.runtime.kernels.polyhedral.legality"
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
    command = [sys.executable, "-c", _MAIN, json.dumps(sys.path)]
    try:
        done = subprocess.run(
            command,
            input=pickle.dumps((analysis, arguments)),
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
    return ScheduleJudgement(*json.loads(lines[-1]))


def answer_request() -> None:
    """Run the analysis on standard input, and write its judgement to standard output."""
    analysis, arguments = pickle.load(sys.stdin.buffer)
    made = _judgement(analysis, arguments)
    print(json.dumps([made.answer, made.reason, made.remedy]))


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
