"""Nothing loads without evidence; false rules are refuted with a counterexample."""

import re
import warnings
from pathlib import Path

import pytest

from eqsat.errors import RuleError, UnsoundRuleError
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules import evidence as records
from eqsat.rewrites.rules.evidence import Evidence, is_current, read_evidence, rule_hash, write_evidence
from eqsat.rewrites.rules.loader import check_rules, load_rules, shipped_evidence, shipped_rules
from eqsat.rewrites.rules.parser import parse_rules

SHIPPED = shipped_rules()
EVIDENCE = shipped_evidence()

#: Rules that look right, some of them published as such; each is false.
FALSE = {
    "merge of grouped convolutions": (
        "r: [conv(x, w, **a) for w in ws] => split(conv(x, concat(*ws, axis=0), **a), axis=1, "
        "sizes=[dim(w, 0) for w in ws]) if all(shape(w)[1:] == shape(ws[0])[1:] for w in ws)"
    ),
    "sum of grouped convolutions": (
        "r: conv(x, v, **a) + conv(y, w, **a) => conv(concat(x, y, axis=1), concat(v, w, axis=1), **a) "
        "if a.activation == 'none', same_shape(x, y), same_shape(v, w)"
    ),
    "pads that do not grow with an enlarged kernel": (
        "r: conv(x, enlarge(w, kernel=k), **a) => conv(x, w, **a) if k == shape(w)[2:] or len(a.pads) > 0"
    ),
    "even kernel enlarged, the border on one side and the pad on the other": (
        "r: conv(x, pad(w, pads=(0, 0, 0, 0, 0, 0, 1, 1), mode='constant', value=0.0), pads=(1, 1, 0, 0), strides=s) "
        "=> conv(x, w, pads=(0, 0, 0, 0), strides=s)"
    ),
    "even kernels as identity": (
        "r: avg_pool(x, **a) => x if a.strides == (1, 1), a.pads == (0, 0, 1, 1), a.kernel == (2, 2), not a.ceil_mode"
    ),
    "relu through a scale of any sign": "r: relu(x * c) => relu(x) * c if is_uniform(c)",
    "a factor dropped": "r: conv(x, w, **a) * y => conv(x, w, **a) if same_shape(conv(x, w, **a), y)",
    "interchange without matching split points": (
        "r: concat(concat(x, y, axis=a), concat(z, w, axis=a), axis=b) => "
        "concat(concat(x, z, axis=b), concat(y, w, axis=b), axis=a) if a != b, dim(x, b) == dim(y, b)"
    ),
    "softmax shifted along its axis": "r: softmax(x + c, axis=k) => softmax(x, axis=k) if spans(x, c)",
    "sum of convolutions under relu": "r: conv(x, v, **a) + conv(x, w, **a) => conv(x, v + w, **a) if same_shape(v, w)",
    "broadcast operand under padding": (
        "r: conv(x, w, **a) + conv(y, w, **a) => conv(x + y, w, **a) if a.activation == 'none'"
    ),
    "concat of sums that broadcast": ("r: concat(x + y, z + w, axis=k) => concat(x, z, axis=k) + concat(y, w, axis=k)"),
    "mean that counts no padding as convolution": (
        "r: avg_pool(x, **a) => conv(x, pool_kernel(channels=dim(x, 1), kernel=a.kernel, dtype=dtype(x)), "
        "strides=a.strides, pads=a.pads, dilations=a.dilations, group=dim(x, 1)) if not a.ceil_mode"
    ),
}


def test_sequences_of_other_lengths_in_step_refute_a_rule() -> None:
    text = (
        "r: concat(concat(*xs, axis=0), concat(*ys, axis=0), axis=1) => "
        "concat(*[concat(x, y, axis=1) for x, y in zip(xs, ys)], axis=0) if rank(xs[0]) == 2, rank(ys[0]) == 2"
    )
    (rule,) = parse_rules(text, origin="candidate")
    evidence = check(rule)
    assert evidence.verdict == "refuted"


def test_every_published_law_is_stated() -> None:
    assert {law for rule in SHIPPED for law in rule.laws} >= set(range(1, 45))


def test_every_shipped_rule_has_current_evidence_of_both_kinds() -> None:
    stale = [r.name for r in SHIPPED if not is_current(r, EVIDENCE.get(r.name))]
    assert not stale, f"run `eqsat rules verify`: {stale[:10]}"
    thin = [e.name for e in EVIDENCE.values() if e.symbolic < 2 or e.numeric < 3]
    assert not thin


