"""An operator that eqsat lacks: declared, found rules with, proved, optimised with and written, as the page says."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import follow, surroundings

ROOT = Path(__file__).parents[3]

#: The equation by which the page's example moves a transposition.
TURNED = [["outer(transpose(x, perm=(1, 0)), y)"], ["transpose(outer(x, y), perm=(1, 0, 2))"]]

FOUND = """
import json, sys
import my_ops
from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings, generate
from eqsat.rewrites.discovery.prune import prune
from eqsat.rewrites.discovery.equations.candidate import verified_rules
from eqsat.rewrites.discovery.verification import verify_candidates
from eqsat.rewrites.rules.loader import laws

generated = generate(GenerationSettings(ops=("swish_gate", "mul"), max_ops=2))
names = {"swish_gate", "mul", "sigmoid"}
known = [law for law in laws() if law.operators() <= names]
outcomes = list(verify_candidates(generated.candidates, known, everything=True))
verified = verified_rules(outcomes)
pruned = prune([rule for rule, _ in verified.values()], known)
print(json.dumps({
    "candidates": [[c.left, c.right] for c in generated.candidates],
    "rules": [rule.text for rule, _ in verified.values()],
    "evidence": [[found.verdict, found.entailed, found.laws] for _, found in verified.values()],
    "kept": [rule.text for rule in pruned.kept],
}))
"""

OPTIMISED = """
import json, sys
import numpy as np
import eqsat, my_ops

g = eqsat.Graph("own")
x, y, z = g.input("x", (4, 8)), g.input("y", (8,)), g.input("z", (8,))
g.output("turned", eqsat.transpose(eqsat.outer(x, y), (1, 0, 2)))
g.output("sum", eqsat.outer(y, x[0]) + eqsat.outer(y, z))
g.output("gate", eqsat.swish_gate(x * 2.0, x))
result = eqsat.optimize(g, rules=sys.argv[1:] or None, finite_math=True, measure=False, table="costs.sqlite3")
rng = np.random.default_rng(0)
x, y, z = (rng.standard_normal(s).astype(np.float32) for s in ((4, 8), (8,), (8,)))
made = result.run(x=x, y=y, z=z)
wanted = {
    "turned": np.einsum("im,n->min", x, y),
    "sum": np.einsum("m,n->mn", y, x[0] + z),
    "gate": 2 * x / (1 + np.exp(-x)),
}
print(json.dumps({
    "ops": sorted(n.op for n in result.graph.nodes),
    "onnx": sorted(n.op_type for n in result.to_onnx().graph.node),
    "explained": sorted({rule for change in result.explain().changes for rule in change.rules}),
    "report": str(result.report),
    "difference": max(float(np.abs(made[k] - wanted[k]).max()) for k in wanted),
}))
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where the page on declaring operators was followed: my_ops.py, and the rules found with its operators."""
    place = tmp_path_factory.mktemp("own")

    def fewer(step):
        """Keep the equation that the page's example rests on, and those that save an operator: others take longer."""
        if step.startswith("eqsat rules generate"):
            file = place / "candidates.jsonl"
            kept = [r for r in records(file) if [r["left"], r["right"]] == TURNED or r["right"] == ["outer(y, x)"]]
            file.write_text("".join(json.dumps(record) + "\n" for record in kept))

    follow(ROOT / "docs" / "declare-an-operator.md", place, fewer)
    return place


@pytest.fixture(scope="module")
def run(folder):
    """Runs a program where my_ops.py is, and gives what it prints as JSON."""

    def ran(program, *arguments):
        command = [sys.executable, "-c", program, *arguments]
        made = subprocess.run(
            command, cwd=folder, env={**os.environ, **surroundings(folder)}, capture_output=True, text=True
        )
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout.splitlines()[-1])

    return ran


def records(file):
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture(scope="module")
def found(folder, run):
    """Candidates as pairs, rules with their evidence, and what is kept, by the operator they are about."""
    verified = [record for record in records(folder / "verified.jsonl") if record["status"] == "proved"]
    evidence = [e for record in verified for e in record["evidence"]]
    outer = {
        "candidates": [[c["left"], c["right"]] for c in records(folder / "candidates.jsonl")],
        "rules": sorted({text for record in verified for _, _, text in record["rules"]}),
        "evidence": [[e["verdict"], e["entailed"], e["laws"]] for e in evidence],
        "kept": [line for line in (folder / "outer.rules").read_text().splitlines() if " => " in line],
    }
    return {"outer": outer, "swish_gate": run(FOUND)}


@pytest.fixture(scope="module")
def without(run):
    """The graph optimised without the rules that were found."""
    return run(OPTIMISED)


def test_the_generator_finds_rules_with_it(found):
    assert TURNED in found["outer"]["candidates"]
    assert any("swish_gate(mul(" in right for _, (right,) in found["swish_gate"]["candidates"])


def test_the_verifier_proves_them_from_its_laws(found):
    for one in found.values():
        assert one["evidence"]
        assert all(verdict == "proved" and method for verdict, method, _ in one["evidence"])
        assert any(law.startswith(("outer-", "swish_gate-")) for _, _, laws in one["evidence"] for law in laws)


def test_what_pruning_keeps_is_about_it(found):
    for name, one in found.items():
        assert 1 <= len(one["kept"]) <= len(one["rules"])
        assert all(name in rule for rule in one["kept"])


def test_the_optimiser_uses_them_and_the_laws_of_the_index_form(run, without):
    used = run(OPTIMISED, "outer.rules")
    # One outer product of the sum follows from the index form; the transposition moves by the rule found. Both products
    # cost least as products of matrices.
    assert without["ops"].count("matmul") == used["ops"].count("matmul") == 2
    assert any(rule.startswith("outer-over-add") for rule in without["explained"])
    assert any(rule.startswith("transpose-of-outer") for rule in used["explained"])
    for one in (without, used):
        assert one["difference"] < 1e-4
        assert "exact mod" in one["report"]


def test_it_is_written_to_onnx_by_the_law_that_defines_it(without):
    assert not {"outer", "swish_gate"} & {*without["onnx"]}
    # What the gate is written as has a kernel of its own.
    assert "QuickGelu" in without["onnx"]
