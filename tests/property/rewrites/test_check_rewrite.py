"""check_rewrite refutes false rules by the smallest instance and a program that shows it, and reports on true ones."""

import re
import subprocess
import sys
import textwrap

import pytest

from eqsat.errors import RuleError, UnsoundRuleError, UsageError
from eqsat.rewrites.instances.instance import operands
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.testing import Counterexample, CounterexampleError, check_rewrite

SUM_OF_CONVS = (
    "sum: conv(x, v, **a) + conv(y, w, **a) => conv(concat(x, y, axis=1), concat(v, w, axis=1), **a) if "
    "a.activation == 'none', without(shape(x), 1) == without(shape(y), 1), without(shape(v), 1) == without(shape(w), 1)"
)
#: False rules, and how many elements the operands have in the smallest instance that refutes each.
FALSE = {
    "relu(-x) => -relu(x)": {"x": 1},
    "softmax(x * s, axis=a) => softmax(x, axis=a) * s": {"x": 1, "s": 1},
    "softmax(transpose(x, perm=p), axis=k) => transpose(softmax(x, axis=k), perm=p)": {"x": 2},
    "relu(x * c) => relu(x) * c if is_uniform(c)": {"x": 1, "c": 1},
    "x / c + y / c => (x + y) / c if same_shape(x, y), finite(x, y, c)": {"x": 1, "y": 1, "c": 1},
    "x * c => expand(c, shape=shape(mul(x, c))) if is_all(c, 0), floating(x)": {"x": 1, "c": 1},
    "matmul(x, y) => transpose(matmul(y, x), perm=(1, 0)) if shape(x) == shape(y), rank(x) == 2": {"x": 4, "y": 4},
    SUM_OF_CONVS: {"x": 2, "y": 2, "v": 2, "w": 2},
}


def refutation(rule, **settings) -> CounterexampleError:
    with pytest.raises(CounterexampleError) as caught:
        check_rewrite(rule, **settings)
    return caught.value


def ran(program: str) -> dict[str, str]:
    """What the program prints, in a fresh interpreter that may not use what only tests have."""
    alone = "import sys; sys.modules['hypothesis'] = sys.modules['pytest'] = None\n" + program
    made = subprocess.run([sys.executable, "-W", "error", "-c", alone], capture_output=True, text=True)
    assert made.returncode == 0, made.stderr
    return dict(line.split(" ", 1) for line in made.stdout.splitlines() if " " in line)


@pytest.mark.parametrize("text", FALSE)
def test_a_false_rule_is_refuted_on_the_smallest_shapes(text):
    example = refutation(text, max_examples=60).counterexample
    assert isinstance(example, Counterexample)
    assert {o.name: o.array.size for o in operands(example.bindings)} == FALSE[text]
    made = ran(example.program)
    assert made["left"] != made["right"]


def test_what_only_the_check_draws_is_shown_as_an_instance_too():
    error = refutation(SUM_OF_CONVS, max_examples=1)
    assert {o.name for o in operands(error.counterexample.bindings)} == {"x", "y", "v", "w"}
    assert error.counterexample.bindings.attrs["a"]["group"] == 2
    assert "  left  [[[[" in str(error)


def test_the_message_has_the_rule_the_instance_and_the_program():
    error = refutation("relu(-x) => -relu(x)")
    assert isinstance(error, UnsoundRuleError)
    head, _, program = str(error).partition("\n\n")
    assert head == textwrap.dedent("""\
        <text>:1:7: rule 'rule' is false: float64 differs by 1
          rule: relu(-x) => -relu(x)
          x: float64[] = 1.
          left  0.
          right -1.
          expected sides that are equal wherever the conditions hold
          add the missing condition, or mend a side; this prints what both make:""")
    assert textwrap.dedent(program).strip() == error.counterexample.program
    assert ran(textwrap.dedent(program)) == {"left": "0.0", "right": "-1.0"}


def test_integers_are_tried_where_conditions_allow_them():
    error = refutation("(x + y) / c => x / c + y / c if same_shape(x, y), is_uniform(c), number(c) == 2")
    assert re.search(r"x: u?int\d+\[.*\] = ", str(error))


