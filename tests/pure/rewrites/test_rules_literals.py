"""Numbers, bare variables and upper-case names in the text of rules."""

import ml_dtypes
import numpy as np
import pytest

from eqsat.errors import RuleError
from eqsat.language.terms import DType, TensorType
from eqsat.language.terms.pattern import App, Var
from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.numbers import instances_with_numbers, numberless
from eqsat.rewrites.proof.prove import prove
from eqsat.rewrites.rules.loader import laws
from eqsat.rewrites.rules.parser import parse_rules

LAWS = laws()


def asked(text):
    return parse_rules(text, "f", origin="asked")[0]


@pytest.mark.parametrize(
    ("side", "number", "dtype"),
    [
        ("x * 1", "1.0", "dtype(x)"),
        ("-2.5 + x", "-2.5", "dtype(x)"),
        ("maximum(relu(x @ y), 0)", "0.0", "dtype(x)"),
        ("x ** 2", "2.0", "dtype(x)"),
        ("gather(x, 3)", "3.0", "'int64'"),
        ("bitwise_and(3, x)", "3.0", "dtype(x)"),
        ("where(c, x, 1)", "1.0", "dtype(x)"),
        ("dequantize_linear(q, s) * 4", "4.0", "dtype(s)"),
        ("cast(x, to='int32') + 1", "1.0", "'int32'"),
        ("cast(x, to=t) + 1", "1.0", "t"),
        ("shape(x) + 1", "1.0", "'int64'"),
        ("concat(*xs, axis=0) * 2", "2.0", "dtype(xs[0])"),
        ("concat(*[relu(x) @ w for x, w in zip(xs, ws)], axis=0) * 2", "2.0", "dtype(xs[0])"),
        ("x + 9007199254740993", "9007199254740993", "dtype(x)"),
    ],
)
def test_a_number_is_a_scalar_of_the_element_type_beside_it(side, number, dtype):
    (written,) = [o for o in asked(f"r: {side} => {side}").left[0].operands if isinstance(o, App) and o.op == "fill"]
    assert {k: e.text for k, e in written.fields.items()} == {"shape": "()", "value": number, "dtype": dtype}


def test_a_number_with_a_fraction_is_one_of_floats():
    assert [c.text for c in asked("r: x * 0.5 => x + 0.5 if rank(x) == 1").conditions] == [
        "rank(x) == 1",
        "floating(x)",
    ]
    assert str(asked("r: x * 0.5 => 0.5 * x")) == "r: x * 0.5 => 0.5 * x if floating(x)"
    assert asked("r: x * 2.0 => 2 * x").conditions == ()


@pytest.mark.parametrize(
    ("number", "implied"),
    [
        ("0", ()),
        ("127", ()),
        ("-1", ("representable(x, -1)",)),
        ("128", ("representable(x, 128)",)),
        ("65505.5", ("floating(x)", "representable(x, 65505.5)")),
        ("1e-05", ("floating(x)", "representable(x, 1e-05)")),
        ("-0.25", ("floating(x)",)),
    ],
)
def test_a_number_that_not_every_type_has_implies_a_type_that_has_it(number, implied):
    rule = asked(f"r: x + {number} => {number} + x if rank(x) == 1")
    assert rule.implied == implied
    assert [c.text for c in rule.conditions] == ["rank(x) == 1", *implied]
    assert asked(f"r: {rule.text}").implied == () and asked(f"r: {rule.text}").conditions == rule.conditions


def test_what_a_number_in_a_loop_implies_holds_of_every_element():
    loop = "concat(*[x * 300 + 0.5 for x in xs], axis=0)"
    rule = asked(f"r: {loop} => {loop}")
    implied = ("all((representable(x, 300) for x in xs))", "all((floating(x) for x in xs))")
    assert rule.implied == implied
    siblings = "r: [x @ w * 0.5 for w in ws] => split(x @ concat(*ws, axis=1), axis=1, sizes=[dim(w, 1) for w in ws])"
    assert asked(siblings).implied == ("floating(x)",)
    assert asked(siblings.replace("x @ w", "w @ x")).implied == ("all((floating(w) for w in ws))",)


