"""Threads that compile candidates, and the queue of their results."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar, cast

from eqsat.runtime.tuning.candidate import TuningCandidate

Compiled = TypeVar("Compiled")


@dataclass(frozen=True)
class CompileResult(Generic[Compiled]):
    """A candidate as it was compiled, or the exception that its compilation raised."""

    candidate: TuningCandidate
    compiled: Compiled | None
    error: BaseException | None = None

    def get(self) -> Compiled:
        """The candidate as compiled; the exception of its compilation where there is one."""
        if self.error is not None:
            raise self.error
        return cast(Compiled, self.compiled)


class CompilePool(Generic[Compiled]):
    """Threads that compile candidates in the order in which they are submitted.

    Leaving the `with` block drops what is not begun and waits for nothing: a compiler cannot be interrupted, and the
    result of one that still runs is thrown away. The threads are daemons, so that it does not delay the end of the
    program either.
    """

    def __init__(self, compile: Callable[[TuningCandidate], Compiled], threads: int) -> None:
        self._compile = compile
        self._jobs: SimpleQueue[tuple[TuningCandidate, Context] | None] = SimpleQueue()
        self._results: SimpleQueue[CompileResult[Compiled]] = SimpleQueue()
        self._closed = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"eqsat-compile-{number}", daemon=True)
            for number in range(threads)
        ]

    def submit(self, candidate: TuningCandidate) -> None:
        """Have a candidate compiled, in a copy of the context of the caller."""
        self._jobs.put((candidate, copy_context()))

    def next(self, seconds: float) -> CompileResult[Compiled] | None:
        """The next result, None if there is none after so many seconds."""
        try:
            return self._results.get(timeout=seconds)
        except Empty:
            return None

    def cancel(self) -> None:
        """Drop the candidates whose compilation has not begun."""
        try:
            while True:
                self._jobs.get_nowait()
        except Empty:
            return

    def __enter__(self) -> CompilePool[Compiled]:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_raised: object) -> None:
        self._closed.set()
        self.cancel()
        for _ in self._threads:
            self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None and not self._closed.is_set():
            candidate, context = job
            try:
                result = CompileResult(candidate, context.run(self._compile, candidate))
            except BaseException as error:  # noqa: BLE001 - the caller of `next` judges it, in its own thread
                result = CompileResult(candidate, None, error)
            if self._closed.is_set():
                return
            self._results.put(result)
            del job, result, candidate, context  # what was compiled may hold memory of a device
