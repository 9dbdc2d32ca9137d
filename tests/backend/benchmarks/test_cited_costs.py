"""The benchmark of cited kernel timings: planes in logarithms, rows held back by shape, worded refusals."""

import numpy as np
import pytest

from benchmarks.cited_costs import Series, errors, held_back, interpolated, main, ratios

GRID = np.array([[2.0**m, 2.0**n, 2.0**k] for m in range(10) for n in range(8) for k in range(8)])


def series(efficiency) -> Series:
    """A series on the grid whose roofline is 1 ms everywhere."""
    roofline = np.full(len(GRID), 1e-3)
    return Series("h200_sxm", "products", "made/1", "", GRID, roofline * efficiency, roofline)


def test_powers_of_sizes_are_met_between_shapes():
    asked = np.array([[3.0, 5.0, 7.0], [90.0, 3.0, 90.0]])
    power = GRID[:, 0] ** 0.3 / GRID[:, 1] ** 0.2
    expected = asked[:, 0] ** 0.3 / asked[:, 1] ** 0.2
    assert interpolated(GRID, power, asked) == pytest.approx(expected, rel=0.02)


def test_a_level_efficiency_is_met_exactly():
    asked = np.array([[3.0, 5.0, 7.0]])
    assert interpolated(GRID, np.full(len(GRID), 1.5), asked) == pytest.approx([1.5], rel=1e-9)


def test_a_pair_that_is_held_back_is_held_back_with_all_of_its_rows():
    mask = held_back(series(np.ones(len(GRID))), (1, 2))
    held = {tuple(pair) for pair in GRID[mask][:, 1:]}
    known = {tuple(pair) for pair in GRID[~mask][:, 1:]}
    assert held
    assert not held & known


@pytest.mark.parametrize("columns", [None, (1, 2)])
def test_errors_are_of_rows_that_the_interpolation_did_not_see(columns):
    # Noise that no neighbour tells of: an error far below it would mean that held rows were known.
    noise = np.exp(np.random.default_rng(1).normal(0, 0.5, len(GRID)))
    found = errors([series(noise)], columns)
    assert 20 < found["rows"] < 150
    assert found["interpolated"]["median"] > 1.2
    assert errors([series(GRID[:, 0] ** 0.3)], columns)["interpolated"]["p90"] < 1.05


def test_misses_count_alike_in_both_directions():
    assert ratios(np.array([2.0, 1.0]), np.array([1.0, 2.0])) == {"median": 2.0, "p90": 2.0, "p99": 2.0, "worst": 2.0}


def test_a_folder_without_timings_is_refused(tmp_path):
    with pytest.raises(SystemExit, match=r"no timings of h200_sxm\n  expected systems/data/h200_sxm/gemm/"):
        main(["--package", str(tmp_path), "--output", str(tmp_path / "out.json")])
    assert not (tmp_path / "out.json").exists()
