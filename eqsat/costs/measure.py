"""Operators measured one at a time on ONNX Runtime."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.costs.device import Device
from eqsat.costs.environment import Environment
from eqsat.costs.key import OpKey
from eqsat.costs.specimen import Specimen, result_types, specimen
from eqsat.costs.table import CostTable, Entry
from eqsat.costs.work import work_of
from eqsat.errors import BackendError, CostError, EqsatError, UsageError
from eqsat.language.spec import OPS
from eqsat.language.types import DType, TensorType
from eqsat.runtime.measure import interleaved

#: The device whose operators are measured here.
DEVICE = "onnxruntime-cpu"
#: Seconds that rounds of one operator may take; building its sessions comes on top.
OPERATOR_SECONDS = 0.025
#: What a graph of copies should take: long against a session's own overhead, short against the budget.
_GRAPH_SECONDS = 2e-4
_MOST_COPIES = 64
#: Constants of all copies together, and of an operator that is not measured at all.
_COPIED_BYTES = 96 << 20
_LARGEST_BYTES = 400 << 20

Progress = Callable[[int, int, OpKey], None]


@dataclass(frozen=True)
class Filled:
    """What filling a table did: entries measured, entries it had, operators that failed and why, operators left."""

    measured: int
    known: int
    failed: tuple[tuple[OpKey, str], ...] = field(default=())
    left: int = 0


def fill(
    keys: Iterable[OpKey],
    table: CostTable,
    progress: Progress | None = None,
    time_limit: float | None = None,
    *,
    threads: int = 1,
    seconds: float = OPERATOR_SECONDS,
) -> Filled:
    """Measures the operators a table lacks in this environment.

    Each result is committed at once, so a run that is stopped goes on where it was. `progress` is called before each
    operator with how many are done, how many there are, and the operator. After `time_limit` seconds no operator is
    begun. An operator that ONNX Runtime refuses is listed with its reason and left to the estimate.
    """
    if time_limit is not None and not time_limit > 0:
        raise UsageError(f"time_limit = {time_limit}", expected="a number of seconds above 0")
    environment = Environment.current(DEVICE, threads)
    known = table.entries(environment)
    wanted = list(dict.fromkeys(keys))
    todo = [k for k in wanted if k.text not in known]
    start = time.perf_counter()
    failed: list[tuple[OpKey, str]] = []
    for done, key in enumerate(todo):
        if time_limit is not None and time.perf_counter() - start > time_limit:
            return Filled(done - len(failed), len(wanted) - len(todo), tuple(failed), len(todo) - done)
        if progress is not None:
            progress(done, len(todo), key)
        try:
            entry = measure(key, threads=threads, seconds=seconds)
        except EqsatError as error:
            failed.append((key, error.what))
            continue
        table.put(environment, key, entry)
    return Filled(len(todo) - len(failed), len(wanted) - len(todo), tuple(failed))


def measure(key: OpKey, *, threads: int = 1, seconds: float = OPERATOR_SECONDS, seed: int = 0) -> Entry:
    """The time of one operator on ONNX Runtime at the level "all", without what a session costs in any case.

    Two graphs, of K and of 2K independent copies, run in turn; the time is (T(2K) - T(K)) / K, in each round. Inputs
    and results lie in the nearer caches, as after a producer; each copy has constants of its own, which come from
    farther. CPU time of the calling thread for one thread, else elapsed time. CostError where the operator cannot be
    run alone.
    """
    results = result_types(key)
    copies = _copies(key, results)
    try:
        programs = {n: _Program(specimen(key, c, seed), threads) for n, c in (("once", copies), ("twice", 2 * copies))}
    except BackendError as error:
        raise CostError(error.what, where=key.text, expected="an operator that ONNX Runtime implements") from error
    timings = interleaved(
        {name: program.run for name, program in programs.items()},
        seed=seed,
        clock="thread" if threads == 1 else "wall",
        time_limit=seconds,
    )
    once, twice = (np.asarray(timings.samples[n]) for n in ("once", "twice"))
    times = np.maximum((twice - once) / copies - programs["once"].extra, 0.0)
    low, middle, high = np.quantile(times, (0.1, 0.5, 0.9))
    return Entry(float(middle), float(low), float(high), timings.rounds)


def _copies(key: OpKey, results: tuple[TensorType, ...]) -> int:
    """How many copies take about as long as a graph should, within the memory there is for their constants."""
    device = Device.of(DEVICE)
    work = work_of(key.op, key.attrs, key.operands, results, key.const_operands)
    estimate = device.seconds(
        work.variant,
        work.dtype,
        flops=work.flops,
        bytes=work.bytes,
        weight_bytes=work.weight_bytes,
        elements=work.elements,
    )
    wanted = max(1, min(_MOST_COPIES, round(_GRAPH_SECONDS / estimate)))
    constants = sum(
        int(np.prod(t.static, dtype=np.int64)) * t.dtype.itemsize
        for t, const in zip(key.operands, key.const_operands, strict=True)
        if t is not None and const
    )
    if constants > _LARGEST_BYTES:
        raise CostError(
            f"{constants >> 20} MB of constants are too many to measure with",
            where=key.text,
            expected=f"at most {_LARGEST_BYTES >> 20} MB",
        )
    if OPS[key.op].movement or not constants:
        return wanted
    return max(1, min(wanted, _COPIED_BYTES // (3 * constants)))


class _Program:
    """A specimen bound to a session: inputs and results keep their place, so that nothing is allocated in a run."""

    def __init__(self, built: Specimen, threads: int) -> None:
        from eqsat.runtime.session import SessionBackend, ort_value

        program = SessionBackend().compile(built.graph, threads=threads)
        binding = program.session.io_binding()
        self._kept: list[Any] = []
        for name, array in built.inputs.items():
            value = ort_value(array, DType.of(array.dtype))
            self._kept.append(value)
            binding.bind_ortvalue_input(name, value)
        buffers: dict[TensorType, Any] = {}
        for name, declared in built.outputs.items():
            if declared not in buffers:
                # Copies write one after the other, and nothing reads what they write: one buffer serves all.
                buffers[declared] = ort_value(np.zeros(declared.static, declared.dtype.numpy), declared.dtype)
            binding.bind_ortvalue_output(name, buffers[declared])
        self._kept += buffers.values()
        self._binding, self._session = binding, program.session
        try:
            self.run()
        except RuntimeError as error:
            raise BackendError(f"ONNX Runtime failed: {str(error).strip().splitlines()[0]}") from error
        #: What the pooling at the end of each copy costs, and the conversion of its result.
        self.extra = 2 * Device.of(DEVICE).launch if built.tail else 0.0

    def run(self) -> None:
        """One run of all copies."""
        self._session.run_with_iobinding(self._binding)
