"""The text of a program's shared library: its kernels, and functions that call them one after the other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from eqsat.runtime.c.program.kernels import ChoiceMaker, CKernel, KernelChoice, PreparedOperand
from eqsat.runtime.kernels.nests.options import Blas
from eqsat.runtime.kernels.nests.printing.c_printer import FunctionText, translation_unit
from eqsat.runtime.kernels.view import View
from eqsat.runtime.programs.launches import Fallback, Launch, SessionRegion
from eqsat.runtime.programs.program import KernelProgram

#: The numbers of the addresses of the workspace and of the arena; those of other buffers follow.
WORKSPACE, ARENA, FIRST_BUFFER = 0, 1, 2


@dataclass(frozen=True)
class ProgramText:
    """The text of a library, the bytes of the workspace that its kernels share, and its parts in their order.

    A part is the name of a function that takes the addresses of all memory, or the index of a launch that has no
    kernel. `prepared` are the bytes of operands that `preparations` make once, each with an address of its own behind
    those of buffers. `blas` are the libraries whose products are called.
    """

    text: str
    workspace: int
    parts: tuple[str | int, ...]
    prepared: tuple[int, ...]
    preparations: tuple[str, ...]
    choices: Mapping[str, KernelChoice]
    blas: frozenset[Blas]

    @property
    def threads(self) -> int:
        """The most threads that a kernel takes."""
        return max((one.options.threads for one in self.choices.values()), default=1)


def program_text(program: KernelProgram, offsets: Mapping[str, int], choose: ChoiceMaker) -> ProgramText:
    """The text of a program whose values lie at offsets in one arena."""
    return _ProgramWriter(program, offsets, choose).written()


def own_buffers(program: KernelProgram) -> list[str]:
    """The buffers that have an address of their own, in its order: all but those of values."""
    return [name for name, buffer in program.buffers.items() if buffer.role != "value"]


def call_name(launch: int) -> str:
    """The name of the function that calls the kernel of a launch alone, by the index of the launch."""
    return f"call_{launch}"


@dataclass
class _ProgramWriter:
    """A program as text under construction."""

    program: KernelProgram
    offsets: Mapping[str, int]
    choose: ChoiceMaker
    functions: dict[str, FunctionText] = field(default_factory=dict)
    choices: dict[str, KernelChoice] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    parts: list[str | int] = field(default_factory=list)
    prepared: list[int] = field(default_factory=list)
    preparations: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        own = own_buffers(self.program)
        self._slots = {name: (ARENA, offset) for name, offset in self.offsets.items()}
        self._slots |= {name: (FIRST_BUFFER + number, 0) for number, name in enumerate(own)}
        self._first_prepared = FIRST_BUFFER + len(own)
        self._made: dict[tuple[str, ...], str] = {}
        self._texts: dict[str, FunctionText] = {}

    def written(self) -> ProgramText:
        """The text of all launches."""
        for index, launch in enumerate(self.program.launches):
            if isinstance(launch.work, CKernel):
                self._launch(index, launch, launch.work)
            else:
                assert isinstance(launch.work, Fallback | SessionRegion)
                self._end_part()
                self.parts.append(index)
        self._end_part()
        functions = list(self.functions.values())
        return ProgramText(
            translation_unit(functions, "\n".join(self.texts)),
            max((one.workspace for one in functions), default=0),
            tuple(self.parts),
            tuple(self.prepared),
            tuple(self.preparations),
            self.choices,
            frozenset(library for one in functions for library in one.blas),
        )

    def _launch(self, index: int, launch: Launch, kernel: CKernel) -> None:
        if kernel.key not in self.choices:
            self.choices[kernel.key] = self.choose(kernel)
        choice = self.choices[kernel.key]
        places = {
            value: self._address(view)
            for value, view in zip(kernel.arguments, (*launch.reads, *launch.writes), strict=True)
        }
        for name, operand in kernel.preparations(choice).items():
            places[name] = self._prepared_place(operand, [places[value] for value in operand.values])
        call = call_name(index)
        self._call(call, self._text(kernel, choice), [places[value] for value in kernel.passed(choice)])
        self.calls.append(f"  failed |= {call}(p);")

    def _text(self, kernel: CKernel, choice: KernelChoice) -> FunctionText:
        """The function of a kernel, which is scheduled and printed once for all launches of it."""
        if kernel.key not in self._texts:
            self._texts[kernel.key] = kernel.text(choice)
        return self._texts[kernel.key]

    def _prepared_place(self, operand: PreparedOperand, places: Sequence[str]) -> str:
        """The address of a prepared operand: launches that make the same one of the same constants share it."""
        key = (operand.text.name, *places)
        if key not in self._made:
            self._made[key] = f"(void *)p[{self._first_prepared + len(self.prepared)}]"
            self.prepared.append(operand.nbytes)
            function = f"prepare_{len(self.preparations)}"
            self._call(function, operand.text, [*places, self._made[key]])
            self.preparations.append(function)
        return self._made[key]

    def _call(self, name: str, function: FunctionText, places: Sequence[str]) -> None:
        self.functions.setdefault(function.name, function)
        arguments = ", ".join([*places, f"p[{WORKSPACE}]"])
        self.texts.append(f"int {name}(unsigned char *const *p) {{ return {function.name}({arguments}); }}")

    def _end_part(self) -> None:
        if self.calls:
            name = f"run_{len(self.parts)}"
            lines = [
                f"int {name}(unsigned char *const *p) {{",
                "  int failed = 0;",
                *self.calls,
                "  return failed;",
                "}",
            ]
            self.texts.append("\n".join(lines))
            self.parts.append(name)
            self.calls = []

    def _address(self, view: View) -> str:
        slot, offset = self._slots[view.buffer]
        offset += view.offset * view.dtype.itemsize
        return f"(void *)(p[{slot}] + {offset})" if offset else f"(void *)p[{slot}]"
