"""The end of a process in which a solver was left to end by itself."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]

#: HiGHS is asked to stop long before its own limit, and given no time to hear it.
LEFT_RUNNING = """
import random, threading, time
from eqsat.extract import solve
from eqsat.extract.problem.problem import Problem, ProblemNode
from eqsat.extract.solvers import highs

highs.GRACE = -100.0
draw, count = random.Random(1), 400


def operands(k):
    return tuple((one, 0) for one in sorted({draw.randrange(max(0, k - 30), k) for _ in range(3 if k else 0)}))


nodes = [ProblemNode(k, operands(k), draw.random()) for k in range(count) for _ in range(4)]
names = []
for attempt in range(20):  # the stop may also be heard between two runs of HiGHS
    end = time.monotonic() + 1.5 + attempt / 10
    solve(Problem(nodes, [(count - 1, 0)]), time_limit=100.0, should_stop=lambda: time.monotonic() > end)
    names = [thread.name for thread in threading.enumerate()]
    if "highs" in names:
        break
print(names)
"""


def test_a_process_ends_well_while_a_solver_does_not_hear_that_it_should_stop() -> None:
    done = subprocess.run([sys.executable, "-c", LEFT_RUNNING], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "['MainThread', 'highs']\n"
