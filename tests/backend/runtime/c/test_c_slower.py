"""A compiler whose programs are slow: no model is kept in C where ONNX Runtime computes the same graph faster."""

import json
import os
import shutil
import subprocess
import sys

import pytest

#: A compiler that does as it is told, but for optimising.
COMPILER = """#!/bin/sh
exec {cc} "$@" -O0 -fno-tree-vectorize
"""
OPTIMISED = """
import json, sys
import numpy as np
import eqsat
from eqsat.runtime.backend import select

rng = np.random.default_rng(0)
g = eqsat.Graph("gelus")
x = g.input("x", (128, 256))
y = eqsat.transpose(eqsat.transpose(x, (1, 0)), (1, 0)) if sys.argv[1] == "has rivals" else x
for _ in range(2):
    y = eqsat.softmax(eqsat.gelu(y * 2.0), axis=1) + eqsat.tanh(y)
g.output("y", y)
graph = g.build()
result = eqsat.optimize(graph, device="c-cpu", time_limit=60, cache=False)
x = rng.standard_normal((128, 256)).astype(np.float32)
program = select("c").compile(result.graph, threads=1)
program.run({"x": x})
(machine,) = program.machines.values()
wanted = select("numpy").compile(graph).run({"x": x})["y"]
print(json.dumps({
    "difference": float(np.abs(result.run(x=x)["y"] - wanted).max()),
    "launches": [launch.kind for launch in machine.program.launches],
}))
"""


@pytest.mark.parametrize("graph", ["has rivals", "has none"])
def test_a_graph_that_onnx_runtime_computes_faster_is_left_to_it(tmp_path, graph):
    """Compiled without optimisation, C takes several times as long for functions of many elements."""
    script = tmp_path / "slow-cc"
    script.write_text(COMPILER.format(cc=shutil.which("cc") or shutil.which("gcc")))
    script.chmod(0o755)
    places = {"EQSAT_TUNING_CACHE": str(tmp_path / "tuning.sqlite3"), "HOME": str(tmp_path), "CC": str(script)}
    ran = subprocess.run(
        [sys.executable, "-c", OPTIMISED, graph],
        env={**os.environ, **places},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    told = json.loads(ran.stdout.splitlines()[-1])
    assert told["launches"] == ["session"]
    assert told["difference"] < 1e-5
