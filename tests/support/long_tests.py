"""The list of tests that `make test-long` runs and `make test` leaves out, made from the times of a whole run.

`pytest --durations=0 -vv` prints the times: `python -m tests.support.long_tests LOG` writes the list from them.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from fnmatch import fnmatch
from pathlib import Path

LIST = Path(__file__).parents[1] / "long.txt"
#: The seconds, on one of two cores, from which a test is a long one.
SECONDS = 2.0
#: Tests that each change has to pass, however long they take: a user meets first what they are of.
KEPT = (
    "tests/backend/docs/test_docs.py::test_python_on_the_pages_runs*README*",
    "tests/backend/installing/test_first_hour.py::*",
    "tests/backend/commands/test_cli_optimize.py::*",
    "tests/backend/run/test_optimize.py::*",
    "tests/backend/runtime/c/test_c_sanitized.py::*?operators?",
    "tests/backend/runtime/c/test_c_sanitized.py::*?threaded?",
    "tests/backend/runtime/c/test_c_programs.py::*",
    "tests/backend/runtime/c/test_c_corpus.py::*inside_its_arrays?default?",
    "tests/backend/runtime/test_openvino.py::*",
    "tests/backend/precision/test_kernels_on_integers.py::test_the_choice_*",
    "tests/property/runtime/test_c_programs_random.py::*",
    "tests/property/runtime/cuda/test_cuda_programs.py::*",
    "tests/property/run/test_optimize_random.py::test_random_graphs*",
    "tests/pure/test_architecture.py::*",
)
_TIME = re.compile(r"\s*([\d.]+)s (call|setup|teardown)\s+(\S.*)")


def read_list() -> frozenset[str]:
    """The tests of the list: a file of tests, a function with all its parameters, or one test."""
    lines = LIST.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def is_listed(test: str, listed: frozenset[str]) -> str | None:
    """The line of the list that a test falls under, or None."""
    names = (test, test.partition("[")[0], test.partition("::")[0])
    return next((name for name in names if name in listed), None)


def list_long(durations: Iterable[str]) -> list[str]:
    """The list for the lines that pytest prints of durations: a set-up is for all tests of its file."""
    found = set()
    for line in durations:
        if (match := _TIME.fullmatch(line.rstrip("\n"))) is not None and float(match[1]) >= SECONDS:
            test = match[3].strip()
            if not any(fnmatch(test, kept) for kept in KEPT):
                found.add(test.partition("::")[0] if match[2] == "setup" else test)
    return sorted(test for test in found if test.partition("::")[0] == test or test.partition("::")[0] not in found)


if __name__ == "__main__":
    with Path(sys.argv[1]).open(encoding="utf-8") as log:
        tests = list_long(log)
    head = f"# Tests of {SECONDS:g} s or more: `make test-long` runs them. Made by tests/support/long_tests.py.\n"
    LIST.write_text(head + "".join(f"{test}\n" for test in tests), encoding="utf-8")
    print(f"{len(tests)} lines")
