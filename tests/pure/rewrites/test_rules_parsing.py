"""The text form of rules: what is refused, and where the error says it is."""

import ast

import pytest

from eqsat.errors import RuleError
from eqsat.rewrites.rules.block import written
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules

#: Names that stand for twice what the one before stands for.
DOUBLED = ", ".join(f"z{n} := z{n - 1} + z{n - 1}" for n in range(1, 26))
REFUSED = [
    ("twice relu(relu(x)) => relu(x)", "f.rules:1:1", "a rule has no name"),
    ("twice: relu(relu(x))", "f.rules:1:7", "rule 'twice' has no arrow"),
    ("r: relu(x) => ", "f.rules:1:14", "an expression is missing"),
    ("r: relu(x) => relu(y)", "f.rules:1:15", "right side uses unbound variable 'y'"),
    ("r: relu(x) => rleu(x)", "f.rules:1:15", "no operator 'rleu'"),
    ("r: gemm(x, y, gama=2.0) => x @ y", "f.rules:1:4", "gemm has no attribute 'gama'"),
    ("r: relu(x, y) => relu(x)", "f.rules:1:4", "relu got 2 operands"),
    ("r: relu(*xs) => relu(x)", "f.rules:1:4", "relu does not take any number of operands"),
    ("r: concat(x, y) => x", "f.rules:1:4", "concat needs attribute 'axis'"),
    ("r: concat(*xs, axis=k) => concat(*ys, axis=k)", "f.rules:1:27", "right side spreads unbound 'ys'"),
    ("r: relu(x) => concat(x, axis=k)", "f.rules:1:15", "an attribute of concat reads unbound 'k'"),
    ("r: relu(x) => x if finte(x)", "f.rules:1:20", "no function 'finte'"),
    ("r: relu(x) => x if finite(y)", "f.rules:1:20", "a condition reads unbound 'y'"),
    ("r: relu(x) => x if (lambda: 1)", "f.rules:1:21", "Lambda is no part of a rule's expressions"),
    ("r: relu(x), relu(y) => relu(x)", "f.rules:1:4", "2 outputs on the left, 1 on the right"),
    ("r: x => relu(x)", "f.rules:1:4", "the left side is a bare variable"),
    ("r: split(x, axis=a, sizes=s) => x", "f.rules:1:4", "split on a left side"),
    ("r: [relu(x) for x in xs] => relu(xs)", "f.rules:1:29", "right side uses unbound variable 'xs'"),
    ("r: [relu(x) for x in xs if x] => relu(y)", "f.rules:1:4", "a list with several loops or a filter"),
    ("r: relu(x) => x ++", "f.rules:1:", "syntax"),
    ("%phase sometimes", "f.rules:1:1", "'%phase sometimes' is no directive"),
    ("%each f in unaries", "f.rules:1:1", "no operator 'unaries'"),
    ("%because", "f.rules:1:1", "'%because' is no directive"),
    ("r: relu(x) => x\nr: abs(x) => x", "f.rules:2:1", "rule 'r' is already there"),
    ("r: relu(x)\n  => relu(\n    y)", "f.rules:2:6", "right side uses unbound variable 'y'"),
    ("r: gemm(x, y, None) => x @ y", "f.rules:1:4", "gemm leaves out an operand that it needs, or its last"),
    ("r: gru(x, None, r, b) => x, h", "f.rules:1:4", "gru leaves out an operand that it needs, or its last"),
    ("r: relu(absent()) => x", "f.rules:1:9", "no operator 'absent'"),
    ("r: None => x", "f.rules:1:4", "'None' is no pattern"),
    ("r: relu(x) => None", "f.rules:1:15", "'None' is no pattern"),
    ("r: relu(x) => y where y", "f.rules:1:23", "'y' names nothing"),
    ("r: relu(x) => y where z := x", "f.rules:1:15", "right side uses unbound variable 'y'"),
    ("r: relu(x) => x, x", "f.rules:1:15", "types differ"),
    (f"r: relu(x) => z25 where z0 := x, {DOUBLED}", "f.rules:1:", "a side or a condition is too large"),
]


