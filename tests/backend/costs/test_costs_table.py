"""The cost table on real files: several processes, killed writers, damage, and folders that refuse."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
import warnings
from dataclasses import replace
from pathlib import Path

import pytest

from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import VARIABLE, CostTable, default_path
from eqsat.errors import CostError
from eqsat.language.terms.types import TensorType

HERE = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
ENTRY = Entry(2e-6, 1e-6, 3e-6, 20)

WRITER = """
import sys
from eqsat.costs.table.environment import Environment
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.table import CostTable
from eqsat.language.terms.types import TensorType
path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
here = Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1)
table = CostTable(path)
for n in range(first, last):
    table.put(here, OpKey.of("relu", {}, [TensorType.of("float32", (n,))], [False], {}), Entry(n, n, n, 1))
    print(n, flush=True)
"""


def key(n: int = 4) -> OpKey:
    return OpKey.of("relu", {}, [TensorType.of("float32", (n,))], [False], {})


def writer(path: Path, first: int, last: int, **more) -> subprocess.Popen:
    command = [sys.executable, "-c", WRITER, str(path), str(first), str(last)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[3], **more)


def test_entries_survive_closing_and_are_replaced(tmp_path):
    path = tmp_path / "deep" / "costs.sqlite3"
    with CostTable(path) as table:
        assert table.get(HERE, key()) is None
        table.put(HERE, key(), Entry(1, 1, 1, 1))
        table.put(HERE, key(), ENTRY)
    with CostTable(path) as table:
        assert table.get(HERE, key()) == ENTRY
        assert table.entries(HERE) == {key().text: ENTRY}


@pytest.mark.parametrize(
    "other",
    [
        Environment("nvidia-h200", "a processor", "onnxruntime 1", 1),
        Environment("onnxruntime-cpu", "another", "onnxruntime 1", 1),
        Environment("onnxruntime-cpu", "a processor", "onnxruntime 2", 1),
        Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 2),
        Environment("onnxruntime-cpu", "a processor", "onnxruntime 1", 1, protocol=99),
    ],
)
def test_another_environment_sees_nothing_of_this_one(other):
    table = CostTable(":memory:")
    table.put(HERE, key(), ENTRY)
    assert table.get(other, key()) is None
    assert table.entries(other) == {}
    assert table.environments() == {HERE.text: 1}


def test_this_machine_is_one_environment_and_tells_its_parts():
    here = Environment.current(threads=3)
    assert here == Environment.current(threads=3)
    assert (here.device, here.threads) == ("onnxruntime-cpu", 3)
    assert here.cpu
    assert here.runtime.startswith("onnxruntime ")


def test_processes_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "costs.sqlite3"
    running = [writer(path, 100 * i, 100 * i + 100) for i in range(3)]
    assert [p.wait(60) for p in running if p.communicate()] == [0, 0, 0]
    with CostTable(path) as table:
        assert sorted(e.seconds for e in table.entries(HERE).values()) == list(range(300))


def test_a_killed_writer_loses_no_entry_it_had_reported(tmp_path):
    path = tmp_path / "costs.sqlite3"
    running = writer(path, 0, 1_000_000)
    reported = [int(running.stdout.readline()) for _ in range(50)]
    os.kill(running.pid, signal.SIGKILL)
    reported += [int(line) for line in running.stdout.read().split("\n")[:-1]]
    running.wait()
    running.stdout.close()
    with CostTable(path) as table:
        kept = sorted(e.seconds for e in table.entries(HERE).values())
        assert kept[: len(reported)] == reported
        assert len(kept) <= len(reported) + 1
        table.put(HERE, key(7_000_000), ENTRY)


def test_writers_killed_at_random_lose_and_tear_nothing_and_readers_never_fail(tmp_path):
    command = [sys.executable, "tests/support/table_stress.py", str(tmp_path / "costs.sqlite3"), "60", "0"]
    root = Path(__file__).parents[3]
    paths = {**os.environ, "PYTHONPATH": str(root)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env=paths, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["missing"], found["torn"], found["failed"], found["integrity"]) == ([], [], [], "ok")
    assert found["entries"] >= found["acknowledged"] > 100
    assert found["reads"] > 10


@pytest.mark.parametrize("content", [b"no database at all, but text " * 99, b"SQLite format 3\x00" + b"\xff" * 4096])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path, content):
    path = tmp_path / "costs.sqlite3"
    path.write_bytes(content)
    with pytest.raises(CostError) as caught:
        CostTable(path)
    assert caught.value.where == str(path)
    assert caught.value.what.startswith("the cost table is damaged: ")
    assert caught.value.remedy == "delete it; `eqsat measure` fills it again"
    assert path.read_bytes() == content


def test_damage_inside_is_found_when_it_is_read(tmp_path):
    path = tmp_path / "costs.sqlite3"
    with CostTable(path) as table:
        for n in range(400):
            table.put(HERE, key(n + 1), ENTRY)
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    data = bytearray(path.read_bytes())
    data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    with pytest.raises(CostError, match=r"the cost table is damaged"), CostTable(path) as table:
        table.entries(HERE)


def test_files_of_other_programs_and_later_formats_are_refused(tmp_path):
    path = tmp_path / "other.sqlite3"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    with pytest.raises(CostError, match="an SQLite file of another program"):
        CostTable(path)
    path = tmp_path / "later.sqlite3"
    CostTable(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(CostError) as caught:
        CostTable(path)
    assert str(caught.value) == (
        f"{path}: a cost table of format 99\n"
        "  expected a cost table of format 1 to 3, which this version of eqsat reads\n"
        "  name another file, by argument or by EQSAT_COST_TABLE, or update eqsat"
    )


def first_format(path):
    """A table as the first version wrote it, without plans and hot times, with one entry."""
    CostTable(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE entries DROP COLUMN plan")
        connection.execute("ALTER TABLE entries DROP COLUMN hot")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO entries VALUES (?, ?, 2e-6, 1e-6, 3e-6, 20)", (HERE.text, key().text))
    connection.close()


def test_a_file_of_the_first_format_is_brought_up_to_date(tmp_path):
    path = tmp_path / "first.sqlite3"
    first_format(path)
    assert CostTable.copy(path).entries(HERE) == {key().text: ENTRY}
    with CostTable(path) as table:
        assert table.get(HERE, key()) == ENTRY
        table.put(HERE, key(5), Entry(1, 1, 1, 1, plan="tile 64", hot=0.5))
    with CostTable(path) as table:
        assert table.get(HERE, key(5)) == Entry(1, 1, 1, 1, "tile 64", 0.5)


def test_a_file_of_the_second_format_keeps_its_plans(tmp_path):
    path = tmp_path / "second.sqlite3"
    CostTable(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("ALTER TABLE entries DROP COLUMN hot")
        connection.execute("PRAGMA user_version = 2")
        connection.execute("INSERT INTO entries VALUES (?, ?, 2e-6, 1e-6, 3e-6, 20, 'x')", (HERE.text, key().text))
    connection.close()
    with CostTable(path) as table:
        assert table.get(HERE, key()) == replace(ENTRY, plan="x")


def test_processes_that_bring_one_file_up_to_date_at_once_all_succeed(tmp_path):
    path = tmp_path / "first.sqlite3"
    first_format(path)
    running = [writer(path, 100 * i, 100 * i + 3) for i in range(6)]
    assert [p.wait(60) for p in running if p.communicate()] == [0] * 6
    with CostTable(path) as table:
        assert len(table.entries(HERE)) == 1 + 6 * 3


def test_the_variable_names_the_file_and_the_argument_overrides_it(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "named.sqlite3"))
    CostTable().close()
    assert (tmp_path / "named.sqlite3").exists()
    assert CostTable(tmp_path / "other.sqlite3").path == str(tmp_path / "other.sqlite3")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    assert default_path().is_relative_to(tmp_path) or sys.platform != "linux"


@pytest.mark.parametrize("home", ["/dev/null", "/proc/none"])
def test_without_a_writable_home_the_default_table_is_kept_in_memory(home, monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    with pytest.warns(RuntimeWarning, match="cannot be written .* kept in memory only"):
        table = CostTable()
    table.put(HERE, key(), ENTRY)
    assert table.get(HERE, key()) == ENTRY


def test_a_file_asked_for_that_cannot_be_made_is_an_error():
    with pytest.raises(CostError, match="the cost table cannot be opened") as caught:
        CostTable("/dev/null/costs.sqlite3")
    assert caught.value.where == "/dev/null/costs.sqlite3"
    assert "name another file" in caught.value.remedy


def in_child(work) -> str:
    """What `work` returns in a forked process, run as another user where this is root, whom no permission stops."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setuid(65534)
            os.write(writing, work().encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return pipe.read()


@pytest.mark.parametrize("folder_mode", [0o755, 0o555])
def test_a_file_that_can_only_be_read_is_read_and_new_entries_stay_in_memory(folder_mode):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "costs.sqlite3"
        with CostTable(path) as table:
            table.put(HERE, key(), ENTRY)
        path.chmod(0o444)
        Path(folder).chmod(folder_mode)

        def read_and_put() -> str:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                table = CostTable(path)
            table.put(HERE, key(5), ENTRY)
            return f"{table.get(HERE, key())} {len(table.entries(HERE))} {[str(w.message) for w in caught]}"

        made = in_child(read_and_put)
        Path(folder).chmod(0o755)
        assert made.startswith(f"{ENTRY} 2 ['{path}: the cost table cannot be written")
        with CostTable(path) as table:
            assert len(table.entries(HERE)) == 1


def test_a_table_crosses_a_fork():
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)
        with CostTable(Path(folder) / "costs.sqlite3") as table:
            for file in Path(folder).iterdir():
                file.chmod(0o666)
            assert in_child(lambda: str(table.put(HERE, key(), ENTRY))) == "None"
            assert table.get(HERE, key()) == ENTRY


def test_a_closed_table_says_so(tmp_path):
    table = CostTable(tmp_path / "costs.sqlite3")
    table.close()
    with pytest.raises(CostError, match="Cannot operate on a closed database"):
        table.get(HERE, key())
