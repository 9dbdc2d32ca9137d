"""The protocol of a library of kernels: plans for a call, and a call made ready to be launched."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from eqsat.errors import BackendError, EqsatError, first_line
from eqsat.runtime.kernels.view import View

#: The address of the first element of a view in the memory of the device.
Address = Callable[[View], int]
#: Bytes that a library may use beside operands and results: one such piece a stream.
WORKSPACE_BYTES = 32 << 20


Opened = TypeVar("Opened")


def opened(
    module: str,
    kind: Callable[[Any], Opened],
    *,
    called: str,
    package: str,
    version: str,
    check: Callable[[Any], None] = lambda module: None,
) -> Opened:
    """A library by its Python module, made by `kind` once `check` has passed; BackendError that names the missing part.

    `package` is expected where the module is missing, `version` where the library fails.
    """
    install = "pip install 'eqsat[cuda13]'"
    name = module.partition(".")[0]
    try:
        loaded: Any = importlib.import_module(module)
    except ImportError as error:
        missing = isinstance(error, ModuleNotFoundError)
        fault = f"{name} is not installed" if missing else f"{name} fails: {first_line(error)}"
        raise BackendError(fault, expected=package, remedy=install) from error
    check(loaded)
    try:
        return kind(loaded)
    except Exception as error:
        fault = f"{called} cannot be used: {first_line(error)}"
        raise BackendError(fault, expected=version, remedy=install) from error


@contextmanager
def translated(what: str, *, where: str = "") -> Iterator[None]:
    """Raise BackendError for an error of CUDA's, of a library's or of its bindings' within; each has a type of its own.

    Errors of eqsat's own, and assertions, pass as they are. It decorates functions, too.

    >>> with translated("the launch fails", where="matmul"):
    ...     raise RuntimeError("CUBLAS_STATUS_EXECUTION_FAILED")
    Traceback (most recent call last):
    ...
    eqsat.errors.BackendError: matmul: the launch fails: RuntimeError: CUBLAS_STATUS_EXECUTION_FAILED
    """
    try:
        yield
    except (EqsatError, AssertionError):
        raise
    except Exception as error:
        kind, line = type(error).__name__, first_line(error)
        raise BackendError(f"{what}: {kind if line == kind else f'{kind}: {line}'}", where=where) from error


def check_plan_version(library: str, stated: str, here: str) -> None:
    """BackendError for a plan that another version of a library has written."""
    if stated != here:
        raise BackendError(
            f"the plan is of {library} {stated}, here is {here}",
            expected="the version that it was measured with",
            remedy="measure again",
        )


class PreparedCall(Protocol):
    """A call with its plan chosen and its addresses fixed; launching it allocates nothing.

    `plan` is the choice as text, from which the same library makes it again; `workspace` is in bytes.
    """

    plan: str
    workspace: int

    def launch(self, stream: int, workspace: int) -> None:
        """Put the kernel on a stream, by the handle CUDA knows it by; `workspace` is an address."""

    def close(self) -> None:
        """Free the library's resources of the call."""


class Library(Protocol):
    """Kernels for calls of one type. `version` goes into plans, and a plan of another version is refused."""

    name: str
    version: str

    def plans(self, call: Any, address: Address) -> tuple[str, ...]:
        """Every plan the library has for a call, the one it would choose first; empty where it has none."""

    def prepare(self, call: Any, address: Address, plan: str | None = None) -> PreparedCall:
        """The call by a plan, or by the library's own choice; BackendError where it has none, or the plan is stale."""

    def close(self) -> None:
        """Give the library's handle back."""
