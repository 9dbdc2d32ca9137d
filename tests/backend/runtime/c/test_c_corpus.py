"""The corpus of comprehensions in C: the values of NumPy, inside their arrays, without undefined behaviour."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from eqsat.runtime.c.toolchain import toolchain
from tests.support.comprehensions.comprehension_corpus import RIGHT

ROOT = Path(__file__).parents[4]
#: Options that take different ways through the schedules.
WAYS: dict[str, Any] = {
    "naive": "naive",
    "default": {},
    "narrow, along rows": {
        "rows": 3, "vectors": 3, "vector_bytes": 16, "is_column_major": False, "unroll": 4, "fused_rows": 3,
    },
    "nothing shared or packed": {"fusion": "min", "rows": 1, "vectors": 1, "vector_bytes": 64, "pack": False},
    "two threads": {"fusion": "preserve3", "threads": 2, "rows": 2},
    "max by isl": {"scheduler": "isl", "fused_rows": 2},
    "min by isl": {"scheduler": "isl", "fusion": "min"},
    "preserve3 by isl": {"scheduler": "isl", "fusion": "preserve3", "threads": 2, "skewing": False},
}  # fmt: skip
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("way", WAYS)
def test_every_program_computes_what_numpy_does_inside_its_arrays(way: str, tmp_path: Path) -> None:
    assert _checked(way, False, tmp_path) == (len(RIGHT), 0)


@pytest.mark.parametrize("way", ["naive", "narrow, along rows"])
def test_every_program_whose_sizes_are_arguments_does_so_too(way: str, tmp_path: Path) -> None:
    checked, free = _checked(way, True, tmp_path)
    assert checked == len(RIGHT)
    assert free > 0.8 * len(RIGHT)


def _checked(way: str, is_free: bool, tmp_path: Path) -> tuple[int, int]:
    """The programs that were checked in a process of their own, and those of them with free sizes.

    AddressSanitizer watches the arrays of NumPy too, as it stands before all allocations of the process.
    """
    library = subprocess.run(
        [*toolchain().command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    ).stdout.strip()
    options = WAYS[way]
    # The sanitizer does not know the threads of OpenMP, which meet without locks that it sees.
    threads = isinstance(options, dict) and options.get("threads", 1) > 1
    flags = ["-O1", "-fopenmp"] if threads else [*SANITIZED]
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "EQSAT_KERNEL_CACHE": str(tmp_path),
        "ASAN_OPTIONS": "detect_leaks=0:abort_on_error=0",
        **({} if threads else {"LD_PRELOAD": library}),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.support.comprehensions.compiled_corpus",
            json.dumps(options),
            json.dumps(is_free),
            *flags,
        ],
        capture_output=True,
        text=True,
        env=environment,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    checked, free = map(int, done.stdout.split())
    return checked, free
