"""Programs of comprehensions as CUDA kernels, run on the processor in both orders of threads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eqsat.language.terms.dims import Sym, evaluate
from eqsat.runtime.c.kernel import computation_of
from eqsat.runtime.cuda.comprehension_kernels import cuda_kernels, free_cuda_kernels
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.gpu_options import GpuMapping
from eqsat.runtime.kernels.source import KernelSource
from eqsat.testing.cuda.computations import run_kernels
from eqsat.testing.cuda.emulator import build
from tests.support.comprehensions.compiled_corpus import opened
from tests.support.comprehensions.comprehension_cases import Right, check_equal


@dataclass(frozen=True)
class MappedProgram:
    """A program at the shapes of its arguments, and its kernels."""

    program: Right
    computation: Computation
    kernels: tuple[KernelSource, ...]
    sizes: Mapping[str, int] = field(default_factory=dict)

    @staticmethod
    def of(program: Right, options: GpuMapping, is_free: bool = False) -> MappedProgram:
        """A program mapped to a GPU; with sizes that are arguments of its kernels where they may be."""
        function = program.function
        arguments, named = program.arguments(function)
        inferred, tensors = function.bind(arguments, named)
        given = [one for one in function.scope.updated if one in tensors]
        shapes = opened(function, inferred) if is_free else inferred
        computation = computation_of(function, shapes, given)
        if not computation.sizes:
            return MappedProgram(program, computation, cuda_kernels(computation, options))
        free = [size for size in function.scope.sizes if isinstance(shapes.known[size], Sym)]
        sizes = {name: evaluate(inferred.known[size], {}) for name, size in zip(computation.sizes, free, strict=True)}
        kernels = tuple(one.at(sizes) for one in free_cuda_kernels(computation, options))
        return MappedProgram(program, computation, kernels, sizes)

    @property
    def text(self) -> str:
        """All kernels, for messages."""
        return "\n".join(f"{one.code}// {one.grid} blocks of {one.block}\n" for one in self.kernels)

    def run(self, seed: int = 0, descending: bool = False) -> tuple[Any, bool]:
        """The results for a draw of arguments, and whether a kernel failed."""
        function = self.program.function
        arguments, named = self.program.arguments(function, seed)
        _, tensors = function.bind(arguments, named)
        parameters = [one.name for one in function.scope.function.parameters]
        given = dict(zip(self.computation.operands, (tensors[name] for name in parameters), strict=True))
        for name, buffer in zip(function.results, self.computation.results, strict=True):
            if name in tensors:
                given[buffer] = tensors[name]
        results, failed = run_kernels(self.computation, self.kernels, given, descending=descending, sizes=self.sizes)
        made = tuple(results[name] for name in self.computation.results)
        return function.deliver(made, arguments, named), failed

    def check(self, seed: int = 0, descending: bool = False) -> None:
        """Fail unless the results are those of NumPy."""
        arguments, named = self.program.arguments(self.program.function, seed)
        made, failed = self.run(seed, descending)
        try:
            assert not failed
            check_equal(made, self.program.reference(*arguments, **named))
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.program.source}\n{self.text}") from error


def emulated(programs: Sequence[Right], options: GpuMapping, is_free: bool = False) -> list[MappedProgram]:
    """Programs mapped to a GPU, their kernels compiled together."""
    made = [MappedProgram.of(one, options, is_free) for one in programs]
    build([kernel for one in made for kernel in one.kernels])
    return made
