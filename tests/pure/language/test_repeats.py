"""Runs of equal blocks of any length are found wherever they begin."""

import random

import numpy as np
import pytest

import eqsat
from eqsat.language.graphs.repeats import repeats_of


@pytest.mark.parametrize("length", [12, 16, 17, 37, 90])
@pytest.mark.parametrize("before", [0, 5, 23])
def test_a_run_of_blocks_is_found(length, before):
    draw = random.Random(length)
    kinds = ("relu", "tanh", "sin", "neg", "exp")
    block = ["add", *draw.choices(kinds, k=length - 1)]
    operators = [*draw.choices(kinds, k=before), *block * 5, *draw.choices(kinds, k=11)]
    numbers = np.random.default_rng(length)
    g = eqsat.Graph("g")
    value = g.input("x", (2, 3))
    for operator in operators:
        weights = [numbers.uniform(0.5, 1, (2, 3)).astype(np.float32)] if operator == "add" else []
        value = g.apply(operator, value, *weights)
    g.output("y", value)
    (found,) = repeats_of(g.build())
    assert (found.length, found.count) == (length, 5)
    made = [node.op for k in range(found.count) for node in found.block(k)]
    assert made == operators[found.start : found.start + 5 * length]
