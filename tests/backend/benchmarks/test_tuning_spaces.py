"""The benchmark of searches on small spaces, on one that is smaller still."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

from benchmarks.tuning_spaces import CASES, main, searched, table


def test_a_space_is_searched_exhaustively_and_by_fewer_evaluations() -> None:
    case = replace(CASES["product 128 x 32 x 256"], shapes=((9, 8), (16, 8)))
    case = replace(case, options={"rows": (1, 6), "vectors": (1, 2), "unroll": (1, 2), "pack": (True,)})
    row = searched("tiny", case)
    assert row["candidates"] == 8
    assert all(3 <= count <= 12 for count in row["evaluations"].values())
    assert min(row["over_best"].values()) >= 1
    assert set(row["found"]["genetic"]) == set(row["best"]) == set(case.options)
    assert table([row]).row_count == 1


def test_an_unknown_case_is_refused() -> None:
    done = CliRunner().invoke(main, ["mlp"])
    assert done.exit_code == 2
    assert "no case 'mlp'; one of product 128 x 32 x 256" in done.output


@pytest.mark.parametrize("name", CASES)
def test_the_spaces_are_small(name: str) -> None:
    count = 1
    for values in CASES[name].options.values():
        count *= len(values)
    assert 100 <= count <= 200
