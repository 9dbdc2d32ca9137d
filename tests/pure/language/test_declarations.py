"""Declarations of operators: what follows from them, and how a wrong one is found out."""

import dataclasses
import re

import numpy as np
import pytest

import eqsat
from eqsat.errors import DeclarationError, EqsatError, GraphError, RuleError, ShapeError, UnsoundRuleError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.declaration import registry
from eqsat.language.graphs.interpret import run
from eqsat.language.onnx.write.availability import lacking
from eqsat.language.ops import OPS, op
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.proof.check import Effort, check
from eqsat.rewrites.rules.definitions import expanded
from eqsat.rewrites.rules.derive import derived_laws
from eqsat.testing import check_rewrite

#: What the laws that a user's declaration implies are put to when rules are loaded.
AS_LOADED = Effort(numeric=24, symbolic=6)


@pytest.fixture(autouse=True)
def forgotten():
    """Operators that a test declares are gone after it."""
    before = set(OPS)
    yield
    for name in set(OPS) - before:
        registry.forget(name)


def typed(name, *shapes, dtypes=()):
    kinds = [*dtypes, *["float32"] * (len(shapes) - len(dtypes))]
    return OPS[name].infer([TensorType.of(k, s) for k, s in zip(kinds, shapes, strict=True)], {})


def outer(**more):
    @op("outer", index="... m, ... n -> ... m n", multilinear=(0, 1), **more)
    def outer(xp, x, y):
        return xp.einsum("...m,...n->...mn", x, y)

    return outer


def test_shapes_follow_from_a_plain_index_form():
    outer()
    assert typed("outer", ("b", 2), (3,)) == (TensorType.of("float32", ("b", 2, 3)),)
    assert typed("outer", (4, 1, 2), (5, 3))[0].static == (4, 5, 2, 3)
    with pytest.raises(ShapeError, match=r"outer of a tensor of rank 0\n  expected rank 1 or more, by '\.\.\. m"):
        typed("outer", (), (3,))
    with pytest.raises(ShapeError, match="element types differ: float32, float64"):
        typed("outer", (1,), (3,), dtypes=("float64",))

    @op(index="m k, k 1 -> m", multilinear=(0, 1))
    def matvec(xp, a, x):
        return xp.matmul(a, x)[:, 0]

    assert typed("matvec", (2, 3), (3, 1))[0].static == (2,)
    with pytest.raises(ShapeError, match=r"matvec with axis k of 3 and of 4\n  expected one size"):
        typed("matvec", (2, 3), (4, 1))
    with pytest.raises(ShapeError, match="axis 1 of 1 and of 2"):
        typed("matvec", (2, 3), (3, 2))


def test_a_name_is_that_of_the_reference_and_it_takes_part_at_once():
    @op(pointwise=True)
    def shifted(xp, x, *, by: float = 1.0):
        return xp.add(x, xp.number(by, x))

    g = eqsat.Graph("own")
    g.output("y", eqsat.shifted(g.input("x", (2,)), by=2.0))
    assert run(g.build(), {"x": np.float32([1, 2])}, Floats())["y"].tolist() == [3, 4]
    assert not shifted.is_shipped
    assert OPS["relu"].is_shipped
    assert check_rewrite("shifted(relu(x)) => shifted(relu(relu(x)))", max_examples=5, prove=False).checked


def wrong_declarations():
    def reference(xp, x, *, alpha=1.0):
        return x

    yield "it is declared twice\n  expected one declaration an operator; .*activations", lambda: op("relu")(reference)
    yield "rules could not name it", lambda: op("my relu", pointwise=True)(reference)
    yield "rules could not name it", lambda: op("lambda", pointwise=True)(reference)
    yield "its reference takes 'x' first\n  expected xp", lambda: op("f", pointwise=True)(lambda x: x)
    yield "its reference takes 'nothing' first", lambda: op("f", pointwise=True)(lambda: 0)
    yield "it has no shape rule\n  expected infer=", lambda: op("f")(reference)
    yield "it has no shape rule", lambda: op("f", index="... {alpha} -> ...")(reference)
    yield (
        "multilinear names operand 1\n  expected operands",
        lambda: op("f", pointwise=True, multilinear=(1,))(reference),
    )
    yield "dtypes names operand 3", lambda: op("f", pointwise=True, dtypes={3: "bool"})(reference)
    yield (
        "instances name no attribute: 'alhpa'\n  expected one of alpha",
        lambda: op("f", pointwise=True, instances=[{"alhpa": 2.0}])(reference),
    )
    yield (
        "monotone says nothing of it\n  expected a function of one",
        lambda: op("f", index="... m -> ... m", monotone=True)(reference),
    )
    yield "average says nothing of it\n  expected a reduction", lambda: op("f", pointwise=True, average=True)(reference)
    yield "partial= takes other parameters", lambda: op("f", pointwise=True, partial=lambda x: True)(reference)
    yield "infer= takes other parameters", lambda: op("f", infer=lambda operands: operands)(reference)
    yield "sample= takes other parameters", lambda: op("f", pointwise=True, sample=lambda rng: None)(reference)