def test_integers_are_tried_at_their_limits():
    """The least integer is its own absolute value."""
    error = refutation("relu(abs(x)) => abs(x)")
    assert "-9223372036854775808" in str(error)


def test_types_that_differ_refute():
    error = refutation("relu(x + y) => relu(x) if rank(y) == 1, rank(x) == 0")
    assert "rule 'rule' is false: types differ: float64[1] and float64[]" in str(error)
    assert ran(error.counterexample.program) == {"left": "float64[1]", "right": "float64[]"}


def test_a_right_side_that_does_not_type_refutes():
    error = refutation("relu(x) => concat(relu(x), relu(x), axis=rank(x))")
    assert "the right side does not type: axis 0 of float64[]" in str(error)
    made = ran(error.counterexample.program)
    assert made["left"] == "float64[]"
    assert "axis 0 of float64[]" in made["right"]


def test_programs_show_groups_of_siblings_and_several_outputs():
    group = (
        "g: [matmul(x, w) for w in ws] => split(matmul(x, concat(*[-w for w in ws], axis=1)), axis=1, "
        "sizes=[dim(w, 1) for w in ws]) if rank(x) == 2, all(rank(w) == 2 for w in ws)"
    )
    made = ran(refutation(group, max_examples=20).counterexample.program)
    assert made["left_0"] != made["right_0"] or made["left_1"] != made["right_1"]
    made = ran(refutation("two: relu(x), tanh(x) => tanh(x), relu(x)", max_examples=20).counterexample.program)
    assert made["left_0"] == made["right_1"] != made["right_0"]


def test_a_rule_whose_conditions_nothing_meets_is_an_error_that_says_which():
    with pytest.raises(RuleError) as caught:
        check_rewrite("never: relu(x) => relu(x) if rank(x) > 1, rank(x) == 9")
    assert "no instance of rule 'never' meets its conditions" in str(caught.value)
    assert str(caught.value).endswith("never met by operands that the left side takes: rank(x) == 9")
    with pytest.raises(RuleError, match=r"met one at a time, but not together: rank\(x\) == 1 \(\d+ of \d+\), rank"):
        check_rewrite("never: relu(x) => relu(x) if rank(x) == 1, rank(x) == 2")
    with pytest.raises(RuleError, match="no operands drawn fit the left side"):
        check_rewrite("never: transpose(matmul(x, y), perm=(0, 1, 2, 3, 4, 5, 6)) => x")


def test_true_rules_are_reported_with_their_evidence():
    free = "free: x @ y @ z => x @ (y @ z) if wide(x), finite(x, y, z), all(rank(t) >= 2 for t in (x, y, z))"
    report = check_rewrite(f"twice: relu(relu(x)) <=> relu(x)\n{free}", max_examples=40)
    assert report.proved
    assert [c.rule.name for c in report.checked] == ["twice", "twice-inv", "free"]
    assert all(3 <= c.instances <= 40 for c in report.checked)
    assert re.match(r"twice: both sides are equal on \d+ instances; proved by Z3 on \d+\n", str(report))


def test_a_rule_object_is_taken_and_evidence_can_be_left_out():
    (rule,) = parse_rules("swap: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)")
    report = check_rewrite(rule, max_examples=20, prove=False)
    assert not report.proved
    assert report.checked[0].evidence is None
    with pytest.raises(UsageError, match="max_examples = 0"):
        check_rewrite(rule, max_examples=0)


def test_what_cannot_be_settled_is_not_called_proved():
    circle = "circle: sin(x) * sin(x) => fill(shape=shape(x), value=1.0, dtype=dtype(x)) - cos(x) * cos(x) if wide(x)"
    report = check_rewrite(circle, max_examples=10)
    assert not report.proved
    assert re.match(r"circle: both sides are equal on \d+ instances; undecided: ", str(report))


def test_the_same_seed_finds_the_same():
    text = "softmax(x * s, axis=a) => softmax(x, axis=a) * s"
    first, second = (refutation(text, seed=3, max_examples=30).counterexample for _ in range(2))
    assert str(first) == str(second)
    assert first.program == second.program
