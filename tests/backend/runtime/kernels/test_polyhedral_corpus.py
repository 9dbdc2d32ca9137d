"""The corpus of comprehensions: every program's loops proved legal under all options."""

from __future__ import annotations

import pytest

from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.polyhedral.legality import check_schedule
from tests.backend.runtime.c.test_c_corpus import WAYS
from tests.support.comprehensions.comprehension_corpus import RIGHT
from tests.support.polyhedral.planted_trees import of_program


@pytest.mark.parametrize("way", WAYS)
def test_the_loops_of_every_program_are_legal(way: str) -> None:
    options = MappingOptions.of(WAYS[way])
    for program in RIGHT:
        check_schedule(of_program(program), options)


@pytest.mark.parametrize("way", ["narrow, along rows", "two threads"])
def test_the_loops_of_every_program_are_legal_for_all_values_of_free_sizes(way: str) -> None:
    options = MappingOptions.of(WAYS[way])
    made = [of_program(program, is_free=True) for program in RIGHT]
    for one in made:
        check_schedule(one, options)
    assert sum(bool(one.sizes) for one in made) > 0.8 * len(made)
