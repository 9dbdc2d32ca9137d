"""The protocol of a backend, the registered backends, and running a graph on one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from eqsat.errors import BackendError, UsageError, nearest
from eqsat.language.terms.graph import Graph
from eqsat.runtime.c.backend import CBackend
from eqsat.runtime.cuda.backend import CupyBackend
from eqsat.runtime.numpy.reference import ReferenceBackend
from eqsat.runtime.onnxruntime.session import SessionBackend
from eqsat.runtime.openvino.session import OpenVinoBackend
from eqsat.system.plugins import Registry


class Program(Protocol):
    """A graph made ready to run: called with inputs by name, or with a mapping of them."""

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name, as `run` has it."""

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit the graph."""

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], object]:
        """A call that runs the program on these inputs, checked once; for measuring."""


class Backend(Protocol):
    """Something that executes graphs.

    `available` is None where the backend can be used, else the reason why not. `compile` raises BackendError for a
    graph the backend refuses; `threads` is how many it may use, as many as it likes where left out.
    """

    @property
    def name(self) -> str:
        """The name it is chosen by."""

    def available(self) -> str | None:
        """None where it can be used here, else the reason why not."""

    def compile(self, graph: Graph, *, threads: int | None = None) -> Program:
        """The graph made ready to run."""


def _checked(name: str, given: object) -> Backend:
    if getattr(given, "name", None) != name or not all(callable(getattr(given, m, None)) for m in _METHODS):
        raise UsageError(
            f"{given!r} is no backend", expected=f"an object with the name {name!r}, {' and '.join(_METHODS)}"
        )
    return cast(Backend, given)


_METHODS = ("available", "compile")
#: Every backend by name, the one that is used unless another is asked for first. Those for GPUs and of other packages
#: are used where they are asked for; plug-ins are entry points of "eqsat.backends".
BACKENDS: Registry[Backend] = Registry(
    "eqsat.backends",
    {b.name: b for b in (SessionBackend(), ReferenceBackend(), OpenVinoBackend(), CBackend(), CupyBackend())},
    _checked,
)


def select(name: str | None = None) -> Backend:
    """The backend of that name, or the first available one; BackendError for one that is unknown or cannot be used.

    >>> select("numpy").name
    'numpy'
    """
    if name is None:
        return next(b for b in map(BACKENDS.__getitem__, BACKENDS) if b.available() is None)
    if name not in BACKENDS:
        raise BackendError(
            f"no backend {name!r}", expected="one of " + ", ".join(BACKENDS), remedy=nearest(name, BACKENDS)
        )
    backend = BACKENDS[name]
    reason = backend.available()
    if reason is not None:
        usable = [b.name for b in BACKENDS.usable().values() if b.available() is None]
        raise BackendError(
            f"backend {name!r} cannot be used here: {reason}",
            expected="a backend that is installed",
            remedy="use one of " + ", ".join(usable),
        )
    return backend


def execute(
    graph: Graph, inputs: Mapping[str, Any], backend: str | None = None, *, threads: int | None = None
) -> dict[str, Any]:
    """Run a graph once and return its outputs by name, as NumPy arrays."""
    return select(backend).compile(graph, threads=threads).run(inputs)
