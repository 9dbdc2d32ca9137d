"""Names, parameters, numbers and keys of CuPy, cuBLASLt and cuDNN: those that are used, and those that stand-ins offer.

They are compared with a listing of the real packages, and this with the packages where they are installed.
"""

from __future__ import annotations

import ast
import enum
import importlib.util
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.support.cuda_standin import Array, Event, Graph, Memory, StandIn, Stream
from tests.support.foreign_interfaces import LISTING, Parameters, listing, read_listing, write_listing
from tests.support.library_standins import Plans, Preferences, Result

ROOT = Path(__file__).parents[4]
KNOWN = read_listing()
NAMES: Mapping[str, Mapping[str, Any]] = KNOWN["names"]
#: What the first names of a chain of attributes stand for in the sources of the runtime for GPUs.
STANDS_FOR = {
    "cupy": "cupy",
    "_cupy": "cupy",
    "cuda": "cupy.cuda",
    "runtime": "cupy.cuda.runtime",
    "_runtime": "cupy.cuda.runtime",
    "driver": "cupy.cuda.driver",
    "lt": "nvmath.bindings.cublasLt",
    "_lt": "nvmath.bindings.cublasLt",
    "cudnn": "cudnn",
    "_cudnn": "cudnn",
    "graph": "cudnn.pygraph",
    "notes": "cudnn.numerical_note",
    "modes": "cudnn.heur_mode",
}
SOURCES = [
    *sorted((ROOT / "eqsat/runtime/cuda").glob("*.py")),
    *sorted((ROOT / "eqsat/runtime/cuda/device").glob("*.py")),
    ROOT / "eqsat/runtime/cuda/libraries/cublaslt_library.py",
    ROOT / "eqsat/runtime/cuda/libraries/cudnn_library.py",
]
#: Modules of eqsat's own that are called as packages are, and what is named like one of them.
OURS = {"graph"}


def chain(node: ast.AST) -> list[str]:
    """The names of an attribute, outermost object first; none where it is no plain chain of names."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return [node.id, *reversed(names)] if isinstance(node, ast.Name) else []


def resolved(names: list[str], of_cudnn: bool) -> tuple[str, str] | None:
    """The listed module or class and the name in it that a chain ends at; None for a chain of something else."""
    known = {*STANDS_FOR} - (set() if of_cudnn else OURS)
    start = max((i for i, name in enumerate(names[:-1]) if name in known), default=None)
    if start is None:
        return None
    path = STANDS_FOR[names[start]]
    for name in names[start + 1 : -1]:
        if f"{path}.{name}" not in NAMES:
            return path, name  # what comes after it belongs to a value
        path = f"{path}.{name}"
    return path, names[-1]


def uses(file: Path) -> Iterator[tuple[str, str, ast.Call | None]]:
    """The names of packages that a source uses, and the call where it is one."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = {id(node.func): node for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        found = resolved(chain(node), "cudnn" in file.name) if isinstance(node, ast.Attribute) else None
        if found is not None:
            yield *found, calls.get(id(node)) if found[1] == node.attr else None


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: file.stem)
def test_all_that_is_used_of_a_package_is_there_and_takes_what_it_is_given(file):
    for path, name, call in uses(file):
        assert name in NAMES[path], f"{path} has no {name}"
        said = NAMES[path][name]
        if call is None or not isinstance(said, str):
            continue
        if any(isinstance(a, ast.Starred) for a in call.args) or any(k.arg is None for k in call.keywords):
            continue
        keywords = frozenset(str(k.arg) for k in call.keywords)
        assert Parameters.read(said).takes(len(call.args), keywords), f"{path}.{name}({said}) is called with {keywords}"


def test_what_the_sources_use_is_found_in_them():
    """The check above is of some hundred uses, and not of none."""
    found = {(path, name) for file in SOURCES for path, name, _ in uses(file)}
    assert {("cupy.cuda.driver", "launchKernel"), ("cupy.cuda", "Stream"), ("cudnn.pygraph", "sdpa")} < found
    assert {("cupy.cuda.runtime", "memcpyAsync"), ("nvmath.bindings.cublasLt", "matmul_algo_get_heuristic")} < found
    assert len(found) > 80


