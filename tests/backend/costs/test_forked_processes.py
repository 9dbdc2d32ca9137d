"""Processes that are forked from one that used eqsat: they are told so at once, and end."""

from __future__ import annotations

import subprocess
import sys

import pytest

START = """
import gc, multiprocessing, os, sys
import eqsat
from eqsat.errors import UsageError
from onnx import parser

TEXT = '<ir_version: 8, opset_import: ["" : 17]> g (float[4] x) => (float[4] y) { a = Relu(x) b = Relu(a) y = Tanh(b) }'

def optimise(_=None):
    return len(eqsat.optimize(parser.parse_model(TEXT), measure=False).graph.nodes)

def tried(_=None):
    try:
        return str(optimise())
    except UsageError as error:
        return str(error).replace(str(os.getpid()), "N")

def in_fork(call):
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, call().encode())
        sys.exit()
    os.wait()
    return os.read(reader, 1000).decode()
"""
#: What each program prints.
TOLD = (
    "process N was forked from one that had used eqsat\n"
    "  expected a process that was started anew: e-graphs use threads, and a fork does not copy them\n"
    "  start it by multiprocessing.get_context('spawn'), or fork before the first use"
)
PROGRAMS = {
    "os.fork": ("optimise(); print(in_fork(tried))", TOLD),
    "os.fork, with an e-graph that the parent holds": (
        "e = eqsat.explore(parser.parse_model(TEXT)); e.grow(); print(in_fork(lambda: str(gc.collect() >= 0)))",
        "True",
    ),
    "os.fork, with an e-graph that the child lets go of": (
        "e = eqsat.explore(parser.parse_model(TEXT)); e.grow()\n"
        "def drop():\n    global e\n    del e\n    gc.collect()\n    return 'dropped'\n"
        "print(in_fork(drop))",
        "dropped",
    ),
    "os.fork before the first use": ("print(in_fork(tried)); print(tried())", "2\n2"),
    "a pool that forks": (
        "optimise()\nwith multiprocessing.get_context('fork').Pool(1) as pool: print(pool.map(tried, [0])[0])",
        TOLD,
    ),
    "a pool that spawns": (
        "if __name__ == '__main__':\n"
        "    optimise()\n"
        "    with multiprocessing.get_context('spawn').Pool(1) as pool: print(pool.map(tried, [0])[0])",
        "2",
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_forked_child_is_told_so_and_never_waits_for_threads_that_it_does_not_have(
    name: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    program, said = PROGRAMS[name]
    path = tmp_path_factory.mktemp("fork") / "program.py"
    path.write_text(START + program)
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip() == said, done.stderr
    assert done.returncode == 0
