"""The origin of a result: the model, the arguments of the call, versions, and the machine."""

from __future__ import annotations

import inspect
import os
import platform
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import metadata
from typing import Any

from eqsat.costs.table.environment import cpu_model
from eqsat.costs.table.table import CostTable
from eqsat.language.onnx.read.model import Given, model_digest
from eqsat.language.terms.state import State
from eqsat.options.options import Options
from eqsat.quantisation.data import source_of
from eqsat.report.parts import InputModel, RunMachine
from eqsat.report.report import Report
from eqsat.rewrites.rules.rule import Rule
from eqsat.runtime.threads import available_processors
from eqsat.steps.settings import Settings

#: The packages that a result depends on.
PACKAGES = ("eqsat", "egglog", "highspy", "ml_dtypes", "numpy", "onnx", "onnxruntime", "scipy", "sympy", "z3-solver")


def describe_call(report: Report, given: Given, settings: Settings) -> None:
    """Add the model, the arguments, versions and the machine to a report; the body of a node is no model."""
    report.arguments = arguments(settings.options)
    report.versions = dict(versions())
    report.machine = machine(settings.options.threads)
    if given.digest is not None:
        report.input = InputModel(given.title, given.digest.of, model_digest(given))


def arguments(options: Options) -> dict[str, Any]:
    """The options that are not at their defaults in `optimize`, as JSON has them; functions by their names.

    Functions of eqsat's own, such as the progress bar of a command, are left out: nobody gave them.
    """
    values = ((one.name, getattr(options, one.name), getattr(_defaults(), one.name)) for one in fields(options))
    shown = {"calibration": source_of}
    given = {
        name: shown.get(name, _as_json)(value) for name, value, default in values if not _is_default(value, default)
    }
    own = {name for name in given if callable(getattr(options, name)) and given[name].startswith("eqsat.")}
    return {name: value for name, value in given.items() if name not in own}


@cache
def versions() -> Mapping[str, str]:
    """The versions of Python and of the packages that are here, by name."""
    known = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            known[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return known


def machine(threads: int) -> RunMachine:
    """This machine, for a runtime with so many threads."""
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return RunMachine(cpu_model(), available_processors(), threads, system)


@cache
def _defaults() -> Options:
    return Options()


def _is_default(value: Any, default: Any) -> bool:
    return value is default or (type(value) is type(default) and bool(value == default))


def _as_json(value: Any) -> Any:
    """An option as plain data, or as text that names it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(key): _as_json(member) for key, member in value.items()}
    if isinstance(value, Rule):
        return value.name
    if isinstance(value, State | os.PathLike):
        return str(value)
    if is_dataclass(value):
        return {one.name: _as_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, CostTable):
        return str(value.path)
    if isinstance(value, frozenset):
        return sorted(map(str, value))
    if isinstance(value, Sequence):
        return [_as_json(member) for member in value]
    if isinstance(value, Executor):
        return f"{type(value).__module__}.{type(value).__qualname__}"
    if callable(value):
        function = inspect.unwrap(value)
        named = function if hasattr(function, "__qualname__") else type(function)
        return f"{named.__module__}.{named.__qualname__}"
    return str(value)