COMPUTED = [d for d in DType if d.is_integer or d.value in ("float16", "bfloat16", "float32", "float64")]
NUMBERS = (0, 1, -1, 7, 127, 128, 255, 256, 2**31 - 1, 2**31, -(2**63), 0.5, 65504.0, 65536.0, 1e-5, 1e39, 1e-300)


@pytest.mark.parametrize("dtype", COMPUTED)
def test_numbers_that_a_type_has_are_those_that_numpy_stores_in_it(dtype):
    x = Drawn("x", TensorType.of(dtype.value, ()))
    for number in NUMBERS:
        holds = bool(FUNCTIONS["representable"](x, number))
        with np.errstate(all="ignore"):
            stored = np.asarray(number).astype(dtype.numpy).astype(np.float64)
        if dtype.is_integer:
            assert holds == (stored == number), number
        else:
            least = float(ml_dtypes.finfo(dtype.numpy).smallest_normal)
            assert holds == (bool(np.isfinite(stored)) and (number == 0 or abs(number) >= least)), number
    text = TensorType.of("bool", ())
    assert str(FUNCTIONS["representable"](Drawn("x", text), 1).reason) == "bool has no 1"


def test_attributes_take_whole_numbers_for_truth_values_and_floats():
    one, other = asked("r: gemm(x, y, alpha=-2, trans_a=1) => x"), asked("r: gemm(x, y, alpha=-2.0, trans_a=True) => x")
    assert one.left == other.left
    one, other = (
        asked("r: reduce_sum(x, axes=a, keepdims=0) => x"),
        asked("r: reduce_sum(x, axes=a, keepdims=False) => x"),
    )
    assert one.left == other.left
    assert asked("r: reduce_sum(x, axes=a, keepdims=2) => x").left[0].fields["keepdims"].text == "2"


def test_an_equation_of_a_bare_variable_is_read_from_right_to_left():
    rule = asked("Bare: X => identity(X) if rank(X) == 2")
    assert (rule.name, rule.text, rule.swapped) == ("Bare", "identity(X) => X if rank(X) == 2", True)
    there, back = parse_rules("r: x <=> g where g := relu(x) * 1", origin="asked")
    assert (there.text, back.text) == ("relu(x) * 1 => x", "relu(x) * 1 => x")
    assert (there.swapped, back.swapped) == (True, False)
    assert asked("r: x => relu(x)").right == (Var("x"),)


FAULTS = {
    "r: relu(0) => relu(0)": (
        "f:1:9: no operand beside the number 0 tells its element type\n  expected a tensor beside it\n"
        "  write the constant with its type, as fill(shape=(), value=0, dtype='float32')"
    ),
    "r: where(less(x, 1), 0, 2.5) => x": (
        "f:1:22: no operand beside the number 0 tells its element type\n  expected a tensor beside it\n"
        "  write the constant with its type, as fill(shape=(), value=0, dtype='float32')"
    ),
    "r: x - x => 0": (
        "f:1:13: the number 0 stands alone\n  expected an operand beside it, whose element type it has\n"
        "  write the tensor that is meant, as fill(shape=shape(x), value=0, dtype=dtype(x))"
    ),
    "r: x => x": "f:1:4: both sides are bare variables\n  expected an operator on one side",
    "r: x => relu(y)": ("f:1:4: the variable 'x' alone is the left side, and not on the right\n  expected an operator"),
    "r: x, relu(x) => x, x": "f:1:4: the left side is a bare variable\n  expected an operator",
    "r: relu(True) => relu(x)": (
        "f:1:9: 'True' is no pattern\n  expected a variable or an operator applied to patterns"
    ),
    "r: x + 1e400 => x": (
        "f:1:8: a number is too large for a float\n  expected a finite number\n"
        "  write an infinity as a constant, as fill(shape=(), value=1e309, dtype=dtype(x))"
    ),
    "r: cast(x, to=t) + 128 => cast(x, to=t)": (
        "f:1:20: no operand beside the number 128 tells its element type\n  expected a tensor beside it\n"
        "  write the constant with its type, as fill(shape=(), value=128, dtype='float32')"
    ),
    "r: x * 0.5 => x if floating(y)": "f:1:20: a condition reads unbound 'y'\n  expected 'x'",
}


