"""The key of a run: a hash of everything that its result depends on."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from pathlib import Path
from typing import Any

from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment, cpu_model
from eqsat.extract import EXTRACTORS
from eqsat.language.onnx.read.digest import ModelDigest, content_hash
from eqsat.language.onnx.read.model import Given
from eqsat.language.ops import OPS
from eqsat.options.options import Options
from eqsat.quantisation.data import CalibrationData
from eqsat.rewrites.rules.rule import Rule
from eqsat.runtime.backend import BACKENDS
from eqsat.steps.provenance import versions
from eqsat.steps.settings import Settings

#: Options that change nothing about a result, and those that stand in the key in another form.
_APART = frozenset({"cache", "executor", "progress", "should_stop", "table", "rules", "calibration"})


def key_of(given: Given, rules: Sequence[Rule] | None, settings: Settings) -> str | None:
    """The key of a run, as hexadecimal digits; None for one whose result depends on code that no hash covers.

    That is code of the caller's: a cost function, an operator, an extractor; and calibration data that were not read.
    The key covers the model with the bytes of its weights and its reader's warnings, options, calibration data by their
    digest, rules by their sides (None for the library, which is source), the device with its measured costs, and
    whether it runs here, the processor, and the versions of packages, eqsat's by its source.
    """
    options = settings.options
    ours = EXTRACTORS[options.extractor].__module__.partition(".")[0] == __name__.partition(".")[0]
    if options.cost is not None or not ours or not all(one.is_shipped for one in OPS.values()):
        return None
    data = options.calibration
    if data is not None and not isinstance(data, CalibrationData):
        return None
    costs = settings.costs
    return content_hash(
        {
            "model": ModelDigest(given.graph).sha256,
            "nodes": given.nodes,
            "whole": given.source is not None,
            "options": {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in _APART},
            "data": data and data.digest,
            "rules": None if rules is None else [stated(rule) for rule in rules],
            "warnings": given.warnings,
            "device": settings.device,
            "here": _here(settings),
            "environment": costs.environment.text,
            "measured": _entries(costs.measured),
            "calibration": _entries({} if costs.borrowed is None else costs.borrowed.here),
            "machine": this_machine(),
        }
    )


def _here(settings: Settings) -> tuple[str, str | None] | None:
    """The environment in which results are run here, and why they cannot be; None for another machine's device."""
    if not settings.device.is_here:
        return None
    environment = Environment.current(settings.device, settings.options.threads)
    return environment.text, BACKENDS[settings.backend].available()


def stated(rule: Rule) -> tuple[Any, ...]:
    """A rule by its sides and conditions: the text of one that was made or changed in Python may be another's."""
    return rule.name, rule.phase, rule.origin, rule.laws, rule.text, rule.left, rule.right, rule.conditions


def _entries(measured: Mapping[str, Entry]) -> list[str]:
    return [f"{key} {entry!r}" for key, entry in sorted(measured.items())]


@cache
def this_machine() -> Mapping[str, Any]:
    """The processor, the interpreter, and the packages in this process; eqsat by a hash of its source."""
    return {
        "processor": cpu_model(),
        "platform": (platform.system(), platform.machine()),
        "python": sys.version,
        "packages": versions(),
        "source": source_hash(Path(__file__).parents[2]),
    }


def source_hash(folder: Path) -> str:
    """The hash of all files of a package: a version alone says nothing of one that is being edited."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            content = path.read_bytes()
            digest.update(f"{path.relative_to(folder).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()
