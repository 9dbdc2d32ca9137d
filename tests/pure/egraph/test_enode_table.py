"""The table of distinct e-nodes, and conditions that are asked once for all that they cannot tell apart."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from eqsat.egraph.encode import encode
from eqsat.egraph.engine import Engine
from eqsat.egraph.matching.match import Binder, Match
from eqsat.egraph.matching.query import compile_query
from eqsat.egraph.nodes import ENodeTable, Key
from eqsat.language.graphs.builder import Builder
from eqsat.rewrites.rules.parser import parse_rules


class _Classes:
    """Classes of numbers by their lowest, searched from the beginning each time."""

    def __init__(self) -> None:
        self.leaders: list[int] = []

    def members(self, leader: int) -> list[int]:
        return [number for number, own in enumerate(self.leaders) if own == leader]

    def find(self, number: int) -> int:
        return self.leaders[number]

    def join(self, a: int, b: int) -> tuple[int, int]:
        keep, drop = sorted((self.leaders[a], self.leaders[b]))
        self.leaders = [keep if own == drop else own for own in self.leaders]
        return keep, drop


@given(st.data())
def test_the_table_is_what_keying_every_enode_anew_makes(data: st.DataObject) -> None:
    table, classes = ENodeTable(), _Classes()
    made: list[Key] = []
    for _ in range(data.draw(st.integers(1, 6))):
        for _ in range(data.draw(st.integers(0, 5))):
            drawn = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=2)) if made else []
            operands = tuple(map(classes.find, drawn))
            key = (data.draw(st.sampled_from("fg")), data.draw(st.integers(0, 1)), operands)
            if table.get(key) is None:
                assert table.add(key) == len(made)
                made.append(key)
                classes.leaders.append(len(classes.leaders))
        for _ in range(data.draw(st.integers(0, 3)) if made else 0):
            keep, drop = classes.join(*(data.draw(st.integers(0, len(made) - 1)) for _ in "ab"))
            if keep != drop:
                table.join(keep, drop)
        age = table.age
        before = {leader: [table.members(leader, op) for op in "fg"] for leader in classes.leaders}
        table.rebuild(classes.find, classes.members)
        expected: dict[Key, int] = {}
        for number, (op, attrs, read) in enumerate(made):
            expected.setdefault((op, attrs, tuple(map(classes.find, read))), number)
        assert table.distinct() == [(*key, number) for key, number in expected.items()]
        assert len(table) == len(expected) and all(table.get(key) == number for key, number in expected.items())
        for leader in set(classes.leaders):
            own = [(key, n) for key, n in expected.items() if classes.find(n) == leader]
            assert set(table.readers(leader)) == {n for key, n in expected.items() if leader in key[2]}
            for op in "fg":
                assert list(table.members(leader, op)) == [(key[1], key[2], n) for key, n in own if key[0] == op]
            # What is said to be as it was then is.
            if table.is_older(leader, age):
                assert before[leader] == [table.members(leader, op) for op in "fg"]


def test_a_condition_is_asked_again_once_a_class_is_known_to_be_something_else() -> None:
    g = Builder("later")
    x, y = g.input("x", (4,)), g.input("y", (4,))
    g.output("a", x * y)
    g.output("b", -g.constant(np.ones(4, np.float32)))
    encoding = encode(g.build())
    egraph = encoding.egraph
    (rule,) = parse_rules("gone: x * c => x if is_all(c, 1)", origin="candidate")
    query = compile_query(rule, egraph.arities)
    assert query is not None
    binder = Binder(egraph, query)
    product = egraph.nodes[encoding.roots["a"]]
    columns = [*product.operands, encoding.roots["a"], egraph.attr_id(product.op, product.attrs)]
    assert binder.bind(tuple(columns), {}) == "not a small constant"
    ones = next(number for number, node in enumerate(egraph.nodes) if node.op == "const")
    egraph.union(product.operands[1], ones, "told")
    egraph.rebuild()
    columns[1] = egraph.find(columns[1])
    assert isinstance(binder.bind(tuple(columns), {}), Match)
    assert isinstance(binder.bind(tuple(columns), {}), Match)
    columns[1] = columns[0]
    assert binder.bind(tuple(columns), {}) == "not a small constant"


def test_classes_that_conditions_cannot_tell_apart_have_one_number() -> None:
    g = Builder("alike")
    x, y, z = g.input("x", (4,)), g.input("y", (4,)), g.input("z", (5,))
    one, two = (g.constant(np.full(4, value, np.float32)) for value in (1, 2))
    for number, value in enumerate((x * one, y * two, -z, -(x * one))):
        g.output(f"y{number}", value)
    egraph = encode(g.build()).egraph
    seen = {
        node.attrs["name"] if node.op == "input" else n: egraph.facts_seen(n) for n, node in enumerate(egraph.nodes)
    }
    assert seen["x"] == seen["y"] != seen["z"]
    constants = [seen[n] for n, node in enumerate(egraph.nodes) if node.op == "const"]
    assert len({*constants, seen["x"]}) == 3, "the elements of constants are told apart"


def test_enodes_are_handed_over_in_any_order() -> None:
    engine = Engine()
    engine.constructor("leaf", 0)
    engine.constructor("two", 2)
    engine.insert(9, "two", 0, (3, 4))
    engine.insert(8, "two", 0, (3, 3))
    engine.insert(3, "leaf", 1, ())
    engine.insert(4, "leaf", 2, ())
    assert sorted(map(sorted, engine.read([])[0])) == [[3], [4], [8], [9]]
    engine.union(3, 4)
    assert sorted(map(sorted, engine.read([])[0])) == [[3, 4], [8, 9]]
