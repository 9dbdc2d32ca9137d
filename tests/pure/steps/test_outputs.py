"""Outputs in a lower precision against those of the original."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from eqsat.steps.precision.outputs import ComparedOutputs


def compared(*pairs: tuple[object, object]) -> ComparedOutputs:
    """The comparison of outputs, one on each batch, with what is expected."""
    made = iter([{"y": np.asarray(given, np.float32)} for given, _ in pairs])
    program = SimpleNamespace(run=lambda batch: next(made))
    return ComparedOutputs.of(program, [({}, {"y": np.asarray(wanted)}) for _, wanted in pairs])


@pytest.mark.parametrize(
    ("given", "wanted", "keeps"),
    [
        ([[1, 2], [4, 3]], [[1.0, 3.0], [5.0, 3.0]], True),
        ([[1, 2], [4, 3]], [[1.0, 2.0], [3.0, 4.0]], False),
        ([0, 1e-9], [0.0, 0.0], True),
        ([1, 0.9999999], [0.9999999, 1.0], True),
        ([1, 0.9], [0.999, 1.0], False),
        ([2, 1, -np.inf], [1.0, 2.0, -np.inf], False),
        ([2, 1, np.inf], [2.0, np.inf, 1.0], False),
        (np.zeros((0, 3)), np.zeros((0, 3)), True),
    ],
)
def test_rows_keep_their_largest_elements_but_equal_ones_may_change_places(given, wanted, keeps):
    found = compared((given, wanted))
    assert found.keeps_largest == keeps
    assert found.unranked == 0.0


@pytest.mark.parametrize("shape", [(1, 1, 2, 2), (4, 1), ()])
def test_outputs_without_rows_are_told_by_their_error(shape):
    """Images and other maps, and single numbers: places of largest elements say nothing there."""
    wanted = np.arange(np.prod(shape, dtype=int), dtype=np.float64).reshape(shape) + 1
    found = compared((1.5 * wanted[..., ::-1] if wanted.ndim > 3 else 1.5 * wanted, wanted))
    assert found.keeps_largest
    assert found.unranked == found.errors[0] >= 0.49


def test_labels_are_told_by_the_share_that_differs():
    found = compared(([1, 2, 3, 4], np.int64([1, 2, 3, 5])))
    assert (found.keeps_largest, found.unranked) == (True, 0.25)


def test_every_batch_counts():
    found = compared(([1, 2], [1.0, 2.0]), ([2, 1], [1.0, 2.0]), ([1, 2], [1.0, 2.0]))
    assert not found.keeps_largest
    assert [error > 0 for error in found.errors] == [False, True, False]
