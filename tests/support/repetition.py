"""A program run several times over in one: copies of its launches on the same values, taking turns on its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from functools import partial
from typing import Any

from eqsat.errors import UsageError
from eqsat.runtime.cuda.libraries.calls import Attention, Convolution, Matmul, Normalisation
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Launch
from eqsat.runtime.programs.program import KernelProgram


def repeated(program: KernelProgram, copies: int, sets: int = 1) -> KernelProgram:
    """`copies` of a program's launches, one copy after the other; weights are there in so many equal sets.

    Inputs, values and outputs are read and written in place by all copies; copy i reads the weights of set i modulo
    `sets`.
    """
    if copies < 1 or not 1 <= sets <= copies:
        raise UsageError(f"{copies} copies on {sets} sets of weights", expected="1 set or more, and a copy for each")
    own = {name for name, buffer in program.buffers.items() if buffer.role == "weight"}

    def named(name: str, turn: int) -> str:
        return f"{name}@{turn}" if turn and name in own else name

    def moved(view: View, turn: int) -> View:
        return replace(view, buffer=named(view.buffer, turn))

    buffers = dict(program.buffers)
    weights = dict(program.weights)
    for turn in range(1, sets):
        buffers |= {named(name, turn): replace(buffers[name], name=named(name, turn)) for name in own}
        weights |= {f"{name}@{turn}": (held, moved(view, turn)) for name, (held, view) in program.weights.items()}
    launches = tuple(
        _moved(launch, partial(moved, turn=copy % sets)) for copy in range(copies) for launch in program.launches
    )
    return replace(program, name=f"{copies} × {program.name}", buffers=buffers, launches=launches, weights=weights)


def _moved(launch: Launch, moved: Callable[[View], View]) -> Launch:
    """A launch on other views; those of a library's call stand in the call too."""
    reads, writes = tuple(map(moved, launch.reads)), tuple(map(moved, launch.writes))
    work = launch.work
    if isinstance(work, Matmul | Convolution | Attention | Normalisation):
        held = {field.name: getattr(work, field.name) for field in fields(work)}
        changed: dict[str, Any] = {name: moved(view) for name, view in held.items() if isinstance(view, View)}
        work = replace(work, **changed)
    return replace(launch, work=work, reads=reads, writes=writes)
