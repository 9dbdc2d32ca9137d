"""Choices of kernels by measurement: each form by several options, timed on operands like those of a program."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, replace
from statistics import median
from typing import cast, get_args

import numpy as np

from eqsat.errors import BackendError, UsageError
from eqsat.language.terms import Array
from eqsat.runtime.c.blas import blas_names, is_callable, measured_on
from eqsat.runtime.c.program.kernels import CKernel, KernelChoice, default_choice
from eqsat.runtime.c.program.machine import CMachine
from eqsat.runtime.c.program.tiles import tiles
from eqsat.runtime.c.toolchain import loop_threads
from eqsat.runtime.kernels.nests.groups.lowering import PANELS
from eqsat.runtime.kernels.nests.groups.statements import Form
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.programs.arena import arrange
from eqsat.runtime.programs.launches import Launch
from eqsat.runtime.programs.program import KernelProgram
from eqsat.runtime.tuning.agreement import agrees
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.store import KernelCache

#: Seconds for which kernels of one program are timed.
MOST_SECONDS = 120.0
#: The name of the field of a choice beside its options, and what entries are for.
_FORM, _TARGET = "form", "c-program"
#: A candidate is timed in so many rounds, for so many seconds altogether, after which one that is this much slower than
#: the fastest is left.
_ROUNDS, _SECONDS, _HOPELESS = 7, 0.05, 2.0
#: Bytes of operands and results from which so few candidates are tried.
_LARGE_BYTES, _FEW = 64 << 20, 3
#: The most tiles that are tried for a form that is seldom the fastest, or long to compile.
_FEW_TILES = 3


def candidates(kernel: CKernel, threads: int | None = 1) -> list[KernelChoice]:
    """The choices that are tried for a kernel, the default one first; a kernel of little work takes one thread."""
    count = loop_threads(threads)
    found = _forms_and_options(kernel)
    first = default_choice(kernel, count)
    if first.options.threads == 1:
        return found
    return [first, found[0], *(one.with_threads(count) for one in found[1:])]


def _forms_and_options(kernel: CKernel) -> list[KernelChoice]:
    found = [default_choice(kernel)]
    first = kernel.forms["direct"].computation
    if any(one.reduction == "+" and one.value.template == "({0} * {1})" for one in first.statements):
        called = [form for form in kernel.forms if form not in PANELS]
        found += [KernelChoice(form, MappingOptions(library=name)) for name in blas_names() for form in called]
        for form in kernel.forms:
            is_rare = form == "winograd" or (form == "direct" and len(kernel.forms) > 1)
            found += [KernelChoice(form, options) for options in tiles(form, _FEW_TILES if is_rare else None)]
    else:
        base = found[0].options
        found += [
            KernelChoice("direct", replace(base, **change))
            for change in (
                {"vectors": 1},
                {"vectors": 4},
                {"vector_bytes": 32},
                {"fused_rows": 1},
                {"fusion": "min"},
                {"is_naive": True},
            )
        ]
    return list(dict.fromkeys(found))


def key_of(kernel: CKernel, threads: int | None) -> KernelKey:
    """The key under which the choice of a kernel is kept: its computation, threads, processor and libraries."""
    shared = f"{kernel.label}; threads {threads or 'any'}"
    return KernelKey(kernel.key, shared, _TARGET, measured_on())


def known_choice(kernel: CKernel, threads: int | None = None) -> KernelChoice | None:
    """The choice that was measured to be fastest on this processor; None where nothing is known."""
    with KernelCache() as cache:
        entry = cache.best(key_of(kernel, threads))
    return None if entry is None else _choice(entry, kernel)


def fastest_choice(kernel: CKernel, threads: int | None = None) -> KernelChoice:
    """The choice that was measured to be fastest on this processor, or the default one."""
    return known_choice(kernel, threads) or default_choice(kernel, loop_threads(threads))


class ChosenKernels:
    """The choices that were measured to be fastest for a number of threads, each looked up once."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._known: dict[str, KernelChoice] = {}

    def __call__(self, kernel: CKernel) -> KernelChoice:
        """The choice for a kernel."""
        if kernel.key not in self._known:
            self._known[kernel.key] = fastest_choice(kernel, self._threads)
        return self._known[kernel.key]


def _choice(entry: TuningCandidate, kernel: CKernel) -> KernelChoice | None:
    values = dict(entry)
    form = values.pop(_FORM, "direct")
    if form not in get_args(Form) or form not in kernel.forms:
        return None
    try:
        options = MappingOptions.of(values)
    except UsageError:  # options of another version
        return None
    return KernelChoice(cast(Form, form), options) if is_callable(options.blas) else None