@pytest.mark.parametrize("message, declare", [*wrong_declarations()])
def test_a_wrong_declaration_is_refused_where_it_stands(message, declare):
    before = dict(OPS)
    with pytest.raises(DeclarationError, match=rf"test_declarations\.py:\d+: operator '.*': {message}"):
        declare()
    assert dict(OPS) == before


@pytest.mark.parametrize("index", ["m n -> k", "m n, -> m", "m + -> m"])
def test_a_wrong_index_form_names_file_and_line(index):
    with pytest.raises(GraphError, match=r"test_declarations\.py:\d+:"):
        op("f", index=index)(lambda xp, x: x)


def test_a_decorator_without_brackets_is_refused():
    with pytest.raises(DeclarationError, match=r"@eqsat\.op on its own\n  expected a call"):

        @eqsat.op
        def f(xp, x):
            return x


def misspelt(xp, x):
    return xp.multply(x, x)


FAULTS = {
    "a name that xp lacks": (
        {},
        misspelt,
        r"its reference fails on float64\[.*AttributeError.*\n.*\n  did you mean mult",
    ),
    "another shape": (
        {},
        lambda xp, x: x[..., None],
        r"its reference makes shapes \[.*1\] of .*, its shape rule says",
    ),
    "two outputs": ({}, lambda xp, x: (x, x), r"its reference makes shapes \[.*\] and \[.*its shape rule says \[.*\n"),
    "a shape rule that fails": (
        {"infer": lambda operands, attrs: [operands[1]]},
        lambda xp, x: x,
        r"its shape rule fails on float64\[.*IndexError",
    ),
    "a sample rule that fails": (
        {"sample": lambda rng, shapes, attrs: 1 / 0},
        lambda xp, x: x,
        r"its sample rule fails on shapes=\(None,\): ZeroDivisionError",
    ),
}


@pytest.mark.parametrize("more, reference, message", FAULTS.values(), ids=FAULTS.keys())
def test_a_declaration_that_contradicts_itself_is_found_when_it_is_used(more, reference, message):
    op("f", pointwise=True, **more)(reference)
    with pytest.raises(DeclarationError, match=rf"test_declarations\.py:\d+: operator 'f': {message}"):
        check_rewrite("f(f(x)) => f(x)", max_examples=5, prove=False)


def test_an_operator_without_a_sample_rule_says_so():
    op("f", infer=lambda operands, attrs: [operands[0]])(lambda xp, x: x)
    with pytest.raises(RuleError, match=r"operator 'f' has no sample rule\n.*\n  declare it with sample="):
        check_rewrite("f(f(x)) => f(x)")


def test_false_laws_and_claims_are_refuted():
    from eqsat.rewrites.rules.loader import load_rules

    op("f", pointwise=True, laws=["f(x) => x * x"])(lambda xp, x: xp.add(x, x))
    with pytest.raises(UnsoundRuleError, match=r"operator 'f' states a false law, .*\n.*\n  correct laws= of its decl"):
        load_rules()
    registry.forget("f")
    op("g", index="... m -> ... m", multilinear=(0,))(lambda xp, x: xp.multiply(x, x))
    with pytest.raises(UnsoundRuleError, match=r"operator 'g' implies a false law, g-.*\n.*\n  correct index=, multil"):
        load_rules()
    registry.forget("g")
    op("h", pointwise=True, laws=["h(x) => x + z"])(lambda xp, x: x)
    with pytest.raises(RuleError, match=r"right side uses unbound variable 'z'\n.*\n  correct laws= where 'h'"):
        load_rules()


