"""The names, parameters, numbers and keys of the packages that run eqsat's programs on a GPU, listed in a file.

Stand-ins may offer what these packages have and nothing else. The packages take 2.5 GB, so that most tests are run
without them and compare with the listing; `make test-cuda` compares the listing with the packages, and writes it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import re
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

LISTING = Path(__file__).parents[1] / "golden" / "foreign_interfaces.json"
PACKAGES = ("cupy-cuda13x", "nvmath-python", "nvidia-cudnn-frontend", "cuda-bindings")
#: Modules and classes whose public names are listed.
LISTED = (
    "cupy",
    "cupy.ndarray",
    "cupy.cuda",
    "cupy.cuda.Device",
    "cupy.cuda.Event",
    "cupy.cuda.Memory",
    "cupy.cuda.MemoryPointer",
    "cupy.cuda.PinnedMemoryPointer",
    "cupy.cuda.MemoryPool",
    "cupy.cuda.Stream",
    "cupy.cuda.graph.Graph",
    "cupy.cuda.driver",
    "cupy.cuda.runtime",
    "cupyx.scipy.special",
    "cuda.bindings.nvrtc",
    "nvmath.bindings.cublasLt",
    "nvmath.bindings.cublasLt.MatmulDescAttribute",
    "nvmath.bindings.cublasLt.MatmulPreferenceAttribute",
    "nvmath.bindings.cublasLt.MatrixLayoutAttribute",
    "nvmath.bindings.cublasLt.ReductionScheme",
    "cudnn",
    "cudnn.pygraph",
    "cudnn.tensor",
    "cudnn.build_plan_policy",
    "cudnn.data_type",
    "cudnn.heur_mode",
    "cudnn.norm_forward_phase",
    "cudnn.numerical_note",
)
#: Objects that are there without a GPU, whose own attributes count to those of their class.
INSTANCES = {"cupy.cuda.Stream": "cupy.cuda.Stream.null"}
#: Keys that are looked up in what a function returns, which needs a GPU: they are text in the file of its module.
KEYS = {"cupy.cuda.runtime.getDeviceProperties": ("name", "totalGlobalMem")}


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a callable: in order, by their names, each optional or not.

    `rest` is True where more may be passed, in order or by name. `known` is False where the package does not say.
    """

    names: tuple[str, ...]
    optional: frozenset[str]
    rest: bool = False
    known: bool = True

    @classmethod
    def read(cls, text: str) -> Parameters:
        """Parameters as `of` writes them: `a, b, c=, *`."""
        if text == "?":
            return cls((), frozenset(), rest=True, known=False)
        parts = [part for part in text.split(", ") if part]
        names = [part.removesuffix("=") for part in parts if part != "*"]
        return cls(tuple(names), frozenset(p.removesuffix("=") for p in parts if p.endswith("=")), "*" in parts)

    def takes(self, positional: int, keywords: frozenset[str]) -> bool:
        """True if so many arguments in order, and these by name, can be passed."""
        if not self.known:
            return True
        given = {*self.names[:positional], *keywords}
        unknown = keywords - {*self.names}
        if (positional > len(self.names) or unknown) and not self.rest:
            return False
        return {*self.names} - self.optional <= given


def listing() -> dict[str, Any]:
    """The versions of the packages, and the names of what is listed, as the packages that are installed have them."""
    names = {path: _names_of(_found(path)) for path in LISTED}
    for path, instance in INSTANCES.items():
        names[path] |= {name: None for name in vars(_found(instance)) if not name.startswith("_")}
    keys = {path: [key for key in asked if _is_text_of(path, key)] for path, asked in KEYS.items()}
    return {"packages": {package: version(package) for package in PACKAGES}, "names": names, "keys": keys}


def read_listing() -> dict[str, Any]:
    """The listing that is kept."""
    found: dict[str, Any] = json.loads(LISTING.read_text(encoding="utf-8"))
    return found


def write_listing(made: dict[str, Any]) -> None:
    """Keep a listing."""
    LISTING.write_text(json.dumps(made, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def _found(path: str) -> Any:
    parts = path.split(".")
    for count in range(len(parts), 0, -1):
        try:
            here = importlib.import_module(".".join(parts[:count]))
        except ImportError:
            continue
        for name in parts[count:]:
            here = getattr(here, name)
        return here
    raise ImportError(path)


def _names_of(thing: Any) -> dict[str, Any]:
    names = {name: _said(name, getattr(thing, name, None)) for name in dir(thing) if not name.startswith("_")}
    for name in (
        "__enter__",
        "__cuda_array_interface__",
        "__dlpack__",
        "__dlpack_device__",
        "__setitem__",
        "__array__",
    ):
        if isinstance(thing, type) and hasattr(thing, name):
            names[name] = _said(name, getattr(thing, name))
    if isinstance(thing, type):
        names["()"] = _parameters(thing.__name__, thing)
    return names


def _said(name: str, value: Any) -> Any:
    """A number, the parameters of a callable, or null for all else."""
    if isinstance(value, int) and not isinstance(value, bool):
        return int(value)
    if re.fullmatch(r"\d+", str(getattr(value, "value", ""))):
        return int(value.value)
    return _parameters(name, value) if callable(value) else None


def _parameters(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value).parameters.values()
    except (TypeError, ValueError):
        return _documented(name, value)
    written = []
    for one in found:
        if one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD):
            written.append("*")
        elif one.name != "self":
            written.append(one.name + ("" if one.default is one.empty else "="))
    return ", ".join(dict.fromkeys(written))


def _documented(name: str, value: Any) -> str:
    """The parameters that the first line of the documentation has, as Cython and pybind11 write it."""
    if isinstance(value, type) and not (value.__doc__ or "").startswith(name + "("):
        name, value = "__init__", value.__init__
    line = (getattr(value, "__doc__", None) or "").strip().partition("\n")[0]
    match = re.match(rf"(?:\w+\.)*{re.escape(name)}\((.*)\)(?:\s*->.*)?$", line)
    if match is None:
        return "?"
    parts, depth = [""], 0
    for character in match[1]:
        depth += {"(": 1, "[": 1, "<": 1, ")": -1, "]": -1, ">": -1}.get(character, 0)
        if character == "," and not depth:
            parts.append("")
        else:
            parts[-1] += character
    written = []
    for part in map(str.strip, parts):
        left, equals, _ = part.partition("=")
        word = left.partition(":")[0].split()[-1:] or [""]
        if part.startswith(("*", "\\*")):
            written.append("*")
        elif word[0] not in ("self", "", "/"):
            written.append(word[0] + ("=" if equals else ""))
    return ", ".join(dict.fromkeys(written))


def _is_text_of(path: str, key: str) -> bool:
    module = inspect.getmodule(_found(path))
    return module is not None and key.encode() in Path(str(module.__file__)).read_bytes()
