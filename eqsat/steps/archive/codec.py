"""Values of a run as bytes and back: constants apart, and no class but those that results are made of."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import PosixPath, PurePosixPath, PureWindowsPath, WindowsPath
from types import MappingProxyType
from typing import Any, TypeAlias

import numpy as np

from eqsat.language.terms import Attrs, Constant, Graph, Sym

#: The place of a constant: its kind, and a key of that kind.
Place: TypeAlias = "tuple[str, Any]"

_PATHS = (PosixPath, PurePosixPath, PureWindowsPath, WindowsPath)
_PLAIN = {(one.__module__, one.__qualname__): one for one in (bool, int, float, complex, set, frozenset, *_PATHS)}


def frozen(items: dict[Any, Any]) -> Mapping[Any, Any]:
    """A read-only view of a mapping, which pickle cannot name."""
    return MappingProxyType(items)


class _ResultPickler(pickle.Pickler):
    def __init__(self, file: io.BytesIO, place: Callable[[Constant], Place]) -> None:
        super().__init__(file, protocol=5)
        self._place = place

    def persistent_id(self, obj: Any) -> Place | None:
        return self._place(obj) if isinstance(obj, Constant) else None

    def reducer_override(self, obj: Any) -> Any:
        # Slots, and fields that are derived from others, are no part of a value.
        if isinstance(obj, Graph):
            views = (dict(view) for view in (obj.outputs, obj.constants, obj.types))
            outputs, constants, types = views
            return Graph, (obj.name, obj.inputs, outputs, obj.nodes, constants, types, obj.origin)
        if isinstance(obj, Attrs):
            return Attrs, (dict(obj),)
        if isinstance(obj, Sym):
            return Sym, (obj.terms,)
        if isinstance(obj, MappingProxyType):
            return frozen, (dict(obj),)
        if isinstance(obj, np.generic) and isinstance(item := obj.item(), bool | int | float):
            return type(item), (item,)
        return NotImplemented


class _ResultUnpickler(pickle.Unpickler):
    """A reader that knows the dataclasses and enumerations of eqsat, and nothing that could run a program."""

    def __init__(self, file: io.BytesIO, constant: Callable[[Place], Constant]) -> None:
        super().__init__(file)
        self._constant = constant

    def persistent_load(self, pid: Place) -> Constant:
        return self._constant(pid)

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in _PLAIN:
            return _PLAIN[module, name]
        if (module, name) == (__name__, frozen.__name__):
            return frozen
        if module.partition(".")[0] == __name__.partition(".")[0]:
            known = super().find_class(module, name)
            if isinstance(known, type) and (is_dataclass(known) or issubclass(known, Enum | Attrs | Sym)):
                return known
        raise pickle.UnpicklingError(f"{module}.{name} is no part of a result")


def written(value: Any, place: Callable[[Constant], Place]) -> bytes:
    """The bytes of a value, with a place for each constant in it."""
    file = io.BytesIO()
    _ResultPickler(file, place).dump(value)
    return file.getvalue()


def read_back(content: bytes, constant: Callable[[Place], Constant]) -> Any:
    """The value of some bytes, with the constants that stand at places; UnpicklingError for a class of others."""
    return _ResultUnpickler(io.BytesIO(content), constant).load()