def offered() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The names that stand-ins offer, by the module or class that each stands for, without their own."""
    cuda = StandIn()
    cupy = cuda.cupy
    for path, space in (
        ("cupy", cupy),
        ("cupy.cuda", cupy.cuda),
        *((f"cupy.cuda.{n}", getattr(cupy.cuda, n)) for n in ("runtime", "driver")),
    ):
        yield path, vars(space)
    stream, event = Stream(cuda), Event()
    stream.begin_capture()
    made = {
        "cupy.cuda.Stream": stream,
        "cupy.cuda.Event": event,
        "cupy.cuda.graph.Graph": stream.end_capture(),
        "cupy.cuda.Memory": Memory(cuda, 16),
        "cupy.ndarray": cupy.array(np.zeros(3, np.float32)),
    }
    assert [type(one) for one in made.values()] == [Stream, Event, Graph, Memory, Array]
    for path, one in made.items():
        names = {n for n in dir(one) if not n.startswith("_")} | ({"__enter__"} & {*dir(one)})
        yield path, {name: getattr(one, name) for name in names - type(one).OWN}


@pytest.mark.parametrize(("path", "space"), offered(), ids=lambda one: one if isinstance(one, str) else "")
def test_a_stand_in_offers_what_is_there(path, space):
    """No name that the real one lacks, no number that differs, and no call that it would not take."""
    assert space
    for name, value in space.items():
        assert name in NAMES[path], f"{path} has no {name}"
        said = NAMES[path][name]
        if isinstance(value, int) and isinstance(said, int):
            assert value == said, name
        if callable(value) and isinstance(said, str) and not isinstance(value, type):
            assert_takes(said, value, f"{path}.{name}")


def test_the_stand_in_for_cublaslt_offers_what_is_there():
    path = "nvmath.bindings.cublasLt"
    lt = Preferences()
    for name in {n for n in dir(lt) if not n.startswith("_")} - lt.OWN:
        assert name in NAMES[path], name
        said, value = NAMES[path][name], getattr(lt, name)
        if isinstance(value, enum.EnumType):
            assert {one.name for one in value} <= NAMES[f"{path}.{name}"].keys()
        else:
            assert_takes(said, value, name)
    real = NAMES[f"{path}.MatmulPreferenceAttribute"]
    assert {one.name: one.value for one in lt.MatmulPreferenceAttribute}.items() <= real.items()


def test_the_stand_in_for_cudnn_offers_what_is_there():
    """One object stands for the module and for a graph."""
    plans = Plans([])
    module, graph = NAMES["cudnn"], NAMES["cudnn.pygraph"]
    for name in {n for n in dir(plans) if not n.startswith("_")} - plans.OWN:
        value = getattr(plans, name)
        said = graph[name] if name in graph else module[name]
        if isinstance(value, SimpleNamespace):
            assert vars(value).keys() <= NAMES[f"cudnn.{name}"].keys()
        elif callable(value) and not isinstance(value, type) and isinstance(said, str):
            assert_takes(said, value, name)
    tensor = Result()
    for name in {n for n in dir(tensor) if not n.startswith("_")} - tensor.OWN:
        assert_takes(NAMES["cudnn.tensor"][name], getattr(tensor, name), name)


def assert_takes(said: str, standing: Any, where: str) -> None:
    """Assert that the real one takes the arguments that a stand-in requires: by common names, and else in order."""
    try:
        parameters = [*inspect.signature(standing).parameters.values()]
    except ValueError:
        return  # NumPy's functions in the place of CuPy's, which take the same
    if any(p.kind == p.VAR_POSITIONAL for p in parameters):
        return
    real = Parameters.read(said)
    required = [p.name for p in parameters if p.default is p.empty and p.kind != p.VAR_KEYWORD]
    named = frozenset(required) & {*real.names}
    if any(p.kind == p.VAR_KEYWORD for p in parameters):  # it is given more, by name
        named |= {*real.names} - real.optional
    assert real.takes(len({*required} - named), named), f"{where}({said}) for {required}"


def test_a_name_a_number_and_a_call_that_are_not_there_are_seen():
    assert not Parameters.read("dst, src, size, kind").takes(3, frozenset())
    assert not Parameters.read("stream=").takes(0, frozenset({"on"}))
    assert Parameters.read("block=, disable_timing=").takes(0, frozenset({"disable_timing"}))
    assert Parameters.read("a, *").takes(1, frozenset({"any"})) and Parameters.read("?").takes(9, frozenset())
    with pytest.raises(AssertionError, match="'to', 'kind'"):
        assert_takes("dst", lambda to, kind: None, "copy")


def test_keys_that_are_looked_up_are_there():
    installation = (ROOT / "eqsat/runtime/cuda/device/installation.py").read_text(encoding="utf-8")
    tree = ast.parse(installation)
    looked_up = {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and chain(node.value) == ["properties"]
        and isinstance(node.slice, ast.Constant)
    }
    assert looked_up == {*KNOWN["keys"]["cupy.cuda.runtime.getDeviceProperties"]}
    attributes = {
        node.slice.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript)
        and chain(node.value) == ["attributes"]
        and isinstance(node.slice, ast.Constant)
    }
    assert len(attributes) >= 3
    # CuPy's table of attributes has the names of CUDA's without their prefix.
    assert {f"cudaDevAttr{name}" for name in attributes} <= NAMES["cupy.cuda.runtime"].keys()


@pytest.mark.skipif(importlib.util.find_spec("nvmath") is None, reason="the extra 'cuda13': make test-cuda")
def test_the_listing_is_that_of_the_packages():
    made = listing()
    if made != KNOWN:
        write_listing(made)
        pytest.fail(f"other packages, or names of them: {LISTING.name} was written anew, look at its changes")
