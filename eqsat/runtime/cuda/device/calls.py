"""Calls of libraries made ready by the first way that works: their plans, a part of the call, a generated kernel."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import chain, takewhile
from typing import Protocol

from eqsat.errors import BackendError
from eqsat.runtime.cuda.libraries.calls import Call, library_of
from eqsat.runtime.cuda.libraries.library import Address, Library, PreparedCall, translated
from eqsat.runtime.cuda.libraries.substitute import parted, source_of
from eqsat.runtime.cuda.libraries.tuning import GENERATED, tried
from eqsat.runtime.kernels.source import KernelSource
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.compiled import DeviceMemoryError

#: The plan of a call that a library runs in part, and a generated kernel after it.
PARTED = "parted"
#: The plan of a library's that a call is to be run by, as text; None leaves it to the library.
Choice = Callable[[Call], str | None]


class PreparedLaunch(Protocol):
    """A launch made ready: `launch` puts it on a stream, by its handle, with the address of the stream's workspace."""

    def launch(self, stream: int, workspace: int) -> None:
        """Put it on a stream."""


class Steps:
    """Kernels that are one launch of a program, one after the other; none for a kernel over no elements."""

    def __init__(self, *steps: PreparedLaunch) -> None:
        self._steps = steps

    def launch(self, stream: int, workspace: int) -> None:
        """Put all of them on a stream."""
        for step in self._steps:
            step.launch(stream, workspace)


class CallSteps:
    """The calls of a program, each run by the first way that works on this GPU, with a warning where one did not.

    A library that refuses a call, or fails while it is made ready or tried out, loses that plan alone: next are its own
    choice, its other plans where one fails at a launch, the call without its epilogue, and the generated kernel.
    `decisions` names the plan of each call, as `tuning` and PARTED have it. `try_out` launches a call once, by itself
    and captured; `kernel` makes a generated kernel ready.
    """

    def __init__(
        self,
        libraries: dict[str, Library],
        missing: dict[str, str],
        choose: Choice,
        address: Address,
        try_out: Callable[[PreparedCall], None],
        kernel: Callable[[KernelSource, tuple[View, ...]], PreparedLaunch],
    ) -> None:
        self._libraries, self._missing, self._choose = libraries, missing, choose
        self._address, self._try_out, self._kernel = address, try_out, kernel
        self.decisions: dict[Call, str | None] = {}
        self._prepared: list[PreparedCall] = []

    def step(self, call: Call, label: str) -> PreparedLaunch:
        """A call made ready; BackendError that names the library where nothing computes it."""
        name, wanted = library_of(call), tried(call, self._choose(call))
        library = self._libraries.get(name)
        if wanted[0] == GENERATED:
            return self._generated(call, label, "")
        if library is None:
            return self._generated(call, label, self._missing.get(name, f"{name} is not here"))
        reasons: list[str] = []
        prepared, which = self._by_library(library, call, wanted, reasons)
        if prepared is not None:
            if reasons:
                _warn(f"{label} runs by {which}: {reasons[-1]}")
            self._prepared.append(prepared)
            self.decisions[call] = prepared.plan
            return prepared
        parts = parted(call)
        if parts is None:
            return self._generated(call, label, reasons[-1])
        first, source, views = parts
        _warn(f"{label} runs as two kernels, not as one: {reasons[-1]}")
        self.decisions[call] = PARTED
        return Steps(self.step(first, label), self._kernel(source, views))

    def _by_library(
        self, library: Library, call: Call, wanted: tuple[str | None, ...], reasons: list[str]
    ) -> tuple[PreparedCall | None, str]:
        """The call by the first of a library's plans that runs, and which plan that is, in words.

        `reasons` gets the fault of each plan that does not run.
        """
        failed: set[str | None] = set()
        others = () if GENERATED in wanted else self._others(library, call, failed)
        for plan in chain(takewhile(lambda plan: plan != GENERATED, wanted), others):
            try:
                with translated(f"{library.name} fails to make a call ready"):
                    prepared = library.prepare(call, self._address, plan)
            except BackendError as error:
                reasons.append(error.what)
                continue
            if prepared.plan in failed:
                prepared.close()
                continue
            try:
                with translated(f"{library.name} fails at a launch"):
                    self._try_out(prepared)
            except BaseException as error:
                prepared.close()
                if not isinstance(error, BackendError) or isinstance(error, DeviceMemoryError):
                    raise
                failed.add(prepared.plan)
                reasons.append(error.what)
                continue
            return prepared, f"{library.name}'s own choice" if plan is None else f"another plan of {library.name}'s"
        return None, ""

    def _others(self, library: Library, call: Call, failed: set[str | None]) -> Iterator[str]:
        """The plans left where some failed when they were launched; a library that prepares none has no others."""
        if failed:
            try:
                with translated(f"{library.name} fails to list plans"):
                    plans = library.plans(call, self._address)
            except BackendError:
                return
            yield from (plan for plan in plans if plan not in failed)

    def _generated(self, call: Call, label: str, reason: str) -> PreparedLaunch:
        substitute = source_of(call)
        if substitute is None:
            raise BackendError(
                f"{label} has no kernel: {reason}",
                expected=f"{library_of(call)}, which computes it",
                remedy="pip install 'eqsat[cuda13]'",
            )
        if reason:
            _warn(f"{label} runs on a generated kernel, which is slower: {reason}")
        self.decisions[call] = GENERATED
        return self._kernel(*substitute)

    def close(self) -> None:
        """Free the libraries' resources of the calls."""
        while self._prepared:
            self._prepared.pop().close()


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=3)
