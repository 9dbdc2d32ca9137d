"""False rules that people write: each has a witness on which NumPy finds its sides different."""

import re
from collections import Counter

import pytest

from benchmarks.false_rules import VERDICTS, judged, renamed, table
from benchmarks.rules.witnesses import FalseRule, apart, false_rules, read_false_rules
from eqsat.errors import RuleError

RULES = list(false_rules())
#: Sizes at which people cut are a mistake of their own each, though a literal is all that tells such rules apart.
ABOUT_LITERALS = "sizes"


def one(text: str) -> FalseRule:
    (only,) = read_false_rules(f"%because it is said\n{text}", "kind")
    return only


def test_there_are_twenty_of_each_of_ten_kinds() -> None:
    assert list(Counter(r.kind for r in RULES).values()) == [20] * 10
    assert len({r.rule.name for r in RULES}) == 200


def test_none_is_another_with_other_literals() -> None:
    texts = Counter(re.sub(r"-?\d+(\.\d+)?", "n", r.rule.text) for r in RULES if r.kind != ABOUT_LITERALS)
    assert [text for text, count in texts.items() if count > 1] == []


@pytest.mark.parametrize("false", RULES, ids=lambda r: r.rule.name)
def test_the_witness_differs(false: FalseRule) -> None:
    """ONNX's evaluator and this project's references agree on either side, so that neither's fault is the witness."""
    assert false.difference()
    for theirs, ours in zip(false.computed(), false.references(), strict=True):
        assert not any(map(apart, theirs, ours))


def test_a_witness_that_does_not_differ_is_none() -> None:
    assert one("# witness: x = float32([2, 3])\ntrue: relu(x) => relu(relu(x))").difference() is None
    assert one("# witness: x = float32([2, 3])\nhere: relu(x) => x").difference() is None
    assert one("# witness: x = float32([2, -3])\nhere: relu(x) => x").difference() == "elements"
    assert one("# witness: x = float32([1, nan])\nsame: -(-x) => x").difference() is None
    assert one("# witness: x = float32([inf])\nsigns: -x => x").difference() == "elements"


def test_types_differ_too() -> None:
    assert (
        one("# witness: x = float32[2, 3]\nsum: reduce_sum(x, axes=(0,), keepdims=True) => x").difference() == "types"
    )
    text = "# witness: x = float32[2, 3]\nlong: relu(x) => reshape(x, shape=(dim(x, 0),))"
    assert one(text).difference() == "no types on the right"


def test_a_witness_meets_the_conditions() -> None:
    false = one("# witness: x = float32([inf])\nwrong: x - x => -x if finite(x)")
    with pytest.raises(RuleError, match="does not meet its conditions: may hold an infinity"):
        false.difference()


def test_a_witness_may_have_records_and_sequences() -> None:
    false = one("# witness: xs = (float32[2], float32[3]), k = 0\nnegated: concat(*xs, axis=k) => -concat(*xs, axis=k)")
    assert false.difference() == "elements"
    false = one(
        "# witness: x = float32[1, 2, 1], w = float32[2, 1, 1], a = dict(group=2)\n"
        "negated: conv(x, w, **a) => conv(x, -w, **a) if a.activation == 'none'"
    )
    assert false.witness.attrs["a"]["group"] == 2
    assert false.difference() == "elements"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("%because so\nbare: relu(x) => x", "lacks a witness or a reason"),
        ("# witness: x = float32[2]\nbare: relu(x) => x", "lacks a witness or a reason"),
        ("%because so\n# witness: y = float32[2]\nbare: relu(x) => x", "of other names than the left side"),
        ("%because so\n# witness: x = 3\nbare: relu(x) => x", "is no operand"),
        ("%because so\n# witness: float32[2]\nbare: relu(x) => x", "is not read"),
    ],
)
def test_a_witness_that_is_not_whole_is_refused(text: str, message: str) -> None:
    with pytest.raises(RuleError, match=message):
        list(read_false_rules(text, "kind"))


def test_the_table_counts_verdicts_and_rules_that_load() -> None:
    refuted = one("# witness: x = float32([1, -1])\nwrong: relu(x) => x")
    missed = one(
        "# witness: x = float32([7]), a = float32(0), b = float32(6)\n"
        "six: clip(x, a, b) => relu(x) if is_all(a, 0), is_all(b, 6)"
    )
    records = [judged(r, (), 1.0) for r in (refuted, missed)]
    assert records[0]["prove"]["verdict"] == records[0]["check"]["verdict"] == "refuted"
    assert not records[0]["loads"]
    counts = table(records)
    assert list(counts) == ["kind", "all"]
    assert counts["all"]["load"] == sum(r["loads"] for r in records)
    assert sum(counts["all"]["prove"][verdict] for verdict in VERDICTS) == 2


@pytest.mark.parametrize("false", RULES[::7], ids=lambda r: r.rule.name)
def test_a_renamed_rule_says_the_same_of_other_names(false: FalseRule) -> None:
    rule = false.rule
    other = renamed(rule, 1)
    assert other.name == rule.name
    assert other.tensors == {f"{name}_b" for name in rule.tensors}
    assert other.attrs == {f"{name}_b" for name in rule.attrs}
    assert re.sub(r"_b\b", "", other.text) == rule.text


def test_fields_and_functions_keep_their_names() -> None:
    rule = one(
        "# witness: x = float32[2, 2], k = 1, size = True\nwrong: trilu(x, k=k, upper=size) => x if size, size(x) == k"
    )
    assert renamed(rule.rule, 0).text == "trilu(x_a, k=k_a, upper=size_a) => x_a if size_a, size(x_a) == k_a"
