"""The egraph-serialize reader: what it reads, and what it says about files it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat.errors import ExtractionError
from eqsat.extract import solve
from eqsat.extract.gym import parse_gym, read_gym


def document(**changes: object) -> str:
    nodes = {
        "a0": {"op": "x", "cost": 2.0, "eclass": "a", "children": []},
        "a1": {"op": "y", "cost": 5, "eclass": "a"},
        "b0": {"op": "f", "cost": 1.0, "eclass": "b", "children": ["a1", "a0"]},
    }
    return json.dumps({"nodes": nodes, "root_eclasses": ["b"]} | changes)


def test_children_stand_for_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(document())
    problem = read_gym(path)
    assert [node.name for node in problem.nodes] == ["a0", "a1", "b0"]
    solution = solve(problem)
    assert solution.cost == 3.0
    assert sorted(problem.nodes[n].name for n in solution.chosen.values()) == ["a0", "b0"]


def test_a_missing_cost_is_one() -> None:
    problem = parse_gym(document(nodes={"b0": {"op": "f", "eclass": "b", "children": []}}))
    assert problem.nodes[0].cost == 1.0


NODE = {"op": "f", "eclass": "b", "children": [], "cost": 1.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "line 1: not JSON"),
        ("[]", "a JSON list at the top level"),
        ('{"nodes": {}}', "no 'root_eclasses'"),
        ('{"nodes": [], "root_eclasses": []}', "'nodes' is a list"),
        ('{"nodes": {"a": 1, "a": 2}, "root_eclasses": []}', "duplicate id 'a'"),
        (document(nodes={}), "unknown root e-class 'b'"),
        (document(nodes={}, root_eclasses=[]), "no e-nodes"),
        (document(root_eclasses=[]), "no roots"),
        (document(root_eclasses=["z"]), "unknown root e-class 'z'"),
        (document(nodes={"b0": 3}), "node 'b0': a int"),
        (document(nodes={"b0": NODE | {"eclass": 3}}), "node 'b0': no 'eclass'"),
        (document(nodes={"b0": NODE | {"children": ["q"]}}), "node 'b0': unknown child 'q'"),
        (document(nodes={"b0": NODE | {"children": "q"}}), "node 'b0': malformed 'children'"),
        (document(nodes={"b0": NODE | {"cost": float("nan")}}), "node 'b0': cost nan"),
        (document(nodes={"b0": NODE | {"cost": float("inf")}}), "node 'b0': cost inf"),
        (document(nodes={"b0": NODE | {"cost": -1}}), "node 'b0': cost -1"),
        (document(nodes={"b0": NODE | {"cost": "3"}}), "node 'b0': cost '3'"),
        (document(nodes={"b0": NODE | {"children": ["b0"]}}), "no acyclic choice"),
    ],
)
def test_malformed_documents_are_refused_with_a_reason(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ExtractionError) as caught:
        read_gym(path)
    assert str(caught.value).startswith(str(path))
    assert message in str(caught.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ExtractionError, match=r"nowhere\.json: cannot be read"):
        read_gym(tmp_path / "nowhere.json")
