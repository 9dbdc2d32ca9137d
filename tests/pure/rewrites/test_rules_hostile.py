"""Rule files that someone else wrote: they are data, and nothing in them is run, however they ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from eqsat.errors import RuleError
from eqsat.language.terms import Attrs, Bindings, DType, Expression, TensorType
from eqsat.rewrites.conditions.arithmetic import LONGEST
from eqsat.rewrites.conditions.expression import Typed, Undefined, compiled, evaluate
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.conditions.interpreter import MOST_STEPS
from eqsat.rewrites.conditions.syntax import DEEPEST
from eqsat.rewrites.rules.evidence import rule_hash
from eqsat.rewrites.rules.loader import check_rules
from eqsat.rewrites.rules.parser import parse_rules

#: Runs `echo` in a shell where fields are Python's attributes and a loop may put a value in a function's place.
COMMAND = (
    "floating(x), all(sum.__dict__.system is not None and all(len('echo ran > {ran}') == 0 for len in"
    " [sum.__dict__.system]) for sum in [min('os') for min in"
    " [x.__class__.__init__.__globals__.__builtins__['__import__']]])"
)
BOUNDS = "numbers below 2^63, sequences of at most 4096 elements"
#: What each condition is refused with when it is read.
REFUSED = {
    "x.__class__ == 1": "'__class__' is no attribute of an operator",
    "all(a._f for a in xs)": "'_f' is no attribute of an operator",
    "all(len == 1 for len in (1,)) and len((1,)) == 1": "a loop variable is named like the function 'len'",
    "all(x == 1 for x[0] in (1,))": "a loop that assigns to something else than names",
    "x.type.dims.count(1) == 1": "a call of an expression",
    "(lambda: 1)() == 1": "a call of an expression",
    "__import__('os') == 1": "no function '__import__'",
    "getattr(x, 'type') == 1": "no function 'getattr'",
    "max((1, 2), key=len) == 1": "a condition reads unbound 'len'",
    "(y := 3) == 3": "NamedExpr is no part of a rule's expressions",
    "f'{x}' == 'x'": "JoinedStr is no part of a rule's expressions",
    "{1: 2}[1] == 2": "Dict is no part of a rule's expressions",
    "1 << 99999999999 > 1": "LShift is no part of a rule's expressions",
    "b'a' == 1": "a literal of type bytes",
    "9**9**9**9 > 0": "9 ** 387420489 is beyond 64 bits",
    "rank(x) == 10**30": "10 ** 30 is beyond 64 bits",
    "rank(x) == 4611686018427387904 * 4": "an integer beyond 64 bits",
    "rank(x) == 0x" + "f" * 100_000: "an integer beyond 64 bits",
    "len('a' * 99999999999) > 1": "no arithmetic on a str",
    "'%999999999d' % 1 == '1'": "no arithmetic on a str",
    "len((0,) * 99999999999) > 1": "a sequence of 99999999999 elements; expected at most 4096",
    "-" * 3000 + "1 > 0": "a side or a condition is too large",
    "not " * 150 + "1": "a side or a condition is too large",
    " + ".join(["rank(x)"] * 3000) + " > 0": "a side or a condition is too large",
    "x" + ".a" * 3000: "a side or a condition is too large",
}


def expression(text: str) -> Expression:
    """A condition; of an axiom, so that no instances are drawn to compare types of a rule that never fires."""
    text = f"r: slice(transpose(x, perm=p), **q) => slice(transpose(x, perm=p), **q) if {text}"
    (rule,) = parse_rules(text, origin="axiom")
    return rule.conditions[0]


def value(text: str, **attrs: object) -> object:
    x = Typed(TensorType(DType.FLOAT32, (2, 3, 5)))
    return evaluate(expression(text), Bindings({"x": x}, {"p": (2, 0, 1), **attrs}))


def test_a_rule_file_runs_no_command(tmp_path: Path) -> None:
    ran = tmp_path / "ran.txt"
    with pytest.raises(RuleError):
        check_rules("evil: relu(x + x) => relu(x) + relu(x) if " + COMMAND.format(ran=ran))
    assert not ran.exists()


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:40])
def test_a_condition_that_is_no_formula_is_refused_where_it_stands(text: str) -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules(f"r: relu(x) => x if {text}", "f.rules")
    assert caught.value.what.startswith(REFUSED[text])


def test_what_goes_beyond_the_bounds_says_what_they_are() -> None:
    with pytest.raises(RuleError) as caught:
        parse_rules("r: relu(x) => x if rank(x) == 2 ** 70", "f.rules")
    assert str(caught.value) == f"f.rules:1:20: 2 ** 70 is beyond 64 bits\n  expected {BOUNDS}"
    with pytest.raises(RuleError) as caught:
        parse_rules("r: relu(x) => " + "-" * (DEEPEST + 1) + "x", "f.rules")
    assert str(caught.value) == (
        "f.rules:1:14: a side or a condition is too large\n"
        "  expected at most 4000 names, numbers and signs, nested at most 100 deep; integers of 64 bits"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    {
        "rank(x) ** rank(x) ** 99 > 1": "3 ** 99 is beyond 64 bits",
        "dim(x, 2) ** 40 > 1": "5 ** 40 is beyond 64 bits",
        "(dim(x, 2) + 4611686018427387904) * 2 > 1": "an integer beyond 64 bits",
        "len(ones(dim(x, 2) * 99999999999)) > 0": f"a sequence of 499999999995 elements; expected at most {LONGEST}",
        "len(shape(x) * 99999999) > 0": f"a sequence of 299999997 elements; expected at most {LONGEST}",
        "len(p + p * 1365) > 0": f"a sequence of 4098 elements; expected at most {LONGEST}",
        "sum(range(99999999999999)) > 1": f"a range of more than {LONGEST} elements",
        "all(a + b >= 0 for a in range(4000) for b in range(4000))": f"more than {MOST_STEPS} steps of its loops",
        "dtype(x) + dtype(x) == ''": "no arithmetic on a str",
        "rank(3) == 1": "'int' object has no attribute 'type'",
    }.items(),
)
def test_a_condition_that_takes_too_much_has_no_value_and_the_rule_does_not_fire(text: str, why: str) -> None:
    with pytest.raises(Undefined) as caught:
        value(text)
    assert caught.value.what.endswith(why)


def test_a_value_has_no_attributes_but_the_fields_of_records() -> None:
    assert value("p.axes[0] == 1", p=Attrs(axes=(1, 2))) is True
    for text in ("x.type == 1", "p.count == 1", "shape(x).index == 1", "p[0].real == 1"):
        with pytest.raises(Undefined, match="is no record"):
            value(text)


@pytest.mark.parametrize(
    ("text", "result"),
    {
        "shape(x)[1:] + (7,) == (3, 5, 7)": True,
        "[d * 2 for d in shape(x) if d > 2] == (6, 10)": True,
        "[(a, b) for a in (1, 2) for b in range(a)] == ((1, 0), (2, 0), (2, 1))": True,
        "[a + b for a, (b, c) in zip((1, 2), ((3, 0), (4, 0)))] == (4, 6)": True,
        "[[i + j for j in range(i)] for i in range(3)] == ((), (1,), (2, 3))": True,
        "sum(len(r) for r in [range(i) for i in range(4)]) == 6": True,
        "max(*shape(x), 9) == 9": True,
        "sorted(shape(x), reverse=True) == 1 or 0 < rank(x) <= 3 != 4": True,
        "1 if rank(x) == 2 else (p.axes if False else 0)": 0,
        "(not p) is False and -dim(x, -1) // 2 == -3 and 7 % 4 == 3 and 2 ** 3 == 8 and 1 / 2 == 0.5": True,
        "sum(p for p in (1, 2)) + len(p) == 6": True,
        "shape(transpose(x, perm=p)) == shape(transpose(x, **q)) == (5, 2, 3)": True,
    }.items(),
)
def test_formulas_have_the_values_that_python_gives_them(text: str, result: object) -> None:
    assert value(text, q=Attrs(perm=(2, 0, 1))) == result


def test_loops_gone_through_by_turns_keep_their_variables_apart() -> None:
    text = "[a for a in zip(*[(10 * i + j for j in range(2)) for i in range(3)])] == ((0, 10, 20), (1, 11, 21))"
    assert value(text) is True


def test_names_are_those_that_are_read_outside_the_loops_that_bind_them() -> None:
    assert compiled(expression("sum(x for x in p) + len(p) == rank(x)")).names == ("p", "x")
    assert compiled(expression("all(a for a in p)")).names == ("p",)


def test_a_changed_condition_makes_evidence_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = parse_rules("r: relu(relu(x)) => relu(x) if floating(x)")
    before = rule_hash(rule)
    assert rule_hash(parse_rules("r: relu(relu(x)) => relu(x) if floating(x)")[0]) == before
    assert rule_hash(parse_rules("r: relu(relu(x)) => relu(x) if wide(x)")[0]) != before
    monkeypatch.setitem(FUNCTIONS, "floating", FUNCTIONS["wide"])
    assert rule_hash(rule) != before
