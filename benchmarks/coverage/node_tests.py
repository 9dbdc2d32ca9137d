"""ONNX's node tests, counted: read without an opaque node, correct, and which operators stay opaque."""

from __future__ import annotations

import json
import warnings
from collections import Counter
from typing import Any

from onnx.backend.test.loader import load_model_tests

from benchmarks.onnx_suite import outcomes
from eqsat.commands.opaque import Listing, joined, listing
from eqsat.errors import EqsatError
from eqsat.language.onnx.read.importer import load


def node_tests() -> dict[str, Any]:
    """How many tests there are, how many are read without an opaque node, how many are correct, and what is opaque."""
    found: list[Listing] = []
    tests: Counter[str] = Counter()
    refused: dict[str, str] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        cases = load_model_tests(kind="node")
        for case in cases:
            try:
                one = listing(load(case.model))
            except EqsatError as error:
                refused[case.name] = str(error).splitlines()[0]
                continue
            found.append(one)
            tests.update(entry.name for entry in one.kept)
        became = Counter(outcomes().values())
    opaque = [
        {"operator": entry.name, "tests": tests[entry.name], "nodes": entry.count, "reason": entry.stated()}
        for entry in joined(found).kept
    ]
    return {
        "tests": len(cases),
        "without an opaque node": sum(not one.kept for one in found),
        "correct": sum(times for outcome, times in became.items() if outcome.startswith("passed")),
        "outcomes": dict(became.most_common()),
        "refused": refused,
        "opaque": sorted(opaque, key=lambda entry: (-entry["tests"], entry["operator"])),
    }


if __name__ == "__main__":
    print(json.dumps(node_tests()))
