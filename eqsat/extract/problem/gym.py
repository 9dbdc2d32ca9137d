"""Reads the public egraph-serialize JSON format, which extractor benchmarks use, into an extraction problem."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from eqsat.errors import ExtractionError
from eqsat.extract.problem.problem import Goal, Problem, ProblemNode

DOCUMENT = "an egraph-serialize document: an object with 'nodes' and 'root_eclasses'"


class SerializedProblem(Problem):
    """The problem of an egraph-serialize document; `eclasses` are the ids that the document gives its e-classes."""

    def __init__(self, nodes: Sequence[ProblemNode], roots: Sequence[Goal], eclasses: Sequence[str]) -> None:
        self.eclasses = tuple(eclasses)
        super().__init__(nodes, roots)

    def describe(self, goal: Goal) -> str:
        """The name of a goal in messages: the id that the document gives its e-class."""
        return f"e-class {self.eclasses[goal[0]]!r}"


def read_gym(path: str | Path) -> SerializedProblem:
    """The problem of an egraph-serialize file; e-classes are numbered in order of appearance, nodes keep their ids.

    Raises ExtractionError for a file that cannot be read, is not in the format, or has no solution.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ExtractionError(
            f"cannot be read: {error.strerror or error}", where=str(path), expected="a file of JSON"
        ) from error
    except UnicodeDecodeError as error:
        raise ExtractionError(
            f"cannot be read: byte {error.start} is no UTF-8",
            where=str(path),
            expected="JSON in UTF-8",
            remedy="unpack the file if it is compressed, or write it again as UTF-8",
        ) from error
    try:
        return parse_gym(text)
    except ExtractionError as error:
        raise error.at(str(path)) from error


def parse_gym(text: str) -> SerializedProblem:
    """The problem of an egraph-serialize document.

    A node without a cost costs 1. A subsumed node is never chosen, as egglog's own extraction does not choose it, but
    other nodes may still name it as a child, which stands for its e-class. Operators, data of classes and keys that the
    format does not know play no part in the choice.
    """
    document = _document(text)
    entries = document["nodes"]
    classes: dict[str, int] = {}
    for name, entry in entries.items():
        _check_entry(name, entry)
        classes.setdefault(entry["eclass"], len(classes))
    roots = _roots(document.get("root_eclasses", []), entries, classes)
    class_of = {name: (classes[entry["eclass"]], 0) for name, entry in entries.items()}
    nodes: list[ProblemNode] = []
    for name, entry in entries.items():
        children = entry.get("children", ())
        try:
            operands = tuple([class_of[child] for child in children])
        except KeyError as error:
            raise _unknown_child(name, error.args[0], entries, classes) from None
        if not entry.get("subsumed", False):
            nodes.append(ProblemNode(class_of[name][0], operands, float(entry.get("cost", 1.0)), name=name))
    nodes = _extractable(nodes, roots, list(classes), class_of.values())
    return SerializedProblem(nodes, roots, list(classes))


