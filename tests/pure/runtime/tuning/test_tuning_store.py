"""The persistent cache of tuned kernels: one process, several, and damaged files."""

import json
import os
import sqlite3
import subprocess
import sys
import threading
import warnings
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from eqsat.errors import UsageError
from eqsat.runtime.tuning.candidate import TuningCandidate
from eqsat.runtime.tuning.records import KernelEntry, KernelKey
from eqsat.runtime.tuning.store import TUNING_VARIABLE, KernelCache, tuning_file
from tests.support.kernel_cache_writer import SHARED, entry, own

ROOT = Path(__file__).parents[4]
WRITER = ROOT / "tests" / "support" / "kernel_cache_writer.py"
KEY = KernelKey("def f(p0)", "f32[128,32]", "cuda", "sm_90 nvrtc 13.0")
OPTIONS = {"tile": (32, 8), "unroll": 4, "shared": True, "fusion": "max", "seed": None, "ratio": 0.1}
FAST, SLOW = (
    KernelEntry(TuningCandidate(OPTIONS), 1e-5, "fast"),
    KernelEntry(TuningCandidate({"tile": (1,)}), 2e-5, "slow"),
)


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cache" / "tuning.sqlite3"


def test_an_entry_is_there_in_another_session_as_it_was_put(path):
    with KernelCache(path) as cache:
        assert cache.get(KEY) is None and cache.best(KEY) is None
        assert cache.put(KEY, FAST)
    with KernelCache(path) as cache:
        assert cache.get(KEY) == FAST and cache.best(KEY) == TuningCandidate(OPTIONS)
        assert cache.entries() == {KEY: FAST}


@pytest.mark.parametrize("field", ["text", "shapes", "target", "architecture"])
def test_another_text_shape_target_or_architecture_misses(path, field):
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
        assert cache.get(KernelKey(**{**vars(KEY), field: "another"})) is None


def test_a_slower_entry_never_replaces_a_faster_one(path):
    with KernelCache(path) as cache:
        assert cache.put(KEY, SLOW) and cache.put(KEY, FAST)
        assert not cache.put(KEY, SLOW) and not cache.inject(KEY, {"tile": (2,)}, FAST.seconds)
        assert cache.get(KEY) == FAST


def test_options_and_code_of_ones_own_can_be_injected(path):
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
        assert cache.inject(KEY, {"tile": (64,)}, 1e-6, "by hand")
        assert cache.get(KEY) == KernelEntry(TuningCandidate({"tile": (64,)}), 1e-6, "by hand")
        with pytest.raises(UsageError, match="tile"):
            cache.inject(KEY, {"tile": [64]}, 1e-7)


@pytest.mark.parametrize("seconds", [0, -1.0, float("nan"), float("inf"), 10**400, True, "1", None])
def test_seconds_that_are_none_are_refused(seconds):
    with pytest.raises(UsageError, match="seconds"):
        KernelEntry(FAST.options, seconds)


@pytest.mark.parametrize("text", ["\ud800", 1, None, b"f"])
def test_a_key_that_utf_8_cannot_state_is_refused(text):
    with pytest.raises(UsageError, match="text = "):
        KernelKey(text, "", "c", "")


def test_the_file_is_named_by_a_variable_or_lies_in_the_cache_of_the_user(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv(TUNING_VARIABLE, raising=False)
    assert tuning_file().name == "tuning.sqlite3" and tuning_file().parent.name == "eqsat"
    monkeypatch.setenv(TUNING_VARIABLE, str(tmp_path / "named"))
    assert tuning_file() == tmp_path / "named"
    with KernelCache() as cache:
        cache.put(KEY, FAST)
    assert (tmp_path / "named").is_file()


def test_a_cache_without_a_file_is_in_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with KernelCache(":memory:") as cache:
        assert cache.put(KEY, FAST) and cache.get(KEY) == FAST
    assert list(tmp_path.iterdir()) == []


def test_exported_entries_are_imported_on_another_machine_where_they_are_faster(path, tmp_path):
    other = KernelKey("g", "é\n\u2028", "c", "")
    with KernelCache(path) as cache, KernelCache(tmp_path / "other") as there:
        cache.put(KEY, FAST)
        cache.put(other, SLOW)
        assert cache.export(tmp_path / "kernels.jsonl") == 2
        there.put(KEY, SLOW)
        there.put(other, FAST)
        assert there.import_(tmp_path / "kernels.jsonl") == 1
        assert there.entries() == {KEY: FAST, other: FAST}
        assert there.import_(tmp_path / "kernels.jsonl") == 0
        with KernelCache(tmp_path / "third") as third:
            assert third.import_(tmp_path / "kernels.jsonl") == 2
            assert third.entries() == cache.entries()


LINE = {**vars(KEY), "options": {"tile": [1]}, "seconds": 1e-9, "payload": ""}


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "{",
        "[1]",
        "\ud800",
        json.dumps({**LINE, "seconds": -1}),
        json.dumps({**LINE, "seconds": float("nan")}),
        json.dumps({**LINE, "seconds": "1"}),
        json.dumps({**LINE, "seconds": 10**400}),
        json.dumps({**LINE, "options": {"tile": [[[1]]]}}),
        json.dumps({**LINE, "options": []}),
        json.dumps({**LINE, "payload": None}),
        json.dumps({**LINE, "text": "\ud800"}),
        json.dumps({**LINE, "more": 1}),
        json.dumps({name: value for name, value in LINE.items() if name != "target"}),
        "[" * 100_000,
        '{"format": "eqsat tuned kernels", "version": 1}',
    ],
)
def test_a_bad_line_is_named_and_nothing_is_imported(path, tmp_path, bad):
    lines = ['{"format": "eqsat tuned kernels", "version": 1}', json.dumps(LINE), bad, json.dumps(LINE)]
    file = tmp_path / "kernels.jsonl"
    file.write_bytes("\n".join(lines).encode(errors="surrogatepass"))
    with KernelCache(path) as cache:
        with pytest.raises(UsageError) as error:
            cache.import_(file)
        assert error.value.where == f"{file}:3" and cache.entries() == {}


