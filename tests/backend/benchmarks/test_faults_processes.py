"""Commands that are killed as they run, and several at once; tables are stressed in test_costs_table.py as well."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from benchmarks.faults import crowds, kills
from benchmarks.faults.watch import Watch

SEED = 11


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with Watch(kills.BOUNDS) as made:
        yield made


# At any moment, and as it measures, commands are killed by `python -m benchmarks.faults` alone: they take 30 s.
@pytest.mark.parametrize("number", [1, 3], ids=["as it writes", "as it keeps a journal"])
def test_a_killed_command_leaves_whole_files_and_is_gone_on_with(watch: Watch, number: int) -> None:
    outcome = watch.call(kills.attempt, number, SEED)
    assert outcome.fault is None


@pytest.mark.parametrize("number", [1], ids=["cache"])
def test_processes_that_share_files_lose_and_tear_nothing(watch: Watch, number: int) -> None:
    outcome = watch.call(crowds.attempt, number, SEED)
    assert outcome.fault is None
    assert outcome.came_to != "nothing read"