@pytest.mark.parametrize("text", FAULTS)
def test_numbers_and_variables_that_say_too_little_are_named(text):
    with pytest.raises(RuleError) as caught:
        asked(text)
    assert str(caught.value) == FAULTS[text]


@pytest.mark.parametrize("origin", ["given", "candidate", "axiom"])
def test_a_bare_variable_is_a_left_side_of_questions_alone(origin):
    with pytest.raises(RuleError) as caught:
        parse_rules("r: x => identity(x)", "f", origin=origin)
    assert str(caught.value) == "f:1:4: the left side is a bare variable\n  expected an operator"


@pytest.mark.parametrize(("text", "column"), [("x * 1 => x", 8), ("relu(x) <=> maximum(x, 1)", 27)])
def test_a_rule_to_rewrite_with_has_no_numbers_on_its_left_side(text, column):
    with pytest.raises(RuleError) as caught:
        parse_rules(f"r: {text}", "f")
    assert str(caught.value) == (
        f"f:1:{column}: the number 1 on a left side matches no constant of a graph\n"
        "  expected a variable for the constant\n"
        "  write a name, c, for it, and the condition is_all(c, 1)"
    )
    assert parse_rules("r: relu(x) => maximum(x, 0) if floating(x)")[0].right[0].op == "maximum"


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("x * 1 => x", {"mul-one"}),
        ("x + 0.0 => x", {"add-zero"}),
        ("0 + X => X", {"add-commutes", "add-zero"}),
        ("relu(x) => maximum(x, 0) if floating(x)", {"maximum-to-relu"}),
        ("x ** 2 => x * x if floating(x)", {"pow-two"}),
        ("maximum(x, 0) => relu(x) if floating(x), rank(x) == 3", {"maximum-to-relu"}),
        ("relu(clip(x, 0, 6)) * 1 => relu(clip(x, 0, 6)) if rank(x) == 2", {"mul-one"}),
        ("x => identity(x)", {"identity-gone"}),
        ("x => x + 0", {"add-zero"}),
        (
            "x => transpose(transpose(x, perm=(1, 0)), perm=(1, 0)) if rank(x) == 2",
            {"transposes-compose", "transpose-gone"},
        ),
    ],
)
def test_equations_of_numbers_and_bare_variables_are_proved(text, rules):
    proof = prove(asked(f"r: {text}"), LAWS)
    assert (proof.verdict, set(proof.rules)) == ("proved", rules), proof.detail


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("clip(x, 0, 6) => relu(x)", "differ"),
        ("x * 2 => x", "differs by"),
        ("x + 0 => reshape(x, shape=())", "types differ"),
        ("softmax(x * 2, axis=0) => softmax(x * 2, axis=1) if rank(x) == 2", "differs by"),
        ("x + 260 => x + 4", "differs by"),  # though not of uint8
        ("x => x + 0.5", "differs by"),
        ("x => transpose(transpose(x, perm=(1, 0)), perm=(1, 0))", "the right side does not type: perm [1, 0]"),
        ("x => relu(x)", "differs by"),
    ],
)
def test_false_equations_of_numbers_and_bare_variables_are_refuted(text, why):
    proof = prove(asked(f"r: {text}"), LAWS)
    assert proof.verdict == "refuted" and why in proof.counterexample


def test_what_stands_beside_a_number_is_of_any_rank():
    loose = numberless(asked("r: relu(x * 2) + gather(y, 1, axis=0) => y if rank(x) == 2"))
    assert loose.tensors == {"x", "2.0", "y", "1.0 of 'int64'"}
    rule = asked("r: softmax(x * 2, axis=0) => x if rank(x) == 2")
    instances = list(instances_with_numbers(rule, 12, 2000))
    assert len(instances) == 12 and all(b.tensors.keys() == {"x"} for b in instances)
    assert {len(b.tensors["x"].type.dims) for b in instances} == {2}
    assert list(instances_with_numbers(asked("r: relu(x) => x + 2"), 12, 2000)) == []
