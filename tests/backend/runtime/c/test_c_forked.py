"""Programs of C in a child that a process forks: the threads that share their loops are not in it."""

import os
import subprocess
import sys

import pytest

SCRIPT = """
import os
import signal
import sys
import time

import numpy as np

import eqsat
from eqsat.runtime.backend import select

rng = np.random.default_rng(0)


def program():
    g = eqsat.Graph("shared")
    x = g.input("x", (512, 512))
    w = g.constant(rng.standard_normal((512, 512), dtype=np.float32))
    g.output("y", eqsat.softmax(x @ w, axis=1))
    graph = g.build()
    one = select("c").compile(graph, threads=2)
    (machine,) = one.machines.values()
    assert machine.library.threads == 2
    given = {"x": rng.standard_normal((512, 512), dtype=np.float32)}
    wanted = select("numpy").compile(graph).run(given)["y"]
    return lambda: np.testing.assert_allclose(one.run(given)["y"], wanted, rtol=1e-3, atol=1e-5)


def kernel():
    twice = eqsat.kernel("def twice(float(M,N) A) -> (B) { B(i,j) = 2 * A(i,j) }", options={"threads": 2})
    a = np.ones((512, 512), np.float32)
    return lambda: np.testing.assert_array_equal(twice(a), 2 * a)


def in_a_child(run):
    child = os.fork()
    if not child:
        try:
            run()
        except BaseException:
            os._exit(1)
        os._exit(0)
    for _ in range(600):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            assert status == 0, status
            return
        time.sleep(0.05)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise SystemExit("the child hangs")


make = {"program": program, "kernel": kernel}[sys.argv[1]]
run = make()
run()
in_a_child(run)
in_a_child(lambda: make()())  # compiled and loaded there
in_a_child(lambda: in_a_child(run))
run()
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="processes fork on POSIX systems alone")
@pytest.mark.parametrize("what", ["program", "kernel"])
def test_a_child_computes_the_same_on_one_thread(what, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, what], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stdout + done.stderr