def tune_program(program: KernelProgram, threads: int | None = None) -> int:
    """Time the candidates of each kernel that nothing is known of, keep the fastest, and return how many were timed.

    After some MOST_SECONDS no kernel is begun; what is known by then is kept, and a later call goes on.
    """
    timed, end = 0, time.monotonic() + MOST_SECONDS
    for launch in unknown(program, threads):
        if time.monotonic() > end:
            break
        tune_launch(program, launch, threads)
        timed += 1
    return timed


def unknown(program: KernelProgram, threads: int | None = None) -> Iterator[Launch]:
    """One launch of each kernel of which no choice is known."""
    seen: set[str] = set()
    for launch in program.launches:
        kernel = launch.work
        if isinstance(kernel, CKernel) and kernel.key not in seen:
            seen.add(kernel.key)
            if known_choice(kernel, threads) is None:
                yield launch


def tune_launch(program: KernelProgram, launch: Launch, threads: int | None = None) -> tuple[KernelChoice, float]:
    """Time the candidates of a launch, keep the fastest one, and return it with its seconds."""
    kernel = launch.work
    assert isinstance(kernel, CKernel)
    choices = candidates(kernel, threads)
    if sum(view.nbytes for view in (*launch.reads, *launch.writes)) > _LARGE_BYTES:
        choices = choices[:_FEW]  # each has memory of its own
    with _without_collection(), ThreadPoolExecutor(os.cpu_count()) as pool:
        built = pool.map(lambda choice: _machine(program, launch, choice, threads), choices)
        machines = [(choice, one) for choice, one in zip(choices, built, strict=True) if one is not None]
    machines = _agreeing(machines, launch)
    if not machines:
        raise BackendError(f"no form of {launch.label} compiles", where=program.name, expected="C that compiles")
    times = _timed([machine for _, machine in machines])
    best = min(range(len(machines)), key=lambda number: times[number])
    choice = machines[best][0]
    values = {name: value for name, value in asdict(choice.options).items() if name != "clusters"}  # which none has
    candidate = TuningCandidate({_FORM: choice.form, **values})
    with KernelCache() as cache:
        cache.put(key_of(kernel, threads), KernelEntry(candidate, times[best]))
    return choice, times[best]


@contextmanager
def _without_collection() -> Iterator[None]:
    """No collection of garbage while other threads run: egglog's e-graphs may be given up by their own thread alone."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _machine(program: KernelProgram, launch: Launch, choice: KernelChoice, threads: int | None) -> CMachine | None:
    """A program of one launch, with memory of its own that holds random numbers; None if it does not compile."""
    used = {view.buffer: program.buffers[view.buffer] for view in (*launch.reads, *launch.writes)}
    buffers = {name: replace(buffer, role="input") for name, buffer in used.items()}
    weights = {name: weight for name, weight in program.weights.items() if name in used}
    alone = KernelProgram(launch.label, buffers, (launch,), {}, {}, weights)
    try:
        machine = CMachine(alone, arrange(alone), lambda kernel: choice, threads)
    except BackendError:
        return None
    rng = np.random.default_rng(0)
    for view in launch.reads:
        if view.buffer not in weights and view.dtype.is_float:
            machine.array(view)[...] = rng.standard_normal(view.shape).astype(view.dtype.numpy)
    return machine


def _agreeing(machines: Sequence[tuple[KernelChoice, CMachine]], launch: Launch) -> list[tuple[KernelChoice, CMachine]]:
    """Those whose results are the first one's but for rounding: what a compiler gets wrong is not chosen."""
    kept: list[tuple[KernelChoice, CMachine]] = []
    wanted: list[Array] = []
    for choice, machine in machines:
        machine.launch()
        made = [np.array(machine.array(view)) for view in launch.writes]
        wanted = wanted or made
        if all(agrees(one, other) for one, other in zip(made, wanted, strict=True)):
            kept.append((choice, machine))
    return kept


def _timed(machines: Sequence[CMachine]) -> list[float]:
    """The median seconds of each program, in turns; those that are hopeless after the first round have one alone."""
    times: list[list[float]] = [[] for _ in machines]
    seconds = [0.0 for _ in machines]
    for round_ in range(_ROUNDS):
        fastest = min((median(one) for one in times if one), default=0.0)
        for number, machine in enumerate(machines):
            if round_ and (median(times[number]) > _HOPELESS * fastest or seconds[number] > _SECONDS):
                continue
            if not round_:
                machine.launch()
            begin = time.perf_counter()
            machine.launch()
            once = time.perf_counter() - begin
            repeats = max(min(int(_SECONDS / _ROUNDS / max(once, 1e-7)), 1000), 1)
            begin = time.perf_counter()
            for _ in range(repeats):
                machine.launch()
            taken = time.perf_counter() - begin
            times[number].append(taken / repeats)
            seconds[number] += taken
    return [median(one) for one in times]
