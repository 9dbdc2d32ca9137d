"""egglog's compiled module is loaded by itself, and is the one that a program finds that imports egglog too."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOADED = """
import sys
from eqsat.egraph import engine
if {first}:
    import egglog
engine.load()
assert ("black" in sys.modules) == ("egglog" in sys.modules) == {first}, "the package is loaded"
import egglog.bindings
assert egglog.bindings.EGraph is engine._bindings().EGraph
engine.Engine().constructor("relu", 1)
egglog.EGraph().check(egglog.i64(1) + 1 == egglog.i64(2))
"""


@pytest.mark.parametrize("first", [False, True])
def test_the_compiled_module_is_loaded_alone_and_once(first: bool) -> None:
    done = subprocess.run([sys.executable, "-c", LOADED.format(first=first)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