@pytest.mark.parametrize(("text", "where", "what"), REFUSED, ids=[r[0][:40] for r in REFUSED])
def test_bad_rules_name_place_and_fault(text: str, where: str, what: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(text, "f.rules")
    assert caught.value.where.startswith(where)
    assert what in caught.value.what


def test_misspelt_operator_gets_a_suggestion() -> None:
    with pytest.raises(RuleError, match="did you mean"):
        parse_rules("r: relu(x) => sigmoidd(x)")


def test_names_stand_for_what_a_side_says_often() -> None:
    short, long = parse_rules(
        "short: x @ w + x @ w => g + g + s where g := x @ w, s := relu(g) - relu(g) if finite(x, w)\n"
        "long: x @ w + x @ w => x @ w + x @ w + (relu(x @ w) - relu(x @ w)) if finite(x, w)"
    )
    assert (short.left, short.right, short.conditions) == (long.left, long.right, long.conditions)
    assert short.text.startswith("x @ w + x @ w => g + g + s where g := x @ w, s := relu(g) - relu(g) if ")
    assert parse_rules(f"again: {short.text}")[0].right == short.right


def test_outputs_of_one_operator_are_said_one_by_one() -> None:
    (rule,) = parse_rules("r: rnn(x, w, r, b, None, h) => reshape(h, shape=(1,) + shape(h)), h", origin="candidate")
    assert rule.parts == 2 and not rule.is_equation and "absent" not in rule.operators()


def test_double_arrow_makes_the_inverse_with_the_same_conditions() -> None:
    there, back = parse_rules("assoc (law 25): x @ (y @ z) <=> (x @ y) @ z if rank(x) == 2")
    assert (there.name, back.name) == ("assoc", "assoc-inv")
    assert there.conditions == back.conditions
    assert there.laws == back.laws == (25,)
    assert there.roots == back.right


def test_a_reason_is_that_of_the_next_rule_each_way_and_for_each_member() -> None:
    rules = parse_rules("""
%because relu is idempotent
twice: relu(relu(x)) => relu(x)
silent: abs(relu(x)) => relu(x)
%because sums
  commute <=> and back
swap: x + y <=> y + x
%because one for both
flip: x * y <=> y * x
%each f in relu abs
%because {f} of {f}
{f}-again: {f}({f}(x)) => {f}(x)
%end
%because it outlives a change of phase
%phase expand
late: neg(neg(x)) => x
""")
    assert {r.name: r.reason for r in rules} == {
        "twice": "relu is idempotent",
        "silent": "",
        "swap": "sums commute",
        "swap-inv": "and back",
        "flip": "one for both",
        "flip-inv": "one for both",
        "relu-again": "relu of relu",
        "abs-again": "abs of abs",
        "late": "it outlives a change of phase",
    }


def test_phase_comments_and_continuation_lines() -> None:
    first, second = parse_rules("""
# nothing
%phase merge
a: [x @ w for w in ws]   # shared left operand
  => split(x @ concat(*ws, axis=1), axis=1, sizes=[dim(w, 1) for w in ws])
  if rank(x) == 2
%phase fuse
b: relu(x) => relu(x)
""")
    assert (first.phase, second.phase) == ("merge", "fuse")
    assert first.tensor_groups == {"ws"}


def test_each_makes_a_rule_for_every_operator_named() -> None:
    rules = parse_rules("%each f in relu tanh\n{f}-twice: {f}({f}(x)) => {f}(x)\n%end\nother: abs(x) => abs(x)")
    assert [r.name for r in rules] == ["relu-twice", "tanh-twice", "other"]


def test_canonical_text_ignores_layout() -> None:
    (one,) = parse_rules("r: relu( relu(x) )=>relu(x) if rank(x)==2")
    (other,) = parse_rules("s: relu(relu(x)) =>\n    relu(x)\n    if rank(x) == 2  # why")
    assert one.text == other.text


@pytest.mark.parametrize(
    "text",
    [
        "relu(x + y) * -tanh(concat(*xs[1:2], axis=k))",
        "concat(*[slice(x, **s) for s in ss], axis=(k, 0))",
        "total((s[k] for s in ss), 'a', None, 1.5)",
        "f(g(), *(a, b), **{}, k=x if y else z)(w)",
        "s.starts[0] + f((x := 1), (1,), lambda: 2)",
    ],
)
def test_a_side_is_written_as_python_writes_it(text: str) -> None:
    tree = ast.parse(text, mode="eval").body
    assert written(tree) == ast.unparse(tree)


def test_expressions_of_shipped_rules_are_written_as_python_writes_them() -> None:
    expressions = {one for rule in shipped_rules() for one in rule.expressions()}
    assert len(expressions) > 500
    assert [one.text for one in expressions if one.text != ast.unparse(one.tree)] == []