def test_what_is_monotone_passes_maxima_and_what_is_not_is_found_out():
    @op(pointwise=True, monotone=True)
    def steps(xp, x):
        return xp.maximum(xp.number(0.0, x), xp.minimum(xp.number(1.0, x), x))

    laws = {law.name: law for law in derived_laws([steps])}
    assert "steps(reduce_max(x, **a)) if positive_dims(x, a.axes)" in laws["reduce_max-of-steps"].text
    assert check_rewrite(laws["minimum-of-stepss"], max_examples=10).proved
    op("wraps", pointwise=True, monotone=True)(lambda xp, x: xp.maximum(x, xp.add(x, xp.minimum(x, xp.number(0.0, x)))))
    (law,) = (law for law in derived_laws([OPS["wraps"]]) if law.name == "minimum-of-wrapss")
    assert check(law, AS_LOADED).verdict == "refuted", "doubled, the least integer is 0"
    op("square", pointwise=True, monotone=True)(lambda xp, x: xp.multiply(x, x))
    (law,) = (law for law in derived_laws([OPS["square"]]) if law.name == "reduce_max-of-square")
    assert check(law, AS_LOADED).verdict == "refuted"


def test_what_averages_takes_what_does_not_vary_out_and_a_sum_is_none():
    def middle(xp, x, *, axes, keepdims=True):
        total = xp.add(xp.max(x, axis=axes, keepdims=keepdims), xp.min(x, axis=axes, keepdims=keepdims))
        return xp.multiply(total, xp.number(0.5, x))

    rules = {"infer": OPS["reduce_max"].infer, "sample": OPS["reduce_max"].sample, "index": "...{axes} -> ..."}
    laws = derived_laws([op(average=True, partial=OPS["reduce_max"].partial, **rules)(middle)])
    found = {law.name: law for law in laws}
    for name in ("middle-of-steady", "middle-of-sum-with-steady", "middle-of-unit-axes", "middle-of-reshape"):
        assert check_rewrite(found[name], max_examples=10).proved, name
    lying = derived_laws([dataclasses.replace(OPS["reduce_sum"], average=True)])
    verdicts = {law.name: check(law, AS_LOADED).verdict for law in lying if "-steady" in law.name}
    assert set(verdicts) >= {"reduce_sum-of-steady", "reduce_sum-of-sum-with-steady"}
    assert set(verdicts.values()) == {"refuted"}


def test_a_reduction_of_something_is_finite_where_its_operand_is():
    types = [TensorType.of("float32", (2, "n", 0))]
    facts = [OPS["reduce_max"].is_partial(types, {"axes": axes}) for axes in ((), (0,), (0, 1), (2,))]
    assert facts == [False, False, True, True]
    assert OPS["reduce_mean"].is_partial([None], {"axes": ()})
    assert OPS["exp"].is_partial(types, {})
    op("f", pointwise=True, partial=lambda operands, attrs: operands[1])(lambda xp, x: x)
    with pytest.raises(
        DeclarationError, match=r"operator 'f': its rule for partial fails .*IndexError.*\n  expected whe"
    ):
        OPS["f"].is_partial(types, {})


@pytest.fixture
def gates():
    op("gate", pointwise=True, laws=["gate(x, y) => gate(y, x) if rank(x) == 9", "gate(x, y) => x * sigmoid(y)"])(
        lambda xp, x, y: xp.multiply(x, xp.apply("sigmoid", y))
    )
    scaled = "scaled(x, alpha=a) => gate(x, x) * fill(shape=(), value=a, dtype=dtype(x))"
    op("scaled", pointwise=True, instances=[{"alpha": 2.0}], laws=[scaled])(
        lambda xp, x, *, alpha: xp.multiply(xp.multiply(x, xp.apply("sigmoid", x)), xp.number(alpha, x))
    )
    op("same", pointwise=True, laws=["same(x) => x"])(lambda xp, x: x)
    op("bare", pointwise=True, laws=["bare(relu(x)) => relu(x)", "bare(x) => neg(bare(x))"])(lambda xp, x: x)
    g = eqsat.Graph("gates")
    x = g.input("x", ("n", 3))
    g.output("y", g.apply("same", g.apply("scaled", x, alpha=3.0)))
    g.output("z", g.apply("bare", g.apply("gate", x, 2.0)))
    return g.build()


