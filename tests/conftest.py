"""Settings of all tests: no property test is judged by how long an example takes; no cost comes with eqsat, so that
machines with shipped entries and without see the same; sessions that tests make have one thread unless they say
otherwise."""

import gc
import itertools
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnxruntime
import pytest
from hypothesis import settings

from eqsat import cli
from eqsat.costs.table import shipped
from eqsat.costs.table.table import VARIABLE
from eqsat.runtime.cuda.compiler.store import CACHE_VARIABLE
from tests.support.long_tests import is_listed, read_list

#: The lines of the list of long tests that are of no test that was collected.
UNKNOWN = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests that `make test-long` runs."""
    listed = read_list()
    used = set()
    for item in items:
        if (line := is_listed(item.nodeid, listed)) is not None:
            item.add_marker("long")
            used.add(line)
    options = config.option
    chosen = options.ignore or options.ignore_glob or options.deselect or getattr(options, "lf", False)
    whole = config.args == config.getini("testpaths") and not chosen
    config.stash[UNKNOWN] = sorted(listed - used) if whole else []


@pytest.fixture
def unknown_long_tests(request: pytest.FixtureRequest) -> list[str]:
    """The lines of the list of long tests that are of no test, where all tests are collected."""
    return request.config.stash[UNKNOWN]


def pytest_collection_finish() -> None:
    """Keep the tests themselves out of garbage collection, and collect less often: 6 % of all time is saved."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


#: Numbers of tests, in the order in which a process runs them.
_TESTS = itertools.count()

settings.register_profile("eqsat", settings(), deadline=None)
settings.load_profile("eqsat")


@pytest.fixture(autouse=True, scope="session")
def _nothing_shipped(tmp_path_factory: pytest.TempPathFactory) -> None:
    shipped.FOLDER = tmp_path_factory.mktemp("no-entries")
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


@pytest.fixture(autouse=True, scope="session")
def _kernels_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Kernels that are compiled for tests, most of them drawn at random, do not fill the user's cache."""
    os.environ.setdefault(CACHE_VARIABLE, str(tmp_path_factory.mktemp("kernels")))
    os.environ["EQSAT_TUNING_CACHE"] = str(tmp_path_factory.mktemp("tuning") / "tuning.sqlite3")


@pytest.fixture(autouse=True, scope="session")
def _costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test reads or fills the user's table of costs: the same is measured and estimated on every machine."""
    folder = tmp_path_factory.mktemp("costs")
    os.environ[VARIABLE] = str(folder / "costs.sqlite3")
    return folder


@pytest.fixture(autouse=True)
def _costs_apart(_costs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test chooses by what another one measured: which were run before it depends on the time that they take."""
    monkeypatch.setenv(VARIABLE, str(_costs / f"{next(_TESTS)}.sqlite3"))


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> Iterator[None]:
    """Sessions of ONNX Runtime on one thread: threads that spin while they wait take the other worker's time."""
    session, options = onnxruntime.InferenceSession, onnxruntime.SessionOptions

    def one_thread() -> Any:
        made = options()
        made.intra_op_num_threads = 1
        return made

    def on_one_thread(model: Any, sess_options: Any = None, *given: Any, **more: Any) -> Any:
        return session(model, sess_options or one_thread(), *given, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "SessionOptions", one_thread)
        patch.setattr(onnxruntime, "InferenceSession", on_one_thread)
        yield


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs the command line: its exit code, what it prints, and its error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = cli.run([str(a) for a in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture(autouse=True)
def _ctrl_c() -> Iterator[None]:
    """Python's own handler, which a shell takes away from what it runs in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, empty, with a table of costs of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EQSAT_COST_TABLE", str(tmp_path / "costs.sqlite3"))
    return tmp_path