@pytest.mark.parametrize("content", ["", json.dumps(LINE), '{"format": "eqsat tuned kernels", "version": 2}'])
def test_a_file_of_another_format_is_refused(path, tmp_path, content):
    file = tmp_path / "kernels.jsonl"
    file.write_text(content)
    with KernelCache(path) as cache, pytest.raises(UsageError, match=r"kernels\.jsonl:1"):
        cache.import_(file)


def test_a_file_that_cannot_be_read_or_written_is_a_usage_error(path, tmp_path):
    with KernelCache(path) as cache:
        with pytest.raises(UsageError, match="cannot be read"):
            cache.import_(tmp_path / "none")
        with pytest.raises(UsageError, match="cannot be written"):
            cache.export(tmp_path / "none" / "kernels.jsonl")


def writers(path, count, places):
    """Run so many processes at once that write one cache."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    processes = [
        subprocess.Popen(
            [sys.executable, str(WRITER), str(path), str(number), str(places)],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(count)
    ]
    for process in processes:
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [(process.communicate(timeout=120)[1], process.returncode) for process in processes] == [("", 0)] * count


def test_processes_that_write_at_once_lose_nothing_and_the_fastest_entry_stays(path):
    writers(path, 3, 25)
    with KernelCache(path) as cache:
        expected = {own(number, place): entry(number, place) for number in range(3) for place in range(25)}
        assert cache.entries() == {**expected, SHARED: entry(2, 24)}


def test_processes_that_find_a_damaged_file_at_once_lose_nothing_of_their_own(path):
    path.parent.mkdir()
    path.write_bytes(b"no database" * 1000)
    writers(path, 3, 25)
    with KernelCache(path) as cache:
        assert len(cache.entries()) == 3 * 25 + 1
    aside = list(path.parent.glob("*.damaged-*"))
    assert [one.read_bytes() for one in aside] == [b"no database" * 1000]


def test_threads_share_one_cache(path):
    with KernelCache(path) as cache:
        threads = [
            threading.Thread(target=lambda n=number: [cache.put(own(n, place), entry(n, place)) for place in range(20)])
            for number in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(cache.entries()) == 60


def test_a_forked_process_has_a_connection_of_its_own(path):
    with KernelCache(path) as cache:
        cache.put(KEY, SLOW)
        child = os.fork()
        if child == 0:
            os._exit(0 if cache.put(KEY, FAST) else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert cache.get(KEY) == FAST


@pytest.mark.parametrize("content", [b"garbage", b"garbage" * 4096, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_file_that_is_no_database_is_set_aside_and_kept(path, content):
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match=r"damaged.*tuning.sqlite3.damaged-1; 0 of its entries"):
        cache = KernelCache(path)
    with cache:
        assert cache.put(KEY, FAST) and cache.get(KEY) == FAST
    assert path.with_name("tuning.sqlite3.damaged-1").read_bytes() == content
    with KernelCache(path) as again:
        assert again.get(KEY) == FAST


def filled(path, count=200):
    """A cache of so many entries, on several pages."""
    with KernelCache(path) as cache:
        assert cache.import_(exported(path, count)) == count


def exported(path, count):
    file = path.with_name("filled.jsonl")
    header = '{"format": "eqsat tuned kernels", "version": 1}'
    lines = [json.dumps({**LINE, "text": f"kernel {number:03}", "payload": "x" * 100}) for number in range(count)]
    file.write_text("\n".join([header, *lines]))
    return file


def test_undamaged_entries_of_a_truncated_file_are_kept(path):
    filled(path)
    with path.open("r+b") as file:
        file.truncate(path.stat().st_size * 2 // 3 // 4096 * 4096)
    with pytest.warns(RuntimeWarning, match="damaged"), KernelCache(path) as cache:
        kept = cache.entries()
        assert 100 < len(kept) < 200
    with KernelCache(path) as cache:
        assert cache.entries() == kept and cache.put(KEY, FAST)


def test_a_file_that_is_damaged_while_it_is_open_is_set_aside(path):
    filled(path)
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
        path.write_bytes(b"\xff" * path.stat().st_size)
        with pytest.warns(RuntimeWarning, match="damaged"):
            assert cache.get(KEY) is None
        assert cache.put(KEY, FAST) and cache.get(KEY) == FAST


def test_a_damaged_entry_is_missing_and_gives_way_to_a_slower_one(path):
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE kernels SET seconds = 1e-9")
    connection.close()
    with KernelCache(path) as cache:
        assert cache.get(KEY) is None and cache.entries() == {}
        assert cache.put(KEY, SLOW) and cache.get(KEY) == SLOW


def test_a_file_that_is_removed_or_replaced_while_it_is_open_is_opened_anew(path):
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
        path.unlink()
        assert cache.get(KEY) is None
        assert cache.put(KEY, SLOW)
        with KernelCache(path) as other:
            assert other.get(KEY) == SLOW


def test_an_entry_is_not_lost_if_the_file_is_moved_while_it_is_put(path):
    class Moving(TuningCandidate):
        """Options that move the file when their text is asked for, which is within the transaction."""

        @property
        def text(self):
            if path.exists() and armed:
                armed.clear()
                path.replace(path.with_name("moved"))
            return '{"tile":4}'

        @text.setter
        def text(self, value):
            pass

    armed = [True]
    with KernelCache(path) as cache:
        cache.put(KEY, SLOW)
        assert cache.put(KEY, KernelEntry(Moving({"tile": 4}), 1e-6))
        assert not armed
    with KernelCache(path) as cache:
        assert cache.get(KEY) == KernelEntry(TuningCandidate({"tile": 4}), 1e-6)


def test_the_file_of_another_program_is_refused_and_left_alone(path):
    path.parent.mkdir()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    connection.close()
    before = path.read_bytes()
    with pytest.raises(UsageError, match="another program") as error:
        KernelCache(path)
    assert TUNING_VARIABLE in error.value.remedy and path.read_bytes() == before


def test_a_file_of_a_later_version_is_left_alone(path):
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()
    before = path.read_bytes()
    with pytest.warns(RuntimeWarning, match="format 2, of a later version"):
        cache = KernelCache(path)
    assert cache.put(KernelKey("g", "", "c", ""), SLOW) and path.read_bytes() == before


def test_where_no_file_can_be_made_entries_are_in_memory(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.warns(RuntimeWarning, match="in memory only"):
        cache = KernelCache(tmp_path / "file" / "tuning.sqlite3")
    with cache:
        assert cache.put(KEY, FAST) and cache.get(KEY) == FAST


@contextmanager
def without_rights():
    """A user who may not write where modes say so, as root may everywhere."""
    user = os.geteuid()
    os.seteuid(65534 if user == 0 else user)
    try:
        yield
    finally:
        os.seteuid(user)


def test_a_file_that_can_only_be_read_is_read():
    with TemporaryDirectory() as name:
        folder = Path(name)
        path = folder / "tuning.sqlite3"
        with KernelCache(path) as cache:
            cache.put(KEY, FAST)
        path.chmod(0o444)
        folder.chmod(0o555)
        try:
            with without_rights(), KernelCache(path) as cache:
                assert cache.get(KEY) == FAST
                with pytest.warns(RuntimeWarning, match="in memory only"):
                    assert cache.put(KernelKey("g", "", "c", ""), SLOW)
                assert cache.get(KEY) == FAST and len(cache.entries()) == 2
        finally:
            folder.chmod(0o755)


def test_a_full_disk_keeps_entries_in_memory(path):
    """A file that may not grow, as on a full disk."""
    with KernelCache(path) as cache:
        cache.put(KEY, FAST)
    with KernelCache(path) as cache:
        large = KernelEntry(FAST.options, 1e-6, "x" * 5_000_000)
        with file_size_limit(200_000), pytest.warns(RuntimeWarning, match="in memory only"):
            assert cache.put(KernelKey("g", "", "c", ""), large)
        assert cache.get(KEY) == FAST and len(cache.entries()) == 2
    with KernelCache(path) as cache:
        assert cache.entries() == {KEY: FAST}


class file_size_limit:  # noqa: N801 - a context manager
    def __init__(self, size):
        self.size = size

    def __enter__(self):
        import resource
        import signal

        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.size, self.before[1]))

    def __exit__(self, *raised):
        import resource
        import signal

        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)
