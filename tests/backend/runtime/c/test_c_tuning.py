"""Tuning of kernels in C: the fastest options are found, kept, and taken by every later call."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import eqsat
from eqsat.errors import UsageError
from eqsat.runtime.c.tuned import key_of_kernel, space_of
from eqsat.runtime.tuning.config import TunerConfig
from eqsat.runtime.tuning.store import KernelCache

PRODUCT = "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }"
RENAMED = "def other(float(X,Y) P, float(Z,Y) Q) -> (R) { R(a,b) +=! P(a,c) * Q(b,c) }"


def operands(m: int = 12, k: int = 20, n: int = 24) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    return rng.standard_normal((m, k), dtype=np.float32), rng.standard_normal((n, k), dtype=np.float32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "tuning.sqlite3"
    monkeypatch.setenv("EQSAT_TUNING_CACHE", str(path))
    return path


def test_what_is_found_is_kept_and_taken_under_other_names_and_by_other_processes(cache: Path) -> None:
    a, b = operands()
    config = TunerConfig(generations=2, population=6, elites=1, threads=2)
    tuned = eqsat.autotune(PRODUCT, a, b, config=config, progress=False)
    assert tuned.seconds <= tuned.reference_seconds
    options = dict(tuned.candidate)
    assert eqsat.emit(RENAMED, a, b, options="fastest") == eqsat.emit(RENAMED, a, b, options=options)
    text = eqsat.emit(PRODUCT, a, b, options="fastest")
    assert text == eqsat.emit(PRODUCT, a, b, options=options)
    script = (
        "import numpy as np, eqsat, sys\n"
        f"print(eqsat.emit({PRODUCT!r}, np.ones({a.shape}, 'f'), np.ones({b.shape}, 'f'), options='fastest'), end='')"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], env=dict(os.environ), capture_output=True, text=True, check=True
    )
    assert done.stdout == text
    np.testing.assert_allclose(eqsat.kernel(RENAMED)(a, b), a @ b.T, rtol=1e-4, atol=1e-5)


def test_keys_are_those_of_texts_sizes_and_processors(cache: Path) -> None:
    def key(source: str, *arrays: Any) -> Any:
        functions = eqsat.comprehension(source)
        function = functions[next(iter(functions))]
        return key_of_kernel(function, function.bind(arrays, {})[0])

    a, b = operands()
    assert key(PRODUCT, a, b) == key(RENAMED, a, b)
    assert key(PRODUCT, a, b) != key(PRODUCT, *operands(13))
    assert key(PRODUCT, a, b) != key(PRODUCT.replace("A(m,k) * B(n,k)", "A(m,k) - B(n,k)"), a, b)
    scaled = "def s(int stride, float(N) x) -> (y) { y(i) = x(stride * i) where i in 0:2 }"
    assert key(scaled, 1, np.ones(9, np.float32)) != key(scaled, 2, np.ones(9, np.float32))


def test_a_known_entry_begins_the_search_and_no_slower_one_replaces_it(cache: Path) -> None:
    a, b = operands()
    function = eqsat.comprehension(PRODUCT).tmm
    inferred, _ = function.bind((a, b), {})
    key = key_of_kernel(function, inferred)
    best = next(one for one in space_of(function, inferred, frozenset(), 1).candidates() if one["rows"] == 3)
    with KernelCache() as store:
        store.inject(key, dict(best), 1e-12)
    config = TunerConfig(generations=1, population=3, elites=1)
    tuned = eqsat.autotune(function, a, b, config=config, progress=False, kernel_threads=1)
    assert best in [one.candidate for one in tuned.history]
    with KernelCache() as store:
        assert store.best(key) == best


ROWS = """
def rows(float(B,D) x) -> (m, e, s) {
  m(b) max=! x(b,d)
  e(b,d) = exp(x(b,d) - m(b))
  s(b) +=! e(b,d)
}"""


def test_all_candidates_have_what_a_caller_states(cache: Path) -> None:
    x, asked = operands(9, 33)[0], list[list[str]]()

    def cluster(targets: list[str]) -> list[list[str]]:
        asked.append(targets)
        return [targets[:2], targets[2:]]

    config = TunerConfig(generations=1, population=4, elites=1)
    stated = {"clusters": cluster, "scheduler": "isl", "skewing": False, "constraints": {"proximity": "{ }"}, "rows": 7}
    tuned = eqsat.autotune(ROWS, x, config=config, progress=False, kernel_threads=1, options=stated)
    assert asked == [["m", "e", "s"]]
    tried = [one.candidate for one in tuned.history if one.seconds is not None]
    assert len(tried) >= 3
    for one in tried:
        assert one["clusters"] == (("m", "e"), ("s",)) and one["constraints"] == (("proximity", "{ }"),)
        assert (one["scheduler"], one["skewing"], one["rows"]) == ("isl", False, 7)
    assert eqsat.emit(ROWS, x, options="fastest") == eqsat.emit(ROWS, x, options=dict(tuned.candidate))
    # What is kept with a caller's options is no beginning of a search without them, or with others.
    again = eqsat.autotune(ROWS, x, config=config, progress=False, kernel_threads=1, options={"rows": 2})
    assert all(one.candidate["rows"] == 2 and "clusters" not in one.candidate for one in again.history)
    with pytest.raises(UsageError, match="mapping option 'row'"):
        eqsat.autotune(ROWS, x, config=config, progress=False, options={"row": 2})


def test_schedules_by_isl_are_searched_where_statements_may_share_loops(cache: Path) -> None:
    def space(source: str, *arrays: Any, **fixed: Any) -> Any:
        functions = eqsat.comprehension(source)
        function = functions[next(iter(functions))]
        return space_of(function, function.bind(arrays, {})[0], frozenset(), 1, fixed)

    a, b = operands()
    several = space(ROWS, a)
    assert (several.options["scheduler"], several.options["skewing"]) == (("own", "isl"), (True, False))
    assert not any(one["skewing"] is False for one in islice(several.candidates(), 2000) if one["scheduler"] == "own")
    assert space(PRODUCT, a, b).options["scheduler"] == ("own",)
    assert space(ROWS, a, skewing=False).options["skewing"] == (False,)


def test_the_search_is_genetic_or_random(cache: Path) -> None:
    a, b = operands()
    config = TunerConfig(generations=2, population=4, elites=1)

    def tried(search: Any) -> list[Any]:
        tuned = eqsat.autotune(PRODUCT, a, b, config=config, progress=False, kernel_threads=1, search=search)
        assert tuned.seconds <= tuned.reference_seconds
        return [one.candidate for one in tuned.history]

    assert len(set(tried("random"))) == 8  # no generation has elites
    assert len(set(tried("genetic"))) <= 8
    with pytest.raises(UsageError, match=r"search = 'hill'\n  expected genetic or random"):
        tried("hill")


def test_options_of_another_version_are_passed_over(cache: Path) -> None:
    a, b = operands()
    function = eqsat.comprehension(PRODUCT).tmm
    with KernelCache() as store:
        store.inject(key_of_kernel(function, function.bind((a, b), {})[0]), {"strips": 4}, 1e-9)
    np.testing.assert_allclose(eqsat.kernel(function)(a, b), a @ b.T, rtol=1e-4, atol=1e-5)


def test_ctrl_c_keeps_the_best_so_far(cache: Path) -> None:
    script = (
        "import numpy as np, eqsat, json\n"
        "rng = np.random.default_rng(0)\na, b = (rng.standard_normal((m, 20), dtype=np.float32) for m in (12, 24))\n"
        "print('begun', flush=True)\n"
        f"tuned = eqsat.autotune({PRODUCT!r}, a, b, seconds=300)\n"
        "print(json.dumps([tuned.is_interrupted, len(tuned.history), dict(tuned.candidate)]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "begun\n"
        time.sleep(12)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    interrupted, tried, options = json.loads(out)
    assert interrupted
    assert tried >= 1
    a, b = operands()
    assert eqsat.emit(PRODUCT, a, b, options="fastest") == eqsat.emit(PRODUCT, a, b, options=options)


def test_clusters_that_were_tuned_are_no_error_of_the_same_function_by_other_names():
    x = np.ones(64, np.float32)
    text = "def f(float(N) a) -> (b, c) { b(i) = a(i) * 2.0  c(i) = b(i) + a(i) }"
    config = TunerConfig(generations=1, population=3, elites=1)
    eqsat.autotune(text, x, seconds=2.0, config=config, progress=False, options={"clusters": [["b", "c"]]})
    renamed = "def g(float(M) x) -> (p, q) { p(i) = x(i) * 2.0  q(i) = p(i) + x(i) }"
    for made, factor in zip(eqsat.kernel(renamed)(x), (2, 3), strict=True):
        np.testing.assert_array_equal(made, factor * x)


def test_options_of_a_search_are_by_name():
    with pytest.raises(UsageError, match="options = 'naive'\n  expected options by name"):
        eqsat.autotune("def f(float(N) a) -> (b) { b(i) = a(i) }", np.ones(4, np.float32), options="naive")
