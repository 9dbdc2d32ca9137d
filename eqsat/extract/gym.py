"""Reads the public egraph-serialize JSON format, which extractor benchmarks use, into an extraction problem."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from eqsat.errors import ExtractionError
from eqsat.extract.problem import Node, Problem


def read_gym(path: str | Path) -> Problem:
    """The problem of an egraph-serialize file; e-classes are numbered in order of appearance, nodes keep their ids.

    Raises ExtractionError for a file that cannot be read, is not in the format, or has no solution.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExtractionError(f"cannot be read: {error}", where=str(path)) from error
    try:
        return parse_gym(text)
    except ExtractionError as error:
        raise error.at(str(path)) from error


def parse_gym(text: str) -> Problem:
    """The problem of an egraph-serialize document."""
    document = _document(text)
    entries = document["nodes"]
    classes: dict[str, int] = {}
    for name, entry in entries.items():
        _check_entry(name, entry)
        classes.setdefault(entry["eclass"], len(classes))
    nodes = []
    for name, entry in entries.items():
        operands = []
        for child in entry.get("children", []):
            if child not in entries:
                raise ExtractionError(
                    f"unknown child {child!r}",
                    where=f"node {name!r}",
                    expected="children to be ids of nodes in the same file",
                )
            operands.append((classes[entries[child]["eclass"]], 0))
        cost = float(entry.get("cost", 1.0))
        nodes.append(Node(classes[entry["eclass"]], tuple(operands), cost, name=name))
    return Problem(nodes, _roots(document["root_eclasses"], classes))


def _document(text: str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            names = [name for name, _ in pairs]
            twice = next(name for name in names if names.count(name) > 1)
            raise ExtractionError(f"duplicate id {twice!r}", expected="every id once")
        return found

    try:
        document = json.loads(text, object_pairs_hook=unique)
    except json.JSONDecodeError as error:
        raise ExtractionError(
            f"not JSON: {error.msg}",
            where=f"line {error.lineno}",
            expected="an egraph-serialize document",
        ) from error
    except RecursionError as error:
        raise ExtractionError("nested too deeply", expected="an egraph-serialize document") from error
    if not isinstance(document, dict):
        raise ExtractionError(
            f"a JSON {type(document).__name__} at the top level", expected="an egraph-serialize object"
        )
    for key, kind in (("nodes", dict), ("root_eclasses", list)):
        if not isinstance(document.get(key), kind):
            raise ExtractionError(
                f"no {key!r}" if key not in document else f"{key!r} is a {type(document[key]).__name__}",
                expected="an object with 'nodes' (an object) and 'root_eclasses' (a list)",
            )
    return document


def _check_entry(name: str, entry: Any) -> None:
    where = f"node {name!r}"
    if not isinstance(entry, dict):
        raise ExtractionError(f"a {type(entry).__name__}", where=where, expected="an object")
    if not isinstance(entry.get("eclass"), str):
        raise ExtractionError("no 'eclass'", where=where, expected="'eclass' to be a string")
    children = entry.get("children", [])
    if not isinstance(children, list) or not all(isinstance(child, str) for child in children):
        raise ExtractionError("malformed 'children'", where=where, expected="a list of node ids")
    cost = entry.get("cost", 1.0)
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        raise ExtractionError(f"cost {cost!r}", where=where, expected="a number")
    if math.isnan(cost) or math.isinf(cost) or cost < 0:
        raise ExtractionError(f"cost {cost!r}", where=where, expected="a finite, non-negative number")


def _roots(roots: list[Any], classes: dict[str, int]) -> list[tuple[int, int]]:
    for root in roots:
        if not isinstance(root, str) or root not in classes:
            raise ExtractionError(
                f"unknown root e-class {root!r}", expected="root_eclasses to name e-classes of the nodes"
            )
    return [(classes[root], 0) for root in roots]
