"""Processes that are forked from one that used eqsat: they are told so at once, and end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

START = """
import gc, json, multiprocessing, os, sys
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
TOLD = (
    "process N was forked from one that had used eqsat\n"
    "  expected a process that was started anew: e-graphs use threads, and a fork does not copy them\n"
    "  start it by multiprocessing.get_context('spawn'), or fork before the first use"
)
#: Cases in their order in one process, which loads eqsat once: an expression, and what it gives.
CASES = {
    "os.fork before the first use": ("in_fork(tried) + tried()", "22"),
    "os.fork": ("in_fork(tried)", TOLD),
    "a pool that forks": ("in_pool('fork')", TOLD),
    "os.fork, with an e-graph that the parent holds": ("grown() and in_fork(lambda: str(gc.collect() >= 0))", "True"),
    "os.fork, with an e-graph that the child lets go of": ("in_fork(drop)", "dropped"),
    "a pool that spawns": ("in_pool('spawn')", "2"),
}
MAIN = """
def in_pool(method):
    with multiprocessing.get_context(method).Pool(1) as pool:
        return pool.map(tried, [0])[0]

def grown():
    global e
    e = eqsat.explore(parser.parse_model(TEXT))
    e.grow()
    return True

def drop():
    global e
    del e
    gc.collect()
    return "dropped"

if __name__ == "__main__":
    for expression in sys.argv[1:]:
        print(json.dumps(eval(expression)), flush=True)
"""


def test_a_forked_child_is_told_so_and_never_waits_for_threads_that_it_does_not_have(tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(START + MAIN)
    command = [sys.executable, str(path), *(expression for expression, _ in CASES.values())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    given = [json.loads(line) for line in done.stdout.splitlines()]
    assert dict(zip(CASES, given, strict=False)) == {name: wanted for name, (_, wanted) in CASES.items()}, done.stderr
    assert done.returncode == 0
