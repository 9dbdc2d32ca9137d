"""Full disks, homes that cannot be written or are not there, clocks that go back; root is stopped as others are."""

from __future__ import annotations

import os
import pwd
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.faults import clocks, places
from benchmarks.faults.watch import Found, Watch
from eqsat.costs.table.table import VARIABLE as TABLE
from eqsat.costs.table.table import CostTable
from eqsat.rewrites.rules.evidence import evidence_path
from eqsat.runtime.cuda.compiler.store import CACHE_VARIABLE, kernel_folder
from eqsat.system.cache import cache_folder


@pytest.fixture(scope="module")
def watch() -> Iterator[Watch]:
    with Watch(places.BOUNDS) as made:
        yield made


@pytest.mark.parametrize(
    ("attempt", "number"),
    [
        pytest.param(places.disk, 0, id="model on a full disk"),
        pytest.param(places.disk, 1, id="table on a full disk"),
        pytest.param(places.disk, 2, id="cache on a full disk"),
        pytest.param(places.read_only, 1, id="home mounted to be read"),
        pytest.param(places.read_only, 8, id="file in the place of a home"),
        pytest.param(places.no_home, 1, id="no home and no such user"),
        pytest.param(clocks.attempt, 1, id="limit of time, clock going back"),
        pytest.param(clocks.attempt, 2, id="cached files of the future"),
    ],
)
def test_commands_and_files_in_places_that_fail_them(
    watch: Watch, attempt: Callable[[int, int, Path], Found], number: int
) -> None:
    outcome = watch.call(attempt, number, 5)
    assert outcome.fault is None


@pytest.mark.parametrize("home", [None, "", "relative/home"])
def test_without_a_home_nothing_is_kept_and_nothing_is_strewn(
    home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(who: int) -> None:
        raise KeyError(who)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("HOME", "XDG_CACHE_HOME", TABLE, CACHE_VARIABLE, "EQSAT_EVIDENCE"):
        monkeypatch.delenv(name, raising=False)
    if home is not None:
        monkeypatch.setenv("HOME", home)
    assert cache_folder() == Path(os.devnull) / "eqsat"
    assert kernel_folder().parent == evidence_path().parent == cache_folder()
    with pytest.warns(RuntimeWarning, match="the cost table cannot be written .* kept in memory only"):
        CostTable().close()
    assert list(tmp_path.iterdir()) == []


def test_a_table_on_a_full_disk_is_read_and_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite's own word for no room; what stands on the disk is still known."""
    import sqlite3

    from eqsat.costs.kernels.key import OpKey
    from eqsat.costs.table import storage
    from eqsat.costs.table.entry import Entry
    from eqsat.costs.table.environment import Environment

    here = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
    path = tmp_path / "costs.sqlite3"
    with CostTable(path, shipped=False) as table:
        table.put(here, OpKey.parse("relu {} float32[4]"), Entry(1e-6, 1e-6, 1e-6, 1))

    def full(_: str) -> None:
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error

    monkeypatch.setattr(storage, "connect", full)
    with pytest.warns(RuntimeWarning, match="disk is full"), CostTable(path, shipped=False) as table:
        assert len(table.entries(here)) == 1
