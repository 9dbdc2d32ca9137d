"""The generator of rules: what it enumerates, what it finds and leaves out, and how it is run."""

import os
import re
import signal
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from eqsat import cli
from eqsat.errors import ShapeError, UsageError
from eqsat.language.declaration.registry import forget
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate import build, generate, space
from eqsat.rewrites.discovery.enumerate.arithmetic import combined, fingerprints
from eqsat.rewrites.discovery.enumerate.count import Counting
from eqsat.rewrites.discovery.enumerate.domain import DOMAINS, domain
from eqsat.rewrites.discovery.enumerate.forms import forms, taking_part
from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings
from eqsat.rewrites.discovery.equations.candidate import read_candidates
from eqsat.rewrites.rules.parser import parse_rules
from tests.support.enumeration import Closure, brute_force, listed_terms

ROOT = Path(__file__).parents[4]


def generated(ops, inputs, **more):
    return generate.generate(GenerationSettings(ops=tuple(ops.split()), domains=(inputs,), **more))


def equations(made):
    return {(", ".join(c.left), ", ".join(c.right)) for c in made.candidates}


# --- what is enumerated --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ops", "inputs", "most"),
    [
        ("add transpose", "3x3*2", 3),
        ("concat split", "3x3*2", 3),
        ("mul relu split concat", "3x3+scalar", 3),
        ("matmul relu", "3x3", 4),
        ("conv add concat", "1x2x2x2:image*2+2x2x1x1:filter", 3),
    ],
)
def test_graphs_and_terms_are_counted_as_a_listing_counts_them(ops, inputs, most):
    variables = domain(inputs).variables()
    found = forms(ops.split(), variables, len(variables))
    counting = Counting(found, variables, len(variables))
    counted = [counting.counted(n) for n in range(1, most + 1)]
    assert [(c.graphs, c.terms) for c in counted] == brute_force(found, variables, most)


