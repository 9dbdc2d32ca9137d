"""The key of a run: a hash of everything that its result depends on."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from eqsat.costs.table.environment import cpu_model
from eqsat.extract import EXTRACTORS
from eqsat.language.onnx.read.digest import ModelDigest, content_hash
from eqsat.language.onnx.read.model import Given
from eqsat.language.ops import OPS
from eqsat.options.options import Options
from eqsat.rewrites.rules.rule import Rule
from eqsat.steps.settings import Settings

#: Packages whose version may change a result or its time.
PACKAGES = ("eqsat", "egglog", "highspy", "ml_dtypes", "numpy", "onnx", "onnxruntime", "scipy", "z3-solver")
#: Options that change nothing about a result, and those that stand in the key in another form.
_APART = frozenset({"cache", "progress", "should_stop", "table", "rules"})


def key_of(given: Given, rules: Sequence[Rule] | None, settings: Settings) -> str | None:
    """The key of a run, as hexadecimal digits; None for one whose result depends on code that no hash covers.

    That is code of the caller's: a cost function, an operator, an extractor. The key covers the model with the bytes of
    its weights, options, rules by their texts (None for the library, which is source), the device and its measured
    costs, the processor, and the versions of packages, eqsat's by its source.
    """
    options = settings.options
    ours = EXTRACTORS[options.extractor].__module__.partition(".")[0] == __name__.partition(".")[0]
    if options.cost is not None or not ours or not all(one.is_shipped for one in OPS.values()):
        return None
    costs = settings.costs
    return content_hash(
        {
            "model": ModelDigest(given.graph).sha256,
            "nodes": given.nodes,
            "whole": given.source is not None,
            "options": {f.name: getattr(options, f.name) for f in fields(Options) if f.name not in _APART},
            "rules": rules and [(rule.name, rule.phase, rule.origin, rule.text) for rule in rules],
            "device": settings.device,
            "environment": costs.environment.text,
            "measured": [f"{key} {entry!r}" for key, entry in sorted(costs.measured.items())],
            "machine": machine(),
        }
    )


@cache
def machine() -> Mapping[str, Any]:
    """The processor, the interpreter, and the packages in this process; eqsat by a hash of its source."""
    return {
        "processor": cpu_model(),
        "platform": (platform.system(), platform.machine()),
        "python": sys.version,
        "packages": {name: _version(name) for name in PACKAGES},
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


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"
