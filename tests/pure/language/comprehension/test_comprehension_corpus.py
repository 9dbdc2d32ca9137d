"""The corpus: right programs have the values of NumPy, wrong ones the error, its place and its first line."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import ComprehensionError
from tests.support.comprehensions.comprehension_cases import Right, Wrong, check_equal
from tests.support.comprehensions.comprehension_corpus import RIGHT, WRONG


def named(program: Any) -> str:
    text = program.source if isinstance(program, Right) else program.what
    return " ".join(text.split("def ")[-1].split("(")[0].split())


def views(array: Any) -> Any:
    """The same array with other strides: each second element of a larger one, backwards."""
    wide = np.zeros(tuple(2 * extent for extent in array.shape), array.dtype)
    part = wide[(slice(None, None, -2),) * array.ndim]
    part[...] = array
    return part


def test_the_corpus_has_150_programs_and_more() -> None:
    assert (len(RIGHT) >= 100, len(WRONG) >= 50) == (True, True)


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_a_right_program_computes_what_numpy_does(program: Right) -> None:
    function = program.function
    for seed in (0, 1):
        arguments, more = program.arguments(function, seed)
        before = [np.copy(one) for one in arguments]
        made = function(*arguments, **more)
        check_equal(made, program.reference(*arguments, **more))
        for one, other in zip(arguments, before, strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_views_names_and_prepared_outputs_change_nothing(program: Right) -> None:
    function = program.function
    arguments, more = program.arguments(function)
    made = function(*arguments, **more)
    names = [one.name for one in function.scope.function.parameters]
    by_name = {
        name: views(np.asarray(one)) if isinstance(one, np.ndarray) else one
        for name, one in zip(names, arguments, strict=True)
    }
    again = function(**by_name, **more)
    outputs = function.prepare_outputs(*arguments, **more)
    types = function.output_types(*arguments, **more)
    function(*arguments, out=outputs if len(outputs) > 1 else outputs[0], **more)
    results = made if isinstance(made, tuple) else (made,)
    repeated = again if isinstance(again, tuple) else (again,)
    assert list(types) == list(function.results)
    for one, second, out, stated in zip(results, repeated, outputs, types.values(), strict=True):
        assert (stated.dtype.numpy, stated.dims) == (one.dtype, one.shape)
        np.testing.assert_array_equal(one, second)
        np.testing.assert_array_equal(one, out)


@pytest.mark.parametrize("program", RIGHT, ids=named)
def test_results_may_be_written_over_an_argument(program: Right) -> None:
    function = program.function
    arguments, more = program.arguments(function)
    made = function(*arguments, **more)
    if isinstance(made, tuple):
        return
    for position, one in enumerate(arguments):
        if isinstance(one, np.ndarray) and (one.shape, one.dtype) == (made.shape, made.dtype):
            given = [np.copy(other) if isinstance(other, np.ndarray) else other for other in arguments]
            function(*given, out=given[position], **more)
            np.testing.assert_array_equal(given[position], made)


@pytest.mark.parametrize("program", WRONG, ids=lambda program: program.what)
def test_a_wrong_program_ends_in_its_error_at_its_place(program: Wrong) -> None:
    with pytest.raises(ComprehensionError) as caught:
        functions = eqsat.comprehension(program.source)
        assert program.sizes is not None, "it is refused before it is called"
        function = functions[list(functions)[-1]]
        arguments, more = Right(program.source, lambda: None, program.sizes, program.given).arguments(function)
        function(*arguments, **more)
    error = caught.value
    first, line, caret = error.what.split("\n")
    place = error.where.removeprefix("f: ")
    assert (type(error), first, place) == (program.error, program.what, program.place)
    number, column = (int(part.split(" ")[1]) for part in place.split(", "))
    assert line.removeprefix("  ") == program.source.split("\n")[number - 1].rstrip()
    assert caret.index("^") == 2 + column - 1
