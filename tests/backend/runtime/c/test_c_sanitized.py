"""Forms and operators in C under AddressSanitizer and UndefinedBehaviorSanitizer."""

import os
import subprocess
import sys
from pathlib import Path

from eqsat.runtime.c.toolchain import toolchain

ROOT = Path(__file__).parents[4]
FLAGS = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")


def test_no_program_reads_or_writes_beyond_its_memory_or_does_what_c_leaves_undefined(tmp_path):
    command = toolchain().command
    library = subprocess.run([*command, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    # Flags behind those of programs: what checks every access is not optimised far as well.
    compiler = tmp_path / "cc"
    compiler.write_text(f'#!/bin/sh\nexec {" ".join(command)} "$@" {" ".join(FLAGS)}\n', encoding="utf-8")
    compiler.chmod(0o755)
    environment = {
        **os.environ,
        "CC": str(compiler),
        "LD_PRELOAD": library.stdout.strip(),
        "ASAN_OPTIONS": "detect_leaks=0",
        "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(ROOT),
        "OPENBLAS_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "tests.support.c_graphs"],
        capture_output=True, text=True, check=False, cwd=ROOT, env=environment,
    )  # fmt: skip
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    assert int(done.stdout) > 70
