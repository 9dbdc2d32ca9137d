"""An operator that eqsat lacks: declared, found rules with, proved, optimised with and written, in a fresh session."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

DECLARED = '''
import eqsat

@eqsat.op(
    index="... m, ... n -> ... m n",
    multilinear=(0, 1),
    laws=["outer(x, y) => reshape(x, shape=shape(x) + (1,)) * reshape(y, shape=shape(y)[:-1] + (1, shape(y)[-1]))"],
)
def outer(xp, x, y):
    """Outer products of the last axes."""
    return xp.einsum("...m,...n->...mn", x, y)

@eqsat.op(pointwise=True, laws=["swish_gate(x, y) => x * sigmoid(y)"])
def swish_gate(xp, x, y):
    """x times the sigmoid of y."""
    return xp.multiply(x, xp.apply("sigmoid", y))
'''

FOUND = """
import json, sys
import my_ops
from eqsat.rewrites.factory.generate import Settings, generate
from eqsat.rewrites.factory.prune import prune
from eqsat.rewrites.factory.outcome import verified_rules
from eqsat.rewrites.factory.verification import verify_candidates
from eqsat.rewrites.loader import laws

generated = generate(Settings(ops=tuple(sys.argv[1].split(",")), max_ops=2))
names = {*sys.argv[1].split(","), "reshape", "transpose", "mul", "sigmoid"}
known = [law for law in laws() if law.operators() <= names]
outcomes = list(verify_candidates(generated.candidates, known, everything=True))
verified = verified_rules(outcomes)
pruned = prune([rule for rule, _ in verified.values()], known)
print(json.dumps({
    "candidates": [" , ".join(c.left) + " == " + " , ".join(c.right) for c in generated.candidates],
    "verified": {rule.text: [found.verdict, found.entailed, *found.laws] for rule, found in verified.values()},
    "kept": [f"%phase {rule.phase}\\n{rule}" for rule in pruned.kept],
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
def run(tmp_path_factory):
    """Runs a program where my_ops.py is, and gives what it prints as JSON."""
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_ops.py").write_text(DECLARED)
    paths = {"PYTHONPATH": os.pathsep.join(map(str, (ROOT, folder))), "EQSAT_EVIDENCE": str(folder / "evidence")}

    def ran(program, *arguments):
        command = [sys.executable, "-c", program, *arguments]
        made = subprocess.run(command, cwd=folder, env={**os.environ, **paths}, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        return json.loads(made.stdout.splitlines()[-1])

    return ran


@pytest.fixture(scope="module")
def found(run):
    return {ops: run(FOUND, ops) for ops in ("outer,transpose", "swish_gate,mul")}


@pytest.fixture(scope="module")
def without(run):
    """The graph optimised without the rules that were found."""
    return run(OPTIMISED)


def test_the_generator_finds_rules_with_it(found):
    assert "outer(transpose(x, perm=(1, 0)), y) == transpose(outer(x, y), perm=(1, 0, 2))" in [
        *found["outer,transpose"]["candidates"]
    ]
    assert any("swish_gate(mul(" in c for c in found["swish_gate,mul"]["candidates"])


def test_the_verifier_proves_them_from_its_laws(found):
    for one in found.values():
        assert one["verified"]
        assert all(verdict == "proved" and method for verdict, method, *_ in one["verified"].values())
        assert any(
            law.startswith(("outer-", "swish_gate-")) for _, _, *laws in one["verified"].values() for law in laws
        )


def test_what_pruning_keeps_is_about_it(found):
    for name, one in found.items():
        assert 1 <= len(one["kept"]) <= len(one["verified"])
        assert all(name.partition(",")[0] in rule for rule in one["kept"])


def test_the_optimiser_uses_them_and_the_laws_of_the_index_form(run, found, without):
    used = run(OPTIMISED, *found["outer,transpose"]["kept"])
    # One outer product of the sum already follows from the index form; the transposition moves by the rule found.
    assert without["ops"].count("outer") == used["ops"].count("outer") == 2
    assert any(rule.startswith("outer-over-add") for rule in without["explained"])
    assert any(rule.startswith("transpose-of-outer") for rule in used["explained"])
    for one in (without, used):
        assert one["difference"] < 1e-4
        assert "exact mod" in one["report"]


def test_it_is_written_to_onnx_by_the_law_that_defines_it(without):
    assert not {"outer", "swish_gate"} & {*without["onnx"]}
    assert "Sigmoid" in without["onnx"]
