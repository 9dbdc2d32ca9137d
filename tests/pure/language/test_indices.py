"""Index forms: what they say, and where an error says they are wrong."""

import dataclasses

import pytest

from eqsat.errors import GraphError
from eqsat.language.declaration.indices import parse_form
from eqsat.language.declaration.spec import same_as
from eqsat.language.ops import OPS, op, spec

REFUSED = [
    ("... m k, ... k n", 17, "the form ends early", "'->' and the term of the result"),
    ("m ? -> m", 3, "'?' has no meaning", "names, '...', '1'"),
    ("m k, k n -> m q", 15, "the result has 'q', which no operand has", "an index of an operand"),
    ("m m -> m", 1, "'m' stands twice in one term", "an index once a term"),
    ("... h... -> h", 10, "a term with two runs of axes", "one '...' a term"),
    ("m -> m; h = group", 9, "'h' is no group", "an axis written h*c"),
    ("m -> m; linear activation = none", 9, "'linear' without a condition", "linear if attribute = value"),
    ("m -> m; linear if activation", 29, "the form ends early", "'=' and a value"),
    ("...{axis -> ...", 10, "'->' is out of place", "'}' or ':}'"),
    ("[m n -> m", 6, "'->' is out of place", "the name of an index"),
    ("+m, +n ->", 1, "every operand is merely added", "a term without '+' before it"),
    ("m -> m n", 8, "the result has 'n'", "an index of an operand"),
    ("m -> m, k", 7, "',' after the result", "';' and a clause, or the end"),
    ("g* -> g", 4, "'->' is out of place", "the fast part of a grouped axis"),
]


@pytest.mark.parametrize(("text", "column", "what", "expected"), REFUSED, ids=[r[0] for r in REFUSED])
def test_an_ill_formed_form_names_operator_column_and_what_belongs_there(text, column, what, expected) -> None:
    with pytest.raises(GraphError) as caught:
        parse_form(text, "blend")
    assert caught.value.where == f"index form of 'blend', column {column}"
    assert what in caught.value.what
    assert expected in caught.value.expected
    first, second = caught.value.remedy.split("\n")
    assert first == text
    assert second.index("^") - 2 == column - 1


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ("..., ... -> ...", "has 2 terms and 0 added ones"),
        ("...{axis} -> ...", "names no attribute: 'axis'"),
        ("...^turned -> ...", "names no attribute: 'turned'"),
        ("... -> ...; linear if mode = flat", "names no attribute: 'mode'"),
    ],
)
def test_a_form_that_does_not_fit_its_operator_is_refused_where_it_is_declared(index: str, what: str) -> None:
    with pytest.raises(GraphError, match="halve") as caught:
        op("halve", infer=same_as(), index=index)(lambda xp, x, *, by=2.0: xp.multiply(x, xp.number(1 / by, x)))
    assert what in caught.value.what
    assert "halve" not in OPS


def test_an_error_in_a_declaration_names_its_file_and_line() -> None:
    with pytest.raises(GraphError) as caught:
        op("halve", infer=same_as(), index="m -> k")(lambda xp, x: x)
    assert caught.value.where.startswith(__file__)
    assert caught.value.where.endswith("index form of 'halve', column 6")


def test_matmul_walks_rows_and_columns_and_sums_over_what_both_share() -> None:
    form = spec("matmul").form
    assert [i.name for i in form.parallel()] == ["m", "n"]
    assert [i.name for i in form.contracted()] == ["k"]
    assert form.holders("k") == (0, 1)


def test_conv_is_linear_without_activation_and_its_groups_are_counted() -> None:
    form = spec("conv").form
    assert form.linear_if == {"activation": "none"}
    assert form.sizes == {"g": "group"}
    assert [(i.group, i.name) for i in form.parallel()] == [("", "n"), ("g", "o")]
    assert form.windowed
    assert [t.added for t in form.terms] == [False, False, True]


def test_windows_and_mixed_axes_are_not_parallel() -> None:
    assert [i.name for i in spec("max_pool").form.parallel()] == ["n", "c"]
    assert [i.name for i in spec("instance_norm").form.parallel()] == ["n", "c"]
    assert [i.name for i in spec("lrn").form.parallel()] == ["n"]
    assert not spec("trilu").form.parallel()


def test_an_axis_whose_size_is_read_is_not_summed_in_parts() -> None:
    assert spec("reduce_mean").form.reads == {"axes"}
    assert not spec("reduce_sum").form.reads


def test_pointwise_operators_need_no_form() -> None:
    assert spec("add").form.text == "..., ... -> ..."
    assert spec("relu").form.text == "... -> ..."
    assert dataclasses.replace(spec("relu"), pointwise=False).form is None
