"""Generated C compiled by the package ziglang, where no other compiler is on the path: `make test-zig`."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(importlib.util.find_spec("ziglang") is None, reason="the extra 'c': make test-zig")

ROOT = Path(__file__).parents[4]
SCRIPT = """
import json
import shutil
import numpy as np
import eqsat
from eqsat.runtime.backend import select
from eqsat.runtime.c.toolchain import toolchain
from tests.support.c_programs import assert_same, computed
from tests.support.c_graphs import GRAPHS, inputs_of

assert not [name for name in ("cc", "gcc", "clang") if shutil.which(name)]
kernel = eqsat.kernel("def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }")
a = np.random.default_rng(0).standard_normal((37, 20), dtype=np.float32)
np.testing.assert_allclose(kernel(a, a), a @ a.T, rtol=1e-4, atol=1e-4)
for name in ("conv 3x3", "gemm", "max pool of odd planes"):
    graph = GRAPHS[name]()
    inputs = inputs_of(graph)
    assert_same(graph, computed(graph, inputs)[1], inputs, 3e-6)
    wanted = select("numpy").compile(graph).run(inputs)["y"]
    made = select("c").compile(graph, threads=2).run(inputs)["y"]
    np.testing.assert_allclose(made, wanted, rtol=1e-4, atol=1e-4)
found = toolchain()
print(json.dumps([list(found.command), found.version, found.vector_bytes, found.has_threads]))
"""


def test_kernels_and_programs_compile_with_nothing_but_the_wheel(tmp_path):
    given = {name: value for name, value in os.environ.items() if name != "CC"}
    # Kernels that were compiled before, by whichever compiler, are not there; the compiler's own cache is.
    kept = {
        "ZIG_GLOBAL_CACHE_DIR": str(Path.home() / ".cache" / "zig"),
        "EQSAT_KERNEL_CACHE": str(tmp_path / "kernels"),
    }
    environment = {**given, **kept, "PATH": "", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", SCRIPT]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    command, version, vector_bytes, has_threads = json.loads(done.stdout)
    assert command == [sys.executable, "-m", "ziglang", "cc"] and "clang" in version
    assert vector_bytes in (16, 32, 64) and not has_threads
