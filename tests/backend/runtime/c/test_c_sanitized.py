"""Operators, forms, regions, compositions and threads in C under AddressSanitizer and UndefinedBehaviorSanitizer."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from eqsat.runtime.c.toolchain import toolchain
from tests.support.c_sanitized import NAMES

ROOT = Path(__file__).parents[4]
#: Behind the flags of programs. Nothing is optimised, so that every access is there to be checked, by calls: text that
#: checks it in place takes the compiler twice as long.
FLAGS = (
    "-O0", "-fsanitize=address,undefined", "-fno-sanitize-recover=all",
    "--param", "asan-instrumentation-with-call-threshold=0",
)  # fmt: skip
#: Programs of each part at least.
PARTS = {"operators": len(NAMES), "regions": 6, "compositions": 6, "threaded": 9, "forms": 70}


def run(part, tmp_path):
    command = toolchain().command
    library = subprocess.run([*command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@" {" ".join(FLAGS)}\n', encoding="utf-8")
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CC": str(compiler),
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "EQSAT_KERNEL_CACHE": str(tmp_path / "kernels"),
        "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
    }
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.c_sanitized", part],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip


@pytest.mark.parametrize("part", PARTS)
def test_no_program_reads_or_writes_beyond_its_memory_or_does_what_c_leaves_undefined(part, tmp_path):
    done = run(part, tmp_path)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert json.loads(done.stdout)[part] >= PARTS[part]


@pytest.mark.parametrize(
    ("fault", "told"), [("read_beyond", "heap-buffer-overflow"), ("shift_too_far", "shift exponent 40 is too large")]
)
def test_a_planted_fault_is_found(fault, told, tmp_path):
    done = run(fault, tmp_path)
    assert done.returncode != 0 and told in done.stderr
