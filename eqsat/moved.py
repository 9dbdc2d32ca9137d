"""Parts of the interface as earlier versions had them: found still, with a DeprecationWarning."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

#: Where modules of earlier places are, within eqsat.
MOVED: Mapping[str, str] = {
    "commands.keys": "commands.costs.keys",
    "costs.amounts": "costs.model.amounts",
    "costs.cost": "costs.model.cost",
    "costs.device": "costs.devices.device",
    "costs.entry": "costs.table.entry",
    "costs.environment": "costs.table.environment",
    "costs.fit": "costs.model.fit",
    "costs.fusion": "costs.kernels.fusion",
    "costs.key": "costs.kernels.key",
    "costs.measure": "costs.measuring.measure",
    "costs.precision": "costs.kernels.precision",
    "costs.shipped": "costs.table.shipped",
    "costs.validation": "costs.model.validation",
    "explanation": "report.explanation",
    "extract.gym": "extract.problem.gym",
    "extract.pareto": "extract.limited.pareto",
    "language.builder": "language.graphs.builder",
    "language.floats": "language.arithmetic.floats",
    "language.graph": "language.terms.graph",
    "language.interpret": "language.graphs.interpret",
    "language.spec": "language.declaration.spec",
    "language.state": "language.terms.state",
    "language.types": "language.terms.types",
    "rewrites.derive": "rewrites.rules.derive",
    "rewrites.evidence": "rewrites.rules.evidence",
    "rewrites.factory": "rewrites.discovery",
    "rewrites.factory.generate": "rewrites.discovery.enumerate.generate",
    "rewrites.loader": "rewrites.rules.loader",
    "rewrites.parser": "rewrites.rules.parser",
    "rewrites.prove": "rewrites.proof.prove",
    "rewrites.rule": "rewrites.rules.rule",
    "rewrites.verify": "rewrites.proof.verify",
    "runtime.cuda.source": "runtime.kernels.source",
}


#: Where names of these modules are that have another place or name than the module.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "language.spec": {
        "OPS": "language.ops.OPS",
        "op": "language.ops.op",
        "spec": "language.ops.spec",
    },
    "rewrites.factory.generate": {"Settings": "rewrites.discovery.enumerate.generate.GenerationSettings"},
    "runtime.cuda.source": {"Source": "runtime.kernels.source.KernelSource"},
}


class _Alias(MetaPathFinder, Loader):
    """Finds a module of an earlier place, and makes one whose names are those of the module it has become."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        package, _, name = fullname.partition(".")
        return ModuleSpec(fullname, self, is_package=True) if package == "eqsat" and name in MOVED else None

    def exec_module(self, module: ModuleType) -> None:
        earlier = module.__name__.partition(".")[2]
        place, renamed = f"eqsat.{MOVED[earlier]}", RENAMED.get(earlier, {})
        _warn(module.__name__, place, 2)

        def get(name: str) -> Any:
            home, _, now = f"eqsat.{renamed[name]}".rpartition(".") if name in renamed else (place, "", name)
            return getattr(import_module(home), now)

        setattr(module, "__getattr__", get)  # noqa: B010 - mypy


def find_moved() -> None:
    """Let modules be found at their earlier places; other finders are asked first."""
    if not any(isinstance(finder, _Alias) for finder in sys.meta_path):
        sys.meta_path.append(_Alias())


def names_of(place: str) -> Callable[[str], Any]:
    """The `__getattr__` of a package that was a module, whose names are in the module at `place` now."""

    def get(name: str) -> Any:
        if name.startswith("__") or not hasattr(import_module(place), name):
            raise AttributeError(f"module {place.rpartition('.')[0]!r} has no attribute {name!r}")
        _warn(f"{place.rpartition('.')[0]}.{name}", f"{place}.{name}", 1)
        return getattr(import_module(place), name)

    return get


class MovedAttribute:
    """An attribute of a class that is a function of its objects in another module now."""

    def __init__(self, module: str, function: str) -> None:
        self.module, self.function = module, function

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = f"{owner.__name__}.{name}"

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        _warn(self.name, f"{self.module}.{self.function}", 1)
        return getattr(import_module(self.module), self.function)(instance)


class FormerDict:
    """A dataclass that was a dict in earlier versions: `record["field"]` still works, with a DeprecationWarning."""

    def as_dict(self) -> dict[str, Any]:
        """The record as JSON has it: without fields that are None both by default and in fact."""
        named = ((f, getattr(self, f.name)) for f in fields(self))  # type: ignore[arg-type]
        known = {f.name: value for f, value in named if value is not None or f.default is MISSING}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in known.items()}

    def keys(self) -> Iterator[str]:
        """The names of the fields that JSON has."""
        return iter(self.as_dict())

    __iter__ = keys

    def __getitem__(self, name: str) -> Any:
        known = self.as_dict()
        if name in known:
            _warn(f"{type(self).__name__}[{name!r}]", f"{type(self).__name__}.{name}", 1)
        return known[name]

    def get(self, name: str, default: Any = None) -> Any:
        """A field by its name, or the default where JSON has none."""
        return self[name] if name in self.as_dict() else default


def _warn(earlier: str, now: str, more: int) -> None:
    warnings.warn(f"{earlier} is {now} now", DeprecationWarning, stacklevel=2 + more)
