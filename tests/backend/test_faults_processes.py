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


@pytest.mark.parametrize(
    "number", range(4), ids=["anywhere", "as it writes", "as it measures", "as it keeps a journal"]
)
def test_a_killed_command_leaves_whole_files_and_is_gone_on_with(watch: Watch, number: int) -> None:
    outcome = watch.call(kills.attempt, number, SEED)
    assert outcome.fault is None


@pytest.mark.parametrize("number", [1, 2], ids=["cache", "commands"])
def test_processes_that_share_files_lose_and_tear_nothing(watch: Watch, number: int) -> None:
    outcome = watch.call(crowds.attempt, number, SEED)
    assert outcome.fault is None
    assert outcome.came_to != "nothing read"