class _Repeated(dict[str, Any]):
    """A JSON object in which a key stands more than once."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(name for name, _ in pairs)
        self.key = next(name for name, _ in pairs if counts[name] > 1)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    return entries if len(entries) == len(pairs) else _Repeated(pairs)


def _document(text: str) -> dict[str, Any]:
    try:
        # An integer of thousands of digits is a float that is infinite, and refused where it is a cost.
        document = json.loads(text, object_pairs_hook=_object, parse_int=float)
    except json.JSONDecodeError as error:
        raise ExtractionError(
            f"not JSON: {error.msg}",
            where=f"line {error.lineno}, column {error.colno}",
            expected=DOCUMENT,
            remedy="write the e-graph out again; the file may be cut off" if error.pos >= len(text.rstrip()) else "",
        ) from error
    except RecursionError as error:
        raise ExtractionError("nested too deeply", expected=DOCUMENT) from error
    if not isinstance(document, dict):
        raise ExtractionError(f"{_kind(document)} at the top level", expected=DOCUMENT)
    if isinstance(document, _Repeated):
        raise ExtractionError(f"{document.key!r} stands twice at the top level", expected="every key once")
    for key, kind in (("nodes", dict), ("root_eclasses", list)):
        if key in document and not isinstance(document[key], kind):
            raise ExtractionError(f"{key!r} is {_kind(document[key])}", expected=f"{_KINDS[kind]}")
    nodes = document.get("nodes", {})
    if not nodes:
        raise ExtractionError(
            "'nodes' is empty" if "nodes" in document else "no 'nodes'",
            expected=DOCUMENT,
            remedy="write the e-graph out with at least one node",
        )
    if isinstance(nodes, _Repeated):
        raise ExtractionError(
            f"duplicate id {nodes.key!r}",
            where="nodes",
            expected="every id once",
            remedy="give each e-node an id of its own; which of the two is meant cannot be known",
        )
    return document


_KINDS: dict[type, str] = {
    dict: "an object",
    list: "a list",
    str: "a string",
    float: "a number",
    bool: "a boolean",
    type(None): "null",
}


def _kind(value: Any) -> str:
    return next(name for kind, name in _KINDS.items() if isinstance(value, kind))


def _check_entry(name: str, entry: Any) -> None:
    if not isinstance(entry, dict):
        raise _malformed(name, _kind(entry), "an object with 'eclass', 'children' and 'cost'")
    if isinstance(entry, _Repeated):
        raise _malformed(name, f"{entry.key!r} stands twice", "every key once")
    if not isinstance(entry.get("eclass"), str):
        what = f"'eclass' is {_kind(entry['eclass'])}" if "eclass" in entry else "no 'eclass'"
        raise _malformed(name, what, "'eclass' to be a string, the id of an e-class")
    children = entry.get("children", ())
    if not isinstance(children, list | tuple):
        raise _malformed(name, f"'children' is {_kind(children)}", "a list of node ids")
    for child in children:
        if not isinstance(child, str):
            raise _malformed(name, f"a child is {_kind(child)}", "children to be node ids, which are strings")
    if not isinstance(entry.get("subsumed", False), bool):
        raise _malformed(name, f"'subsumed' is {_kind(entry['subsumed'])}", "true or false")
    cost = entry.get("cost", 1.0)
    if not isinstance(cost, float):
        raise _malformed(name, f"'cost' is {_kind(cost)}", "a finite, non-negative number")
    if not (math.isfinite(cost) and cost >= 0):
        raise ExtractionError(
            f"cost {cost!r}",
            where=f"node {name!r}",
            expected="a finite, non-negative number",
            remedy="leave out a node that cannot be used; a number above 1.8e308 reads as infinite",
        )


def _malformed(name: str, what: str, expected: str) -> ExtractionError:
    return ExtractionError(what, where=f"node {name!r}", expected=expected)


def _unknown_child(name: str, child: str, entries: dict[str, Any], classes: dict[str, int]) -> ExtractionError:
    remedy = "write the e-graph out whole, with the nodes that others name"
    if child in classes:
        member = next(other for other, entry in entries.items() if entry["eclass"] == child)
        remedy = f"{child!r} is an e-class; name any of its nodes instead, such as {member!r}"
    return ExtractionError(
        f"unknown child {child!r}",
        where=f"node {name!r}",
        expected="children to be ids of nodes in the same file",
        remedy=remedy,
    )


def _roots(roots: list[Any], entries: dict[str, Any], classes: dict[str, int]) -> list[Goal]:
    if not roots:
        raise ExtractionError(
            "the file names no roots",
            expected="'root_eclasses' to list the e-classes to extract",
            remedy=f'add them to the file, for example "root_eclasses": [{json.dumps(next(iter(classes)))}]',
        )
    for root in roots:
        if not isinstance(root, str):
            raise ExtractionError(
                f"a root e-class is {_kind(root)}", expected="root_eclasses to be ids of e-classes, which are strings"
            )
        if root not in classes:
            node = root in entries
            raise ExtractionError(
                f"unknown root e-class {root!r}",
                expected="root_eclasses to name e-classes of the nodes",
                remedy=f"{root!r} is a node; name its e-class {entries[root]['eclass']!r} instead" if node else "",
            )
    return [(classes[root], 0) for root in roots]


def _extractable(nodes: list[ProblemNode], roots: list[Goal], names: list[str], goals: Any) -> list[ProblemNode]:
    """The nodes left when those go whose operands only had subsumed nodes, and so on; an error where a root has none.

    Without subsumed nodes every e-class has a node, and there is nothing to do.
    """
    left = Counter(node.eclass for node in nodes)
    empty = [eclass for eclass, _ in dict.fromkeys(goals) if not left[eclass]]
    if not empty:
        return nodes
    users: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(nodes):
        for eclass, _ in set(node.operands):
            users[eclass].append(index)
    gone: set[int] = set()
    while empty:
        for index in users[empty.pop()]:
            if index not in gone:
                gone.add(index)
                left[nodes[index].eclass] -= 1
                if not left[nodes[index].eclass]:
                    empty.append(nodes[index].eclass)
    for eclass, _ in roots:
        if not left[eclass]:
            raise ExtractionError(
                f"root e-class {names[eclass]!r} has no node that may be chosen",
                expected="a node that is not subsumed, and whose children's e-classes have such nodes",
                remedy="extract another e-class, or write the e-graph out before nodes are subsumed",
            )
    return [node for index, node in enumerate(nodes) if index not in gone]
