"""The egraph-serialize reader: what it reads, and what it says about files it cannot read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eqsat.errors import ExtractionError
from eqsat.extract import solve
from eqsat.extract.problem.gym import parse_gym, read_gym

NODE = {"op": "f", "eclass": "b", "children": [], "cost": 1.0}
HELD = "an egraph-serialize document: an object with 'nodes' and 'root_eclasses'"


def document(**changes: object) -> str:
    nodes = {
        "a0": {"op": "x", "cost": 2.0, "eclass": "a", "children": []},
        "a1": {"op": "y", "cost": 5, "eclass": "a"},
        "b0": {"op": "f", "cost": 1.0, "eclass": "b", "children": ["a1", "a0"]},
    }
    return json.dumps({"nodes": nodes, "root_eclasses": ["b"]} | changes)


def node(text: str) -> str:
    """A document whose node b0 holds this JSON besides its e-class."""
    return f'{{"nodes": {{"b0": {{"op": "f", "eclass": "b", {text}}}}}, "root_eclasses": ["b"]}}'


def chosen(text: str) -> list[str]:
    problem = parse_gym(text)
    solution = solve(problem)
    solution.check(problem)
    return sorted(problem.nodes[n].name for n in solution.chosen.values())


def test_children_stand_for_their_classes(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(document())
    problem = read_gym(path)
    assert [node.name for node in problem.nodes] == ["a0", "a1", "b0"]
    assert problem.eclasses == ("a", "b")
    assert solve(problem).cost == 3.0
    assert chosen(document()) == ["a0", "b0"]


def test_a_byte_order_mark_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "graph.json"
    path.write_text(document(), encoding="utf-8-sig")
    assert solve(read_gym(path)).cost == 3.0


def test_a_missing_cost_is_one_and_integers_are_costs() -> None:
    assert parse_gym(node('"children": []')).nodes[0].cost == 1.0
    assert parse_gym(node('"cost": 7')).nodes[0].cost == 7.0
    assert parse_gym(node(f'"cost": {10**30}')).nodes[0].cost == 1e30


def test_keys_that_say_nothing_about_the_choice_are_passed_over() -> None:
    extra = json.loads(document(class_data={"a": {"type": "Tensor"}}, classes={"a": "Tensor"}, comment="x"))
    extra["nodes"]["a0"]["data"] = {"deep": [[[1]]]}
    del extra["nodes"]["a0"]["op"]
    assert chosen(json.dumps(extra)) == ["a0", "b0"]


def test_a_subsumed_node_is_not_chosen_but_still_stands_for_its_class() -> None:
    nodes = json.loads(document())["nodes"]
    nodes["a0"]["subsumed"] = True
    nodes["a1"]["subsumed"] = False
    nodes["b0"]["children"] = ["a0"]
    assert chosen(document(nodes=nodes)) == ["a1", "b0"]


def test_a_node_over_a_class_of_subsumed_nodes_alone_is_not_chosen_either() -> None:
    nodes = json.loads(document())["nodes"]
    nodes["a0"]["subsumed"] = nodes["a1"]["subsumed"] = True
    nodes["c0"] = NODE | {"eclass": "c", "children": ["b0"]}
    nodes["c1"] = NODE | {"eclass": "c", "cost": 90.0}
    assert chosen(document(nodes=nodes, root_eclasses=["c"])) == ["c1"]


def test_a_root_without_a_node_to_choose_is_refused() -> None:
    nodes = json.loads(document())["nodes"]
    nodes["a0"]["subsumed"] = nodes["a1"]["subsumed"] = True
    with pytest.raises(ExtractionError) as caught:
        parse_gym(document(nodes=nodes))
    assert str(caught.value) == (
        "root e-class 'b' has no node that may be chosen\n"
        "  expected a node that is not subsumed, and whose children's e-classes have such nodes\n"
        "  extract another e-class, or write the e-graph out before nodes are subsumed"
    )


def test_a_cycle_is_told_in_the_names_of_the_file() -> None:
    nodes = {"b0": NODE | {"children": ["c0"]}, "c0": NODE | {"eclass": "loop", "children": ["b0"]}}
    with pytest.raises(ExtractionError) as caught:
        parse_gym(document(nodes=nodes))
    assert str(caught.value) == (
        "e-class 'b' is a root that no acyclic choice of e-nodes delivers\n"
        "  expected a chain of e-nodes from leaves to every root\n"
        "  these depend on each other: e-class 'b' -> e-class 'loop' -> e-class 'b'"
    )


COST = "  expected a finite, non-negative number"
INFINITE = "  leave out a node that cannot be used; a number above 1.8e308 reads as infinite"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("{", ["line 1, column 2: not JSON: Expecting property name enclosed in double quotes", f"  expected {HELD}"]),
        ("", ["line 1, column 1: not JSON: Expecting value", f"  expected {HELD}"]),
        ('{"nodes":\n {"a": ]}', ["line 2, column 8: not JSON: Expecting value", f"  expected {HELD}"]),
        ("[" * 100_000, ["nested too deeply", f"  expected {HELD}"]),
        (node('"data": ' + "[" * 100_000), ["nested too deeply", f"  expected {HELD}"]),
        ("[]", ["a list at the top level", f"  expected {HELD}"]),
        ("null", ["null at the top level", f"  expected {HELD}"]),
        ("true", ["a boolean at the top level", f"  expected {HELD}"]),
        ('"x"', ["a string at the top level", f"  expected {HELD}"]),
        ("3", ["a number at the top level", f"  expected {HELD}"]),
        ('{"root_eclasses": []}', ["no 'nodes'", f"  expected {HELD}"]),
        (document(nodes={}), ["'nodes' is empty", f"  expected {HELD}"]),
        ('{"nodes": [], "root_eclasses": []}', ["'nodes' is a list", "  expected an object"]),
        (document(root_eclasses="b"), ["'root_eclasses' is a string", "  expected a list"]),
        (document(root_eclasses=None), ["'root_eclasses' is null", "  expected a list"]),
        (
            document()[:-1] + ', "nodes": {}}',
            ["'nodes' stands twice at the top level", "  expected every key once"],
        ),
        (
            '{"nodes": {"a": 1, "b": 1, "b": 2}, "root_eclasses": []}',
            ["nodes: duplicate id 'b'", "  expected every id once", "  give each e-node an id of its own; which of"],
        ),
        (
            '{"nodes": {"a0": {"eclass": "a"}}}',
            [
                "the file names no roots",
                "  expected 'root_eclasses' to list the e-classes to extract",
                '  add them to the file, for example "root_eclasses": ["a"]',
            ],
        ),
        (document(root_eclasses=[]), ["the file names no roots", "  expected 'root_eclasses' to list", "  add them"]),
        (document(root_eclasses=["z"]), ["unknown root e-class 'z'", "  expected root_eclasses to name e-classes of"]),
        (
            document(root_eclasses=["b0"]),
            [
                "unknown root e-class 'b0'",
                "  expected root_eclasses to name e-classes of the nodes",
                "  'b0' is a node; name its e-class 'b' instead",
            ],
        ),
        (
            document(root_eclasses=[1]),
            ["a root e-class is a number", "  expected root_eclasses to be ids of e-classes"],
        ),
        (
            document(nodes={"b0": 3}),
            ["node 'b0': a number", "  expected an object with 'eclass', 'children' and 'cost'"],
        ),
        (
            document(nodes={"b0": {}}),
            ["node 'b0': no 'eclass'", "  expected 'eclass' to be a string, the id of an e-cl"],
        ),
        (
            document(nodes={"b0": NODE | {"eclass": 3}}),
            ["node 'b0': 'eclass' is a number", "  expected 'eclass' to be"],
        ),
        (node('"eclass": "c"'), ["node 'b0': 'eclass' stands twice", "  expected every key once"]),
        (node('"cost": 1, "cost": 2'), ["node 'b0': 'cost' stands twice", "  expected every key once"]),
        (
            node('"children": ["q"]'),
            [
                "node 'b0': unknown child 'q'",
                "  expected children to be ids of nodes in the same file",
                "  write the e-graph out whole, with the nodes that others name",
            ],
        ),
        (
            node('"children": ["b"]'),
            [
                "node 'b0': unknown child 'b'",
                "  expected children to be ids of nodes in the same file",
                "  'b' is an e-class; name any of its nodes instead, such as 'b0'",
            ],
        ),
        (node('"children": "q"'), ["node 'b0': 'children' is a string", "  expected a list of node ids"]),
        (node('"children": null'), ["node 'b0': 'children' is null", "  expected a list of node ids"]),
        (
            node('"children": [0]'),
            ["node 'b0': a child is a number", "  expected children to be node ids, which are st"],
        ),
        (
            node('"children": [["q"]]'),
            ["node 'b0': a child is a list", "  expected children to be node ids, which are s"],
        ),
        (node('"subsumed": 1'), ["node 'b0': 'subsumed' is a number", "  expected true or false"]),
        (node('"cost": NaN'), ["node 'b0': cost nan", COST, INFINITE]),
        (node('"cost": Infinity'), ["node 'b0': cost inf", COST, INFINITE]),
        (node('"cost": -Infinity'), ["node 'b0': cost -inf", COST, INFINITE]),
        (node('"cost": 1e999'), ["node 'b0': cost inf", COST, INFINITE]),
        (node(f'"cost": {"9" * 400}'), ["node 'b0': cost inf", COST, INFINITE]),
        (node(f'"cost": {"9" * 5000}'), ["node 'b0': cost inf", COST, INFINITE]),
        (node('"cost": -1'), ["node 'b0': cost -1.0", COST, INFINITE]),
        (node('"cost": "3"'), ["node 'b0': 'cost' is a string", COST]),
        (node('"cost": true'), ["node 'b0': 'cost' is a boolean", COST]),
        (node('"cost": null'), ["node 'b0': 'cost' is null", COST]),
        (
            document(nodes={"a": NODE | {"cost": 1e308}, "b": NODE | {"cost": 1.1e308}}),
            [
                "e-node 'b' of e-class 'b': the costs add up to more than 1.8e308, with 1.1e+308 alone",
                "  expected costs whose sum is a finite number",
                "  give costs in a larger unit",
            ],
        ),
        (
            node('"children": ["b0"]'),
            ["e-class 'b' is a root that no acyclic choice of e-nodes delivers", "  expected a"],
        ),
    ],
)
def test_malformed_documents_are_refused_with_a_reason(text: str, lines: list[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(ExtractionError) as caught:
        read_gym(path)
    said = str(caught.value).split("\n")
    assert said[0] == f"{path}: {lines[0]}"
    for line, expected in zip(said[1:], lines[1:], strict=False):
        assert line.startswith(expected)
    assert len(said) >= len(lines)


def test_a_file_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(document()[:80])
    with pytest.raises(
        ExtractionError, match=r"not JSON: .*\n.*\n  write the e-graph out again; the file may be cut off"
    ):
        read_gym(path)


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "packed.json").write_bytes(b"\x1f\x8b\x08\x00")
    for name, message in (
        ("nowhere.json", "cannot be read: No such file or directory\n  expected a file of JSON"),
        (".", "cannot be read: Is a directory\n  expected a file of JSON"),
        (
            "packed.json",
            "cannot be read: byte 1 is no UTF-8\n  expected JSON in UTF-8\n  unpack the file if it is compressed, or "
            "write it again as UTF-8",
        ),
    ):
        with pytest.raises(ExtractionError) as caught:
            read_gym(tmp_path / name)
        assert str(caught.value) == f"{tmp_path / name}: {message}"


def test_a_duplicate_among_many_ids_is_found() -> None:
    """Comparing each id with each would take minutes."""
    many = ", ".join(f'"n{i}": {{"eclass": "b"}}' for i in range(60_000))
    with pytest.raises(ExtractionError, match="duplicate id 'n59999'"):
        parse_gym(f'{{"nodes": {{{many}, "n59999": {{"eclass": "b"}}}}, "root_eclasses": ["b"]}}')


def test_what_highs_calls_its_bound_on_the_way_is_not_believed() -> None:
    """NASNet-A at costs measured once: by an early bound of 0.2026, 0.19906 was called optimal."""
    solution = solve(read_gym(Path(__file__).parents[2] / "golden" / "nasnet_a.egraph.json"), time_limit=120)
    assert solution.status == "optimal"
    assert solution.cost == pytest.approx(0.19826218578374846, rel=1e-9)
