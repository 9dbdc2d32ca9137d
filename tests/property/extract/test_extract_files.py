"""The egraph-serialize reader on damaged files: a problem or an ExtractionError that says where, and nothing else."""

from __future__ import annotations

import json
import math
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from eqsat.errors import ExtractionError
from eqsat.extract import solve
from eqsat.extract.problem.gym import parse_gym

NODES: dict[str, Any] = {
    "a0": {"op": "x", "cost": 2.5, "eclass": "a", "children": []},
    "a1": {"op": "y", "cost": 5, "eclass": "a", "children": ["b0"], "subsumed": True},
    "b0": {"op": "f", "cost": 1.0, "eclass": "b", "children": ["a1", "a0"]},
    "b1": {"op": "g", "cost": 9.0, "eclass": "b"},
}
DOCUMENT = {"nodes": NODES, "root_eclasses": ["b"], "class_data": {"a": {"type": "T"}}}
TEXT = json.dumps(DOCUMENT)

NUMBERS = st.one_of(st.floats(), st.integers(), st.sampled_from([10**400, -(10**400), 1e308, 5e-324]))
NAMES = st.one_of(st.text(max_size=3), st.sampled_from(["a", "b", "a0", "a1", "b0", "b1"]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, NAMES),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=4,
)
PLACES = [
    (),
    ("nodes",),
    ("root_eclasses",),
    ("root_eclasses", 0),
    ("nodes", "b0"),
    *(("nodes", "b0", key) for key in ("op", "cost", "eclass", "children")),
    ("nodes", "b0", "children", 0),
    ("nodes", "b1", "children"),
    ("nodes", "a0", "subsumed"),
    ("nodes", "new"),
]


def replaced(place: tuple[Any, ...], value: object) -> object:
    """The document with another value in a place."""
    if not place:
        return value
    document = json.loads(TEXT)
    inner = document
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    return document


def read(text: str) -> None:
    """Reads a document as it may be, and solves what it holds."""
    try:
        problem = parse_gym(text)
    except ExtractionError as error:
        assert error.expected or error.remedy
        return
    solution = solve(problem)
    solution.check(problem)
    assert solution.status == "optimal"
    assert math.isfinite(solution.cost)
    subsumed = {name for name, node in json.loads(text)["nodes"].items() if node.get("subsumed")}
    assert not subsumed & {problem.nodes[n].name for n in solution.chosen.values()}


@settings(deadline=None, max_examples=400)
@given(place=st.sampled_from(PLACES), value=VALUES)
@example(place=(), value=DOCUMENT)
def test_any_value_in_any_place_is_read_or_refused(place: tuple[Any, ...], value: object) -> None:
    read(json.dumps(replaced(place, value)))


@settings(deadline=None, max_examples=300)
@given(st.integers(0, len(TEXT)), st.integers(0, 12), st.one_of(st.text(max_size=4), st.sampled_from(list('{}[]",:'))))
def test_any_cut_and_any_insertion_is_read_or_refused(at: int, gone: int, put: str) -> None:
    read(TEXT[:at] + put + TEXT[at + gone :])
