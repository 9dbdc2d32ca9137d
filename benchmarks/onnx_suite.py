"""ONNX's node tests by outcome: which pass on the operators alone, which with opaque nodes, and why the rest do not.

`python -m benchmarks.onnx_suite [--json FILE]`
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import onnx.backend.test
from rich.console import Console
from rich.table import Table

import eqsat.onnx_backend as backend
from eqsat.errors import EqsatError
from eqsat.language.terms.graph import OPAQUE


class _Seen:
    """ONNX's backend API on eqsat, noting whether the last model had opaque nodes."""

    opaque = False

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> backend.EqsatRep:
        rep = backend.prepare(model, device, **kwargs)
        cls.opaque = any(n.op == OPAQUE for n in rep.graph.nodes)
        return rep

    supports_device = staticmethod(backend.supports_device)


def outcomes() -> dict[str, str]:
    """What became of every node test, by its name."""
    suite = onnx.backend.test.BackendTest(_Seen, __name__).test_cases["OnnxBackendNodeModelTest"]
    found: dict[str, str] = {}
    for name in sorted(n for n in dir(suite) if n.startswith("test_") and n.endswith("_cpu")):
        plain = name.removesuffix("_cpu")
        reason = backend.exclusion(plain)
        if reason is not None:
            found[plain] = f"excluded: {reason}"
            continue
        _Seen.opaque = False
        try:
            suite(name).debug()
        except (AssertionError, TypeError, EqsatError) as error:
            found[plain] = f"FAILED: {type(error).__name__}"
            continue
        found[plain] = "passed, with opaque nodes run by onnx.reference" if _Seen.opaque else "passed, operators alone"
    return found


def main() -> int:
    """Prints the table; exit code 1 where a test fails that is not excluded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, help="write outcomes and counts to this file")
    options = parser.parse_args()
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = outcomes()
    counts = Counter(found.values())
    table = Table("tests", "outcome", title=f"{len(found)} node tests, onnx {onnx.__version__}")
    for outcome, count in counts.most_common():
        table.add_row(str(count), outcome)
    Console().print(table)
    print(f"{time.perf_counter() - start:.1f} s")
    if options.json:
        text = json.dumps({"onnx": onnx.__version__, "counts": counts, "outcomes": found}, indent=1, sort_keys=True)
        options.json.write_text(text + "\n")
    return int(any(o.startswith("FAILED") for o in counts))


if __name__ == "__main__":
    sys.exit(main())
