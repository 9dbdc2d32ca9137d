"""Operators, and kernels of several, measured one at a time on the backend of a CPU."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.fusion import FusedKey, Key
from eqsat.costs.kernels.work import work_of
from eqsat.costs.measuring.campaign import Campaign
from eqsat.costs.measuring.microbenchmark import Microbenchmark, build_microbenchmark, chain_types, stated
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.errors import BackendError, CostError, EqsatError, UsageError
from eqsat.language.ops import OPS
from eqsat.language.terms.types import DType, TensorType
from eqsat.runtime.measure import clock_for, interleaved

#: The device whose operators are measured unless another is named.
DEVICE = "onnxruntime-cpu"
#: Seconds that rounds of one operator may take; building its sessions comes on top.
OPERATOR_SECONDS = 0.025
#: Target time of a graph of copies: long against a session's own overhead, short against the budget.
_GRAPH_SECONDS = 2e-4
_MOST_COPIES = 64
#: On OpenVINO, which takes a millisecond or two to compile each copy.
_MOST_COMPILED = 12
#: Constants of all copies together: at least, so that they come from far memory as in a model, unless the copies then
#: take longer than this; and at most.
_COLD_BYTES = 24 << 20
_COLD_SECONDS = 4e-3
_COPIED_BYTES = 96 << 20
#: Constants of an operator that is measured without copies, and of one that is not measured at all.
_ALONE_BYTES = 64 << 20
_LARGEST_BYTES = 400 << 20
#: Constants of which a hot time is measured too: smaller ones come in about as fast from anywhere.
_HOT_BYTES = 64 << 10

Progress = Callable[[int, int, Key], None]


def fill(
    keys: Iterable[Key],
    table: CostTable,
    progress: Progress | None = None,
    time_limit: float | None = None,
    *,
    threads: int = 1,
    seconds: float = OPERATOR_SECONDS,
    shipped: bool = True,
    device: str | Device = DEVICE,
) -> Campaign:
    """Measure the operators a table lacks in this environment, and return the counts.

    Each result is committed at once, so a run that is stopped goes on where it was. `progress` is called before each
    operator with how many are done, how many there are, and the operator. After `time_limit` seconds no operator is
    begun. Without `shipped`, kernels whose entries come with eqsat are measured here too, since a processor of the same
    name may run at another speed, and times that are compared should be measured together. Kernels that the backend
    refuses, or ONNX cannot express, are listed with the reason and left to the estimate. `seconds` limits the rounds of
    one operator; entries are those of `device`. UsageError for a time limit that is not above 0.
    """
    if time_limit is not None and not time_limit > 0:
        raise UsageError(f"time_limit = {time_limit}", expected="a number of seconds above 0")
    on = Device.of(device)
    environment = Environment.current(on, threads)
    known = set(table.entries(environment) if shipped else table.own(environment))
    wanted = list(dict.fromkeys(keys))
    todo = [k for k in wanted if k.text not in known]
    start = time.perf_counter()
    failed: list[tuple[Key, str]] = []
    for done, key in enumerate(todo):
        if time_limit is not None and time.perf_counter() - start > time_limit:
            return Campaign(done - len(failed), len(wanted) - len(todo), tuple(failed), len(todo) - done)
        if progress is not None:
            progress(done, len(todo), key)
        try:
            entry = measure(key, threads=threads, seconds=seconds, device=on)
        except EqsatError as error:
            failed.append((key, error.what))
            continue
        table.put(environment, key, entry)
    return Campaign(len(todo) - len(failed), len(wanted) - len(todo), tuple(failed))


def measure(
    key: Key,
    *,
    threads: int = 1,
    seconds: float = OPERATOR_SECONDS,
    seed: int = 0,
    device: str | Device = DEVICE,
) -> Entry:
    """The time of one kernel on the backend of a device, without the fixed cost of a session.

    Two graphs, of K and of 2K independent copies, run in turn; the time is (T(2K) - T(K)) / K, in each round. Inputs
    and results lie in the nearer caches, as after a producer; each copy has constants of its own, which come from
    farther. An operator with so many constants that copies of them would fill the memory is run alone: beside it, the
    cost of a session is nothing. CPU time for one thread, else elapsed time. Of several operators it is the time of
    all, fused as far as the backend fuses them. `seconds` is how many seconds the rounds may take together. Where
    copies can share their constants, their time with these in nearer memory is the entry's hot time.
    CostError where the kernel cannot be run alone.
    """
    on = Device.of(device)
    estimate = estimated(key, on)
    constants = _constant_bytes(key)
    lengths = [1] if constants > _ALONE_BYTES else [n * _copies(estimate, constants, on) for n in (1, 2)]
    try:
        made = {str(n): build_microbenchmark(key, n, seed, contrib=on.is_onnxruntime) for n in lengths}
        programs = {name: _bound(benchmark, on, threads) for name, benchmark in made.items()}
        if len(lengths) > 1 and constants >= _HOT_BYTES and not programs[str(lengths[0])].extra:
            hot = {f"hot {n}": build_microbenchmark(key, n, seed, hot=True, contrib=on.is_onnxruntime) for n in lengths}
            programs |= {name: _bound(benchmark, on, threads) for name, benchmark in hot.items()}
    except BackendError as error:
        expected = f"an operator that the backend {on.backend!r} implements"
        raise CostError(error.what, where=key.text, expected=expected) from error
    timings = interleaved(
        {name: program.run for name, program in programs.items()},
        seed=seed,
        clock=clock_for(threads, on.backend),
        time_limit=seconds,
    )
    first, last = (np.asarray(timings.samples[str(n)]) for n in (lengths[0], lengths[-1]))
    whole = last if len(lengths) == 1 else (last - first) / lengths[0]
    entry = Entry.of(np.maximum(whole - programs[str(lengths[0])].extra, 0.0).tolist())
    if f"hot {lengths[0]}" not in programs:
        return entry
    few, many = (np.asarray(timings.samples[f"hot {n}"]) for n in lengths)
    warm = max(float(np.median((many - few) / lengths[0])), 0.0)
    return replace(entry, hot=min(warm, entry.seconds))


def _constant_bytes(key: Key) -> int:
    """Bytes of the constants that each copy needs; CostError where they are too many."""
    members = FusedKey.of(key).members
    sizes = {
        (place, i): int(np.prod(t.static, dtype=np.int64)) * t.dtype.itemsize
        for place, member in enumerate(members)
        for i, (t, const) in enumerate(zip(member.operands, member.const_operands, strict=True))
        if t is not None and const
    }
    total = sum(sizes.values())
    if total > _LARGEST_BYTES:
        raise CostError(
            f"{total >> 20} MB of constants are too many to measure with",
            where=key.text,
            expected=f"at most {_LARGEST_BYTES >> 20} MB",
        )
    return sum(size for (place, _), size in sizes.items() if not OPS[members[place].op].movement)


def estimated(key: Key, device: Device) -> float:
    """An estimate of the time of one kernel, in seconds: the sum over its operators by themselves."""
    members = zip(stated(FusedKey.of(key)).members, chain_types(key), strict=True)
    return sum(device.roofline(work_of(m.op, m.attrs, m.operands, types, m.const_operands)) for m, types in members)


def _copies(estimate: float, constants: int, device: Device) -> int:
    """The number of copies that take about as long as a graph should, within the memory for their constants."""
    most = _MOST_COPIES if device.is_onnxruntime else _MOST_COMPILED
    wanted = max(1, min(most, round(_GRAPH_SECONDS / estimate)))
    if not constants:
        return wanted
    cold = min(math.ceil(_COLD_BYTES / (3 * constants)), round(_COLD_SECONDS / estimate))
    return max(1, min(max(wanted, cold), most, _COPIED_BYTES // (3 * constants)))


@dataclass(frozen=True)
class _Bound:
    """A microbenchmark ready to run; `extra` seconds are the pooling at the end of each copy, and its conversion."""

    run: Callable[[], object]
    extra: float


def _bound(benchmark: Microbenchmark, device: Device, threads: int) -> _Bound:
    extra = 2 * device.launch if benchmark.tail else 0.0
    if device.is_onnxruntime:
        return _Bound(_Program(benchmark, threads).run, extra)
    from eqsat.runtime.backend import select

    backend: Any = select(device.backend)
    # Kernels of our own are measured by the form that is fastest, which programs take as well.
    options = {"tuned": True, "regions": ()} if device.backend == "c" else {}
    run = backend.compile(benchmark.graph, threads=threads, **options).bind(benchmark.inputs)
    run()
    return _Bound(run, extra)


class _Program:
    """A microbenchmark bound to a session: inputs and results keep their place, so that a run allocates nothing."""

    def __init__(self, benchmark: Microbenchmark, threads: int) -> None:
        from eqsat.runtime.onnxruntime.session import SessionBackend, ort_value

        program = SessionBackend().compile(benchmark.graph, threads=threads)
        binding = program.session.io_binding()
        self._kept: list[Any] = []
        for name, array in benchmark.inputs.items():
            value = ort_value(array, DType.of(array.dtype))
            self._kept.append(value)
            binding.bind_ortvalue_input(name, value)
        buffers: dict[TensorType, Any] = {}
        for name, declared in benchmark.outputs.items():
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

    def run(self) -> None:
        """One run of all copies."""
        self._session.run_with_iobinding(self._binding)
