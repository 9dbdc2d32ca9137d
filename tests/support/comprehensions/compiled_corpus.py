"""All right programs of the corpus compiled to C at once, with options and flags, and held against NumPy."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace

from eqsat.errors import BackendError, UsageError
from eqsat.language.comprehension.extents.free import holds_at, with_free
from eqsat.language.comprehension.extents.ranges import Inferred
from eqsat.language.comprehension.functions import TensorFunction
from eqsat.runtime.c.kernel import CompiledFunction, c_text, computation_of
from eqsat.runtime.c.library import libraries
from eqsat.runtime.kernels.nests.extents import LONGEST
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.printing.c_printer import FunctionText, translation_unit
from tests.support.comprehensions.comprehension_cases import Right, check_equal
from tests.support.comprehensions.comprehension_corpus import RIGHT


def text_of(program: Right, options: MappingOptions, name: str, is_free: bool = False) -> FunctionText:
    """The text of a program for the shapes of its arguments, under a name; with sizes that are free where they may."""
    arguments, named = program.arguments(program.function)
    inferred, tensors = program.function.bind(arguments, named)
    given = [one for one in program.function.scope.updated if one in tensors]
    if is_free:
        inferred = opened(program.function, inferred)
    return c_text(replace(computation_of(program.function, inferred, given), name=name), options)


def opened(function: TensorFunction, inferred: Inferred) -> Inferred:
    """The ranges and shapes of a call with as many sizes free as may be, one after the other."""
    free: list[str] = []
    for size in function.scope.sizes:
        try:
            made = with_free(function, inferred, [*free, size])
        except UsageError:
            continue
        if holds_at(made, inferred, [*free, size], LONGEST):
            free.append(size)
    return with_free(function, inferred, free)


def check_corpus(options: MappingOptions, flags: list[str], is_free: bool = False) -> tuple[int, int]:
    """Run every program in C on two draws of its arguments; how many were held against NumPy, and had free sizes."""
    texts = [text_of(program, options, f"program_{number}", is_free) for number, program in enumerate(RIGHT)]
    unit = translation_unit(texts)
    for program, text in zip(RIGHT, texts, strict=True):
        entry = libraries().entry(unit, text.entry, flags)
        arrays = libraries().entry(unit, text.array_entry, flags, len(text.arguments) + len(text.sizes) + 1)
        for seed in (0, 1):
            function = program.function
            arguments, named = program.arguments(function, seed)
            inferred, tensors = function.bind(arguments, named)
            given = frozenset(one for one in function.scope.updated if one in tensors)
            shapes = opened(function, inferred) if is_free else inferred
            made = CompiledFunction(function, shapes, given, text, entry, arrays).at(inferred).run(tensors)
            try:
                check_equal(function.deliver(made, arguments, named), program.reference(*arguments, **named))
            except (AssertionError, BackendError) as error:
                raise AssertionError(f"{function.name}: {error}\n{text.code}") from error
    return len(texts), sum(bool(text.sizes) for text in texts)


if __name__ == "__main__":
    # The sanitizer is loaded: compilers, and processes in which isl computes, need none.
    os.environ.pop("LD_PRELOAD", None)
    print(*check_corpus(MappingOptions.of(json.loads(sys.argv[1])), sys.argv[3:], json.loads(sys.argv[2])))