def test_laws_that_define_operators_write_them_out(gates):
    written = expanded(gates, lacking())
    assert [n.op for n in written.nodes] == ["sigmoid", "mul", "fill", "mul", "identity", "sigmoid", "mul", "bare"]
    x = {"x": np.float32([[1, -2, 3]])}
    made, wanted = (run(graph, x, Floats()) for graph in (written, gates))
    for name in wanted:
        np.testing.assert_allclose(made[name], wanted[name], rtol=1e-6)
        assert written.type(written.outputs[name]) == gates.type(gates.outputs[name])
    assert expanded(written, lacking()) is written


def test_writing_what_no_law_defines_says_what_to_state(gates):
    from eqsat.language.onnx.write.exporter import to_model

    with pytest.raises(EqsatError, match=r"node 'bare_0' \(bare\) has no counterpart in ONNX\n.*\n.*laws=\[\"bare\(x"):
        to_model(expanded(gates, lacking()))
    assert re.search("Sigmoid", str(to_model(expanded(gates.restricted(["y"]), lacking()))))


#: Declarations that fail before anything rests on them, and what the error says.
UNTRIED = {
    "a typo in a shape rule": (
        {"infer": lambda operands, attrs: [oprands[0]]},  # noqa: F821
        lambda xp, x: x,
        r"its shape rule fails on float64\[\].*: NameError: name 'oprands' is not defined",
    ),
    "a shape rule that says less": (
        {"infer": lambda operands, attrs: [operands[0].with_shape(operands[0].dims[1:])]},
        lambda xp, x: x,
        r"its reference makes shapes \[2\] of float64\[2\], its shape rule says \[\]",
    ),
    "a reference that residues cannot compute": (
        {"pointwise": True},
        lambda xp, x: xp.multiply(x, x) if not xp.exact else x.nothing,
        r"its reference fails on float64\[.*AttributeError",
    ),
    "a sample rule of too few operands": (
        {"pointwise": True, "sample": lambda rng, shapes, attrs: ([], {})},
        lambda xp, x: x,
        r"its sample rule draws no operands that it takes: f got 0 operands",
    ),
}


@pytest.mark.parametrize("more, reference, message", UNTRIED.values(), ids=UNTRIED.keys())
def test_a_wrong_declaration_is_found_before_rules_are_generated_with_it(more, reference, message):
    from eqsat.rewrites.discovery.enumerate.generate import GenerationSettings
    from eqsat.rewrites.rules.loader import load_rules

    op("f", **more)(reference)
    for use in (GenerationSettings(ops=("f", "add"), max_ops=1).operators, load_rules):
        with pytest.raises(DeclarationError, match=rf"test_declarations\.py:\d+: operator 'f': {message}"):
            use()


CELL = """
import eqsat

def keeps(operands, attrs):
    return [operands[0]]

@eqsat.op("{name}", {given})
def again(xp, x, *, times=1):
    return xp.multiply(x, xp.number({factor}, x))
"""


def cell(given="infer=keeps", factor=2.0, name="run_twice"):
    """What a cell of a notebook declares, run in a session."""
    session = {"__name__": "__main__"}
    exec(CELL.format(name=name, given=given, factor=factor), session)
    return session["again"]


def test_a_cell_of_a_notebook_may_be_run_again():
    assert cell() is cell()
    assert cell('index="n->n"', name="by_form") is cell('index="n->n"', name="by_form")


@pytest.mark.parametrize("changed", [{"factor": 3.0}, {"given": "infer=keeps, random=True"}])
def test_a_cell_that_declares_another_operator_of_the_name_is_refused(changed):
    cell()
    with pytest.raises(DeclarationError, match=r"declared twice(.|\n)*restart the kernel"):
        cell(**changed)


def test_groups_of_0_are_a_shape_that_does_not_fit():
    """The rules of shapes divide by them."""
    x, w = TensorType.of("float32", (1, 0, 4, 4)), TensorType.of("float32", (2, 0, 1, 1))
    declared = OPS["conv"]
    with pytest.raises(ShapeError, match=r"conv of float32\[1, 0, 4, 4\].*'group': 0") as caught:
        declared.result_types((x, w), declared.complete({"group": 0}))
    assert caught.value.expected == "attributes, groups for one, that are not 0"
