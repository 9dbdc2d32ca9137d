"""The check that arrays passed by a caller fit the inputs a graph declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from eqsat.errors import BackendError
from eqsat.language.onnx.files.origin import defaults_of
from eqsat.language.terms import Dim, DType, Graph, Sym, TensorType


def checked_inputs(graph: Graph, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs in the graph's order, as arrays of the declared element types.

    Python numbers and lists take the declared element type; arrays must have it. An input for which the model brings a
    default may be left out. Values that are no tensors (sequences,
    optionals) pass unchanged. BackendError for an input that is missing, unknown, misshapen or of another element type,
    and for two inputs that give one named dim different sizes.
    """
    for name in inputs:
        if name not in graph.inputs:
            raise BackendError(
                f"unknown input {name!r}",
                where=graph.name,
                expected="inputs " + (", ".join(_declared(graph, v) for v in graph.inputs) or "none"),
                remedy="leave it out, or pass it under the name the graph gives it",
            )
    sizes = _Sizes(graph)
    defaults = defaults_of(graph)
    checked: dict[str, Any] = {}
    for name in graph.inputs:
        if name not in inputs and name not in defaults:
            raise BackendError(
                f"input {name!r} is missing",
                where=graph.name,
                expected=_declared(graph, name),
                remedy=f"pass {name}=…; the graph has inputs " + ", ".join(graph.inputs),
            )
        declared = graph.type(name)
        if not isinstance(declared, TensorType):
            checked[name] = inputs[name]
            continue
        given = inputs[name] if name in inputs else defaults[name].array
        checked[name] = _array(graph, name, declared, given)
        sizes.bind(name, declared, checked[name].shape)
    sizes.check()
    return checked


def _declared(graph: Graph, name: str) -> str:
    return f"{name}: {graph.type(name)}"


def _array(graph: Graph, name: str, declared: TensorType, given: Any) -> np.ndarray[Any, Any]:
    if isinstance(given, np.ndarray | np.generic):
        array = np.asarray(given)
        if not _same_dtype(array.dtype, declared.dtype):
            raise BackendError(
                f"input {name!r} has element type {array.dtype}",
                where=graph.name,
                expected=str(declared),
                remedy=f"convert it, for example {name}.astype({declared.dtype.value!r})",
            )
        return array.astype(object) if declared.dtype is DType.STRING else array
    try:
        return np.asarray(given, dtype=declared.dtype.numpy)
    except (TypeError, ValueError, OverflowError) as error:
        raise BackendError(
            f"input {name!r} is no tensor: {error}",
            where=graph.name,
            expected=str(declared),
            remedy="pass a NumPy array",
        ) from error


def _same_dtype(dtype: np.dtype[Any], declared: DType) -> bool:
    return dtype.kind in "OUST" if declared is DType.STRING else dtype == declared.numpy


class _Sizes:
    """The sizes of named dims as inputs give them, each with the input that gave it first."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: dict[str, tuple[int, str]] = {}
        self._composed: list[tuple[str, int, Sym, int]] = []

    def bind(self, name: str, declared: TensorType, shape: tuple[int, ...]) -> None:
        if declared.shape is None:
            return
        if len(shape) != len(declared.shape):
            raise self._misfit(name, shape, f"has rank {len(shape)}, not {len(declared.shape)}")
        for axis, (dim, size) in enumerate(zip(declared.shape, shape, strict=True)):
            if isinstance(dim, int):
                if dim != size:
                    raise self._misfit(name, shape, f"has {size} at axis {axis}, not {dim}")
            elif (plain := _plain_name(dim)) is None:
                self._composed.append((name, axis, dim, size))
            else:
                known, giver = self._known.setdefault(plain, (size, name))
                if known != size:
                    raise BackendError(
                        f"named dim {plain!r} is {known} in input {giver!r} and {size} in input {name!r}",
                        where=self._graph.name,
                        expected="one size a named dim",
                        remedy="pass inputs that agree in it",
                    )

    def check(self) -> None:
        """Dims such as 2*n, where every name in them is known by now."""
        sizes = {name: size for name, (size, _) in self._known.items()}
        for name, axis, dim, size in self._composed:
            if dim.names() <= sizes.keys() and dim.evaluate(sizes) != size:
                raise BackendError(
                    f"input {name!r} has {size} at axis {axis}, where {dim} is {dim.evaluate(sizes)}",
                    where=self._graph.name,
                    expected=_declared(self._graph, name),
                    remedy="pass inputs that agree in their named dims",
                )

    def _misfit(self, name: str, shape: tuple[int, ...], fault: str) -> BackendError:
        return BackendError(
            f"input {name!r} of shape {list(shape)} {fault}",
            where=self._graph.name,
            expected=_declared(self._graph, name),
            remedy="pass an array of the declared shape",
        )


def _plain_name(dim: Dim) -> str | None:
    """The name of a dim that is a name and nothing more."""
    if isinstance(dim, Sym) and len(names := dim.names()) == 1 and dim == Sym.named(name := next(iter(names))):
        return name
    return None
