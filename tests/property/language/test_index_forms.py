"""Any text is an index form or a GraphError that points into it."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from eqsat.errors import GraphError
from eqsat.language.declaration.indices import parse_form

PIECES = st.sampled_from(
    [
        "m",
        "k",
        "g*c",
        "h@r",
        "h...",
        "...",
        "1",
        "[",
        "]",
        "{axis}",
        "{axis:}",
        ",",
        "->",
        "+",
        "^t",
        ";",
        "=",
        "linear",
        "?",
    ]
)


@example("+ ->")
@given(st.lists(PIECES, max_size=12).map(" ".join))
def test_a_text_is_a_form_or_an_error_with_a_column(text: str) -> None:
    try:
        form = parse_form(text, "blend")
    except GraphError as error:
        column = re.search(r"column (\d+)$", error.where)
        assert column is not None
        assert 1 <= int(column[1]) <= len(text) + 1
        assert error.expected
        return
    named = {i.name for t in form.terms for i in t.indices}
    assert {i.name for i in form.result.indices} <= named | {"1"}
    assert {i.name for i in form.parallel()} <= named
    assert not {i.name for i in form.parallel()} & {i.name for i in form.contracted()}
