"""Claims of operators that proofs for every size use: looked at on grids, not on samples alone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.claims import RESULT


def test_claims_of_operators_hold_on_grids_as_they_do_on_samples(tmp_path: Path) -> None:
    """In a process of their own, since claims are looked at once in each."""
    names = ["gelu", "layer_norm", "avg_pool", "split"]
    command = [sys.executable, "-m", "benchmarks.claims", "--most", "150", "-o", str(tmp_path / "claims.json"), *names]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert run.returncode == 0, run.stderr
    assert "on samples alone: none" in run.stdout
    told = json.loads((tmp_path / "claims.json").read_text())
    assert [record["operator"] for record in told["records"]] == names
    assert told["on samples alone"] == told["without instances"] == []
    assert all(record["instances"] >= 100 for record in told["records"])
    forms = {record["operator"] for record in told["records"] if "follows its index form" in record["holds"]}
    assert {"layer_norm", "avg_pool"} <= forms
    assert [record["operator"] for record in told["records"] if record["sampled"]] == ["split"]


def test_no_claim_was_recorded_to_hold_on_samples_alone() -> None:
    told = json.loads(RESULT.read_text())
    assert told["operators"] >= 140
    assert told["on samples alone"] == told["without instances"] == []
