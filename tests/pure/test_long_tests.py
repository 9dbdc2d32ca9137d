"""The list of tests that take long: made from the times of a run, and each of its lines has to be of a test."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.long_tests import is_listed, list_long, read_list

ROOT = Path(__file__).parents[2]
TIMES = """\
============ slowest durations ============
12.31s call     tests/pure/test_a.py::test_rules[norm - x]
1.99s call     tests/pure/test_a.py::test_rules[short]
4.00s setup    tests/pure/test_b.py::test_first
9.00s call     tests/pure/test_b.py::test_second
55.00s call     tests/backend/runtime/c/test_c_sanitized.py::test_no_program[operators]
"""


def test_it_is_made_of_the_times_of_a_run():
    """A set-up is for a whole file; what a user meets first is never left out."""
    assert list_long(TIMES.splitlines(keepends=True)) == [
        "tests/pure/test_a.py::test_rules[norm - x]",
        "tests/pure/test_b.py",
    ]


def test_a_line_is_a_file_a_function_or_a_test():
    listed = frozenset(["tests/a.py", "tests/b.py::test_f", "tests/c.py::test_g[x]"])
    assert is_listed("tests/a.py::test_any[1]", listed) == "tests/a.py"
    assert is_listed("tests/b.py::test_f[1]", listed) == "tests/b.py::test_f"
    assert is_listed("tests/c.py::test_g[x]", listed) == "tests/c.py::test_g[x]"
    assert is_listed("tests/c.py::test_g[y]", listed) is None


def test_each_line_of_the_list_is_of_a_test(unknown_long_tests):
    assert not unknown_long_tests


def test_what_is_listed_runs_with_long_tests_alone():
    """One test of the list, asked for by its name: it is collected, and not where long ones are left out."""
    test = next(line for line in sorted(read_list()) if line.startswith("tests/pure/") and line.endswith("]"))

    def collected(marker: str) -> str:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", marker, test]
        environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment).stdout

    assert test in collected("long")
    assert "1 deselected" in collected("not long")
