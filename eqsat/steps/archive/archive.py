"""The archive of results: each in a file named by the key of its run."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from eqsat.language.comprehension.graphs.operators import DeclaredRegion, declare_region, regions_in
from eqsat.language.onnx.files.origin import OnnxOrigin
from eqsat.language.onnx.read.model import Given
from eqsat.language.terms import Graph, Plan
from eqsat.report.explanation import Explanation
from eqsat.report.finalists import Candidate
from eqsat.report.report import Report
from eqsat.report.result import Result
from eqsat.report.units import duration
from eqsat.rewrites.rules.rule import Rule
from eqsat.steps.archive.codec import read_back, written
from eqsat.steps.archive.constants import (
    Finding,
    Keeping,
    LostConstantError,
    computed,
    constants_of,
    derived,
    recipes,
    restored,
)
from eqsat.steps.archive.key import key_of
from eqsat.steps.archive.witness import Witness
from eqsat.steps.failures import told
from eqsat.steps.settings import Settings
from eqsat.system.cache import cache_folder
from eqsat.system.folder import BoundedFolder

#: The environment variable that names another folder; where it is set and empty, no result is kept or found.
VARIABLE = "EQSAT_RESULTS"
#: Bytes of all results together.
MOST_BYTES = 1 << 29
_SUFFIX = ".result"
#: The first bytes of a file; the number changes with the form of what follows.
_HEAD = b"eqsat result 1\n"


def results_folder() -> Path | None:
    """The folder named by EQSAT_RESULTS, or one in the user's cache folder; None where results are not to be kept."""
    named = os.environ.get(VARIABLE)
    if named is None:
        return cache_folder() / "results"
    return Path(named) if named else None


@dataclass(frozen=True)
class KeptResult:
    """A result without its model. `graph` and `plan` are None where that is the original.

    `found` tells when and how long it was optimised; `witness` are outputs of it, and
    `regions` those of whose functions it has operators.
    """

    graph: Graph | None
    plan: Plan | None
    report: Report
    explanation: Explanation
    library_plans: tuple[str, ...]
    found: str
    witness: Witness | None
    regions: tuple[DeclaredRegion, ...] = ()


@dataclass(frozen=True)
class Archive:
    """The results of runs like one of `given`; nothing is kept or found where there is no key."""

    given: Given
    settings: Settings
    key: str | None
    folder: BoundedFolder

    @classmethod
    def of(cls, given: Given, rules: Sequence[Rule] | None, settings: Settings) -> Archive:
        """The archive for a run that is about to begin, without a key where none can be had."""
        path, options = results_folder(), settings.options
        key = None
        if path is not None and options.cache and options.buckets is None:
            with suppress(Exception):  # such as a source that cannot be read: the run can do without a key
                key = key_of(given, rules, settings)
        return cls(given, settings, key, BoundedFolder(path or cache_folder(), MOST_BYTES, _SUFFIX))

    def find(self) -> Result | None:
        """The result that an equal run kept; None where there is none, or none that can be relied on.

        A file that is damaged, or whose result has other outputs than it had, is removed.
        """
        content = self.folder.read(self.key) if self.key is not None else None
        if self.key is None or content is None:
            return None
        try:
            return self._result(content)
        except Exception:  # noqa: BLE001 - whatever is wrong with a file, the run can do without it
            self.folder.remove(self.key)
            return None

    def keep(self, result: Result, candidate: Candidate, settings: Settings) -> None:
        """Keep the result of a run under settings, unless it failed, was interrupted, or is the original for lack of
        time.

        A better graph that a time limit ended the search for is kept: an equal run has the same limit.
        """
        report = result.report
        late = report.skipped and report.kept == "original"
        interrupted = settings.is_stopped or "interrupted" in (report.stopped_by, report.extraction)
        if self.key is None or report.failure or report.refuted or late or interrupted:
            return
        try:
            content = self._content(result, candidate, settings)
        except LostConstantError:  # such as a constant of strings: that there is no file is no fault
            return
        except Exception as error:  # noqa: BLE001 - a result that has no bytes is a result all the same
            report.warnings = [*report.warnings, f"the result was not kept for equal runs: {told(error)}"]
            return
        self.folder.write(self.key, content)

    def _content(self, result: Result, candidate: Candidate, settings: Settings) -> bytes:
        original = self.given.original
        changed = result.graph is not original
        recipe = recipes(candidate) if changed else None
        own = frozenset(constant.digest for constant in constants_of(original))
        keeping = Keeping(own, {})
        steps = written(recipe, keeping.place)
        keeping.derived = derived(recipe, candidate)
        now = datetime.now().astimezone().strftime("%Y-%m-%d %H:%M")
        entry = KeptResult(
            graph=result.graph if changed else None,
            plan=result.plan if changed else None,
            report=result.report,
            explanation=result.explanation,
            library_plans=result.library_plans,
            found=f"optimised on {now} in {duration(math.fsum(result.report.seconds.values()))}",
            witness=Witness.of(result, original, settings) if changed else None,
            regions=regions_in(result.graph) if changed else (),
        )
        body = written(entry, keeping.place)
        return sealed(written((steps, tuple(keeping.kept), body), _refused))

    def _result(self, content: bytes) -> Result:
        original, options = self.given.original, self.settings.options
        steps, kept, body = read_back(_opened(content), _refused)
        own = {constant.digest: constant for constant in constants_of(original)}
        finding = Finding(own, {}, tuple(restored(*each) for each in kept))
        finding = replace(finding, derived=computed(read_back(steps, finding.constant)))
        entry: KeptResult = read_back(body, finding.constant)
        for region in entry.regions:
            declare_region(region)
        graph, plan = self._here(entry)
        report = replace(entry.report, found_again=entry.found)
        result = Result(
            graph,
            report,
            entry.explanation,
            self.given.source if entry.graph is None else None,
            options.threads,
            options.opset,
            plan,
            entry.library_plans,
            backend=self.settings.backend,
            level=report.level,
            quantised=options.quantised,
        )
        if entry.witness is not None and not entry.witness.agrees(result, original):
            raise ValueError("other outputs than it had")
        return result

    def _here(self, entry: KeptResult) -> tuple[Graph, Plan | None]:
        """The graph and the plan of an entry, in the place where the model was read now."""
        original = self.given.original
        if entry.graph is None:
            return original, None
        origin, here = entry.graph.origin, original.origin
        if not (isinstance(origin, OnnxOrigin) and isinstance(here, OnnxOrigin)):
            return entry.graph, entry.plan
        moved = replace(origin, path=here.path, files=here.files, external=here.external, warnings=here.warnings)
        graph = replace(entry.graph, origin=moved)
        plan = entry.plan
        if plan is not None:
            plan = replace(plan, graph=graph if plan.graph is entry.graph else replace(plan.graph, origin=moved))
        return graph, plan


def sealed(body: bytes) -> bytes:
    """The content of a file: a head with the hash of its body, and the body."""
    return _HEAD + hashlib.sha256(body).digest() + body


def _opened(content: bytes) -> bytes:
    """The content of a file behind its head; ValueError where it is not as it was written."""
    start = len(_HEAD) + hashlib.sha256().digest_size
    body = content[start:]
    if content[: len(_HEAD)] != _HEAD or content[len(_HEAD) : start] != hashlib.sha256(body).digest():
        raise ValueError("no result, or a damaged one")
    return body


def _refused(_place: Any) -> Any:
    raise ValueError("a constant where none can be")