def test_graphs_are_counted_by_hand():
    made = generated("add relu", "3x3*2", max_ops=2)
    # relu of two inputs and sums of four pairs; then every two of these, and one that reads another: relu of it, and
    # sums of it with two inputs either way round and with itself
    assert made.counts["domains"]["3x3*2"]["graphs"] == [6, 6 * 5 // 2 + 6 * (1 + 4 + 1)]


@pytest.mark.parametrize(
    ("ops", "inputs"), [("add transpose", "3x3*2"), ("concat relu", "3x3*2"), ("matmul transpose", "3x3*2")]
)
def test_every_equation_that_a_listing_finds_follows_from_the_candidates(ops, inputs):
    variables = domain(inputs).variables()
    listed = listed_terms(forms(ops.split(), variables, len(variables)), variables, 3)
    closure = Closure(listed, [c for c in generated(ops, inputs).candidates if len(c.left) == 1])
    split = [members for members in listed.classes() if len({closure.find(m) for m in members}) > 1]
    assert len(listed.terms) > 100
    assert not split


def test_fingerprints_do_not_depend_on_the_order_of_outputs_but_on_shapes():
    row = np.arange(6)[None]
    wide, tall = TensorType.of("float32", (2, 3)), TensorType.of("float32", (3, 2))
    one, other = (int(fingerprints(row, t, 0)[0]) for t in (wide, tall))
    assert one != other
    assert combined([one, other]) == combined([other, one])
    assert combined([one, other]) != combined([one, one])


def with_axes(operands, attrs):
    """The type of the first operand, which must have axes."""
    if operands[0].rank == 0:
        raise ShapeError("a scalar has no halves", expected="a tensor with axes")
    return (operands[0],)


def test_operators_take_part_by_being_declared():
    import eqsat

    @eqsat.op("swap_halves", infer=with_axes)
    def swap_halves(xp, x):
        """The two halves of the last axis in the other order."""
        half = x.shape[-1] // 2
        return np.concatenate([x[..., half:], x[..., :half]], axis=-1)

    try:
        assert "swap_halves" in taking_part(None)
        found = equations(generated("swap_halves relu", "2x4*2", max_ops=2))
        assert ("swap_halves(swap_halves(x))", "x") in found
        assert {
            ("relu(swap_halves(x))", "swap_halves(relu(x))"),
            ("swap_halves(relu(x))", "relu(swap_halves(x))"),
        } & found
    finally:
        forget("swap_halves")


def test_images_and_filters_do_not_mix():
    """Of shapes that fit either way, only filters weigh and only images are weighed."""
    shape = "2x2x2x2"
    told = generated("conv relu", f"{shape}:image+2x2x1x1:filter", max_ops=1).counts["domains"].popitem()[1]
    settings = len(spec("conv").instances)
    # relu of both, and the image weighed by the filter
    assert told["graphs"][0] == 2 + settings
    plain = generated("conv relu", f"{shape}+2x2x1x1", max_ops=1).counts["domains"].popitem()[1]
    assert plain["graphs"][0] > told["graphs"][0]
    assert not equations(generated("add", f"{shape}:image+2x2x1x1:filter", max_ops=1))
    assert equations(generated("add", f"{shape}+2x2x1x1", max_ops=1))


def test_a_shape_has_one_role():
    with pytest.raises(UsageError, match=r"\(2, 2\) are both images and filters\n.*one role") as caught:
        domain("2x2:image+2x2:filter")
    assert "other shapes" in str(caught.value)


# --- what is found -------------------------------------------------------------------------------------------------


def test_products_with_a_shared_operand_are_parts_of_one_product():
    found = equations(generated("matmul concat split", "3x3*3"))
    right = "split(matmul(x, concat(y, z, axis=1)), axis=1, sizes=(3, 3))"
    assert ("matmul(x, y), matmul(x, z)", right) in found


def test_convolutions_with_a_shared_input_are_parts_of_one_convolution():
    found = equations(generated("conv concat split", "1x3x2+3x3x1*2"))
    right = "split(conv(x, concat(y, z, axis=0)), axis=1, sizes=(3, 3))"
    assert ("conv(x, y), conv(x, z)", right) in found


def test_the_pooling_kernel_makes_a_depthwise_convolution_an_average():
    found = equations(generated("avg_pool conv pool_kernel", "1x3x4x4+3x1x3x3", max_ops=1))
    kernel = "pool_kernel(channels=3, kernel=(3, 3))"
    pooled = "avg_pool(x, count_include_pad=True, kernel=(3, 3), pads=(1, 1, 1, 1))"
    assert any({f"conv(x, {kernel}, group=3, pads=(1, 1, 1, 1))", pooled} == set(pair) for pair in found)


def test_what_holds_for_relu_alone_is_not_found():
    found = equations(generated("relu neg mul sub", "3x3*1"))
    assert found
    assert not any("mul(relu(x), relu(neg(x)))" in side for pair in found for side in pair)


def test_enlarge_is_applied_to_inputs_only():
    found = equations(generated("enlarge conv relu", "1x3x4x4+3x3x1x1*2", max_ops=2))
    inner = {m for pair in found for side in pair for m in re.findall(r"enlarge\((\w+)[(,]", side)}
    assert inner
    assert inner <= {"x", "y", "z"}


def test_candidates_are_rules_in_the_syntax_of_rules():
    made = generated("add matmul relu transpose concat split eye", "3x3*3")
    assert made.counts["several"]
    for candidate in made.candidates:
        (rule,) = parse_rules(candidate.text, origin="candidate")
        assert rule.tensors == set(candidate.shapes)
        assert max(candidate.left_ops, candidate.right_ops) <= 3


def test_a_fingerprint_is_no_evidence(monkeypatch):
    def colliding(rows, type, seed):
        return np.full(len(rows), type.rank, np.uint64)

    for module in (space, build):
        monkeypatch.setattr(module, "fingerprints", colliding)
    generate.space_of.cache_clear()
    made = generated("add relu", "3x3*2", max_ops=2)
    generate.space_of.cache_clear()
    assert made.counts["domains"]["3x3*2"]["rejected"] > 0
    assert equations(made) <= {("add(x, y)", "add(y, x)"), ("relu(relu(x))", "relu(x)")}


def test_what_floats_do_not_bear_out_is_kept_and_labelled():
    exact = generated("add", "3x3*3", max_ops=2)
    assert exact.candidates
    assert not exact.counts["lossy"]
    strict = generated("add", "3x3*3", max_ops=2, tolerance=0.0)
    assert equations(strict) == equations(exact)
    assert 0 < strict.counts["lossy"] == sum(c.lossy > 0 for c in strict.candidates)


# --- how it is run -------------------------------------------------------------------------------------------------


def test_every_domain_by_name_has_inputs_of_its_own():
    assert len({d.inputs for d in DOMAINS.values()}) == len(DOMAINS)
    named = taking_part(None)
    assert not [n for n in named if all(n in d.without for d in DOMAINS.values())]


class Interrupting(Executor):
    """Runs what it is given at once, and is interrupted after so many."""

    def __init__(self, most):
        self.left = most

    def submit(self, work, /, *given, **named):
        if not self.left:
            raise KeyboardInterrupt
        self.left -= 1
        done = Future()
        done.set_result(work(*given, **named))
        return done


SMALL = GenerationSettings(ops=("add", "matmul", "transpose", "concat"), domains=("3x3*3",))


def test_an_interrupted_run_goes_on_where_it_stood(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "_PART", 2000)
    whole = generate.generate(SMALL).candidates
    folder = tmp_path / "parts"
    script = (
        "import os, signal\n"
        "from eqsat.rewrites.discovery.enumerate import generate as g\n"
        "from pathlib import Path\n"
        "g._PART = 2000\n"
        "def stop(stage, done, total):\n"
        "    if stage.endswith('evaluating') and done == 3: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"g.generate(g.{SMALL!r}, progress=stop, resume=Path({str(folder)!r}))\n"
    )
    killed = subprocess.run([sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert killed.returncode == -signal.SIGKILL
    kept = sorted(folder.glob("*.npz"))
    assert len(kept) == 3
    kept[0].write_bytes(b"cut off")
    seen = []
    again = generate.generate(SMALL, progress=lambda *at: seen.append(at), resume=folder)
    assert again.candidates == whole
    assert not folder.exists()
    evaluated = [(done, total) for stage, done, total in seen if stage.endswith("evaluating")]
    assert [done for done, _ in evaluated] == list(range(1, evaluated[0][1] + 1))


def test_any_executor_serves_and_an_interruption_passes_through(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "_PART", 2000)
    with pytest.raises(KeyboardInterrupt):
        generate.generate(SMALL, executor=Interrupting(2), resume=tmp_path / "parts")
    made = generate.generate(SMALL, executor=Interrupting(1000), resume=tmp_path / "parts")
    assert made.candidates == generate.generate(SMALL).candidates


def test_the_command_writes_the_same_file_for_any_number_of_jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = ["rules", "generate", "--ops", "add,concat,split", "--domain", "3x3*3", "--seed", "3"]
    for jobs in ("1", "2"):
        found = CliRunner().invoke(
            cli.commands, [*given, "--jobs", jobs, "-o", f"{jobs}.jsonl", "--counts", f"{jobs}.json"]
        )
        assert found.exit_code == 0, found.output
        assert "candidates" in found.output
    assert Path("1.jsonl").read_bytes() == Path("2.jsonl").read_bytes()
    assert Path("1.json").read_bytes() == Path("2.json").read_bytes()
    assert list(read_candidates(Path("1.jsonl")))
    assert not list(tmp_path.glob("*.partial"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ops", "ad"], r"--ops: no operator 'ad'\n  expected declared operators\n  did you mean .*add"),
        (["--ops", "tile"], r"--ops: tile takes no part in generation: attribute 'repeats' has neither"),
        (["--max-ops", "0"], r"at most 0 operators\n  expected 1 operator or more"),
        (["--domain", "cubes"], r"no domain 'cubes'\n  expected one of matrices, .*, or inputs such as 3x3\*4\+scalar"),
        (["--import", "wrong.py"], r"wrong.py:1:\d+: syntax: .*\n  expected a Python module"),
        (["--import", "raising.py"], r"raising.py:2: cannot be imported: NameError: name 'foo' is not defined"),
        (["--import", "nowhere.py"], r"nowhere.py: there is no such file"),
        (["--import", "no.such.module"], r"no.such.module: cannot be imported: ModuleNotFoundError"),
        (["-o", "nowhere/c.jsonl"], r"nowhere/c.jsonl: the folder of the target does not exist"),
    ],
)
def test_bad_input_is_named(arguments, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("wrong.py").write_text("def f(:\n")
    Path("raising.py").write_text("x = 1\nfoo()\n")
    found = CliRunner().invoke(cli.commands, ["rules", "generate", "-o", "c.jsonl", *arguments])
    assert isinstance(found.exception, UsageError)
    assert re.search(message, str(found.exception))
    assert not Path("c.jsonl").exists()