def test_all_shipped_rules_load() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(load_rules(trust="bounded")) == len(SHIPPED)
        # Those that are not proved for every size take no part unless they are trusted.
        assert len(load_rules()) == sum(one.is_for_every_size for one in EVIDENCE.values()) < len(SHIPPED)


@pytest.mark.parametrize("rule", SHIPPED[:: max(1, len(SHIPPED) // 40)], ids=lambda r: r.name)
def test_evidence_can_be_made_again(rule) -> None:
    record = check(rule, Effort(numeric=10, symbolic=2), seed=1)
    assert record.verdict == "proved", record.detail


@pytest.mark.parametrize("text", FALSE.values(), ids=FALSE.keys())
def test_false_rules_are_refuted_with_a_counterexample(text: str) -> None:
    (asked,) = parse_rules(text, origin="candidate")
    record = check(asked)
    assert record.verdict == "refuted"
    assert re.search(r"differ|does not type", record.detail)
    assert "float64[" in record.detail


def test_symbolic_check_alone_refuses_what_it_cannot_settle() -> None:
    (record,) = check_rules("r: tanh(x) => tanh(x) + (erf(x) - sin(x) * x - erf(x) + x * sin(x)) if finite(x)")
    assert record.verdict == "proved"
    (wrong,) = check_rules("r: erf(x) => tanh(x)")
    assert wrong.verdict == "refuted"


def test_a_rule_without_instances_is_undecided_not_proved() -> None:
    (record,) = check_rules("r: relu(x) => x if rank(x) == 9")
    assert (record.verdict, record.numeric) == ("undecided", 0)


def test_a_users_rule_is_checked_before_it_loads(tmp_path: Path) -> None:
    path = tmp_path / "mine.rules"
    path.write_text("mine: relu(neg(relu(neg(relu(x))))) => relu(-relu(-relu(x)))\n")
    assert load_rules([path])[-1].name == "mine"
    with pytest.raises(UnsoundRuleError, match=r"rule 'bad' is false.*\n.*sides that are equal"):
        load_rules(["bad: relu(-x) => -relu(x)"])
    with pytest.raises(RuleError, match="could not be settled"):
        load_rules(["hard: relu(x) => x if rank(x) == 9"])
    with pytest.raises(RuleError, match="cannot be read"):
        load_rules([tmp_path / "none.rules"])


def test_stale_evidence_is_ignored_with_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from eqsat.rewrites.rules import loader

    kept = [e for e in EVIDENCE.values() if e.name != SHIPPED[0].name]
    changed = Evidence(SHIPPED[0].name, "0" * 24, "proved", 24, 80, ranks=4)
    write_evidence([*kept, changed], tmp_path / "evidence.jsonl")
    monkeypatch.setattr(loader, "shipped_evidence", lambda: read_evidence(tmp_path / "evidence.jsonl"))
    loader.rules_with_evidence.cache_clear()
    try:
        with pytest.warns(loader.EvidenceWarning, match="eqsat rules verify"):
            assert len(loader.load_rules(trust="bounded")) == len(SHIPPED) - 1
    finally:
        loader.rules_with_evidence.cache_clear()


def test_hash_follows_text_and_operators() -> None:
    (one,) = parse_rules("r: relu(relu(x)) => relu(x)")
    (same,) = parse_rules("other: relu(relu(x)) => relu(x)")
    (more,) = parse_rules("r: relu(relu(x)) => relu(x) if floating(x)")
    assert rule_hash(one) == rule_hash(same) != rule_hash(more)


def test_a_damaged_record_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "evidence.jsonl"
    path.write_text('{"name": "x"}\n')
    with pytest.raises(RuleError, match=r"evidence\.jsonl:1"):
        records.read_evidence(path)


BOUNDED = "pooled: max_pool(x, kernel=(1, 1)) => x"


def test_a_rule_that_is_not_proved_for_every_size_has_to_be_trusted() -> None:
    with pytest.raises(RuleError, match="rule 'pooled' is true of what was tried, and not proved for every size") as no:
        load_rules([BOUNDED])
    assert no.value.remedy == 'take it for true on these grounds with trust="bounded", or restate it'
    assert "pooled" in {rule.name for rule in load_rules([BOUNDED], trust="bounded")}
    # Nothing is trusted that is false.
    with pytest.raises(UnsoundRuleError):
        load_rules(["odd: relu(-x) => -relu(x)"], trust="bounded")
    assert "twice" in {rule.name for rule in load_rules(["twice: relu(relu(x)) => relu(x)"])}
