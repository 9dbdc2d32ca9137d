"""Evidence goes stale when a function computes something else, and not when it is worded better."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import FunctionType

import pytest

from eqsat.rewrites.conditions.functions import FUNCTIONS
from eqsat.rewrites.rules.evidence import is_current, rule_hash
from eqsat.rewrites.rules.loader import shipped_evidence, shipped_rules
from eqsat.rewrites.rules.meaning import fingerprint
from eqsat.rewrites.rules.parser import parse_rules

AS_IT_WAS = '''
def helper(x):
    """Double it."""
    return x + x


@staticmethod
def wide(x, axis=0):
    """Whether a tensor is wide.

    At length.
    """
    # A comment.
    made = [helper(one) for one in x.shape[axis:]]

    def inner(n):
        """Inner words."""
        return n > 8

    return any(inner(one) for one in made), "text"


wide = wide.__func__
'''
THE_SAME = {
    "docstring": ("Whether a tensor is wide.", "True if any dimension is above eight."),
    "no docstring": ('    """Inner words."""\n', ""),
    "comment": ("# A comment.", "# Why it is so."),
    "docstring of what is called": ("Double it.", "Twice a number."),
    "blank lines": ("\n\n    def inner", "\n    def inner"),
    "name of a local": ("made", "doubled"),
    "name of a loop's variable": ("one", "size"),
    "line breaks": ("return n > 8", "return (\n            n\n            > 8\n        )"),
}
ANOTHER = {
    "number": ("n > 8", "n > 7"),
    "operator": ("n > 8", "n >= 8"),
    "default": ("axis=0", "axis=1"),
    "parameter": ("axis", "dim"),
    "attribute": ("x.shape", "x.form"),
    "what is called": ("return x + x", "return x * x"),
    "text that is returned": ('"text"', '"texts"'),
    "order": ("inner(one) for one in made", "inner(made) for made in made"),
    "an empty text": ('"text"', '""'),
    "a docstring that is no docstring": ('    """Inner words."""\n', '    _ = """Inner words."""\n'),
}


def function(folder: Path, text: str) -> FunctionType:
    path = folder / f"module_{len(list(folder.iterdir()))}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("module_under_test", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    made = module.wide
    assert isinstance(made, FunctionType)
    return made


@pytest.mark.parametrize("change", THE_SAME)
def test_wording_leaves_evidence_as_it_is(change: str, tmp_path: Path) -> None:
    old, new = THE_SAME[change]
    assert old in AS_IT_WAS
    assert fingerprint(function(tmp_path, AS_IT_WAS)) == fingerprint(function(tmp_path, AS_IT_WAS.replace(old, new)))


@pytest.mark.parametrize("change", ANOTHER)
def test_a_changed_body_makes_evidence_stale(change: str, tmp_path: Path) -> None:
    old, new = ANOTHER[change]
    assert old in AS_IT_WAS
    assert fingerprint(function(tmp_path, AS_IT_WAS)) != fingerprint(function(tmp_path, AS_IT_WAS.replace(old, new)))


def test_a_local_that_becomes_a_keyword_of_another_name_is_a_change(tmp_path: Path) -> None:
    text = "def wide(x):\n    axis = 1\n    return x.f(axis=axis)\n"
    assert fingerprint(function(tmp_path, text)) != fingerprint(function(tmp_path, text.replace("axis", "dim")))


def test_lambdas_go_by_their_trees_too(tmp_path: Path) -> None:
    text = "wide = lambda x: [one + 1 for one in x]\n"
    before = fingerprint(function(tmp_path, text))
    assert before == fingerprint(function(tmp_path, "# Adds.\n" + text.replace("one", "size")))
    assert before != fingerprint(function(tmp_path, text.replace("1", "2")))


def test_functions_without_a_file_go_by_their_code() -> None:
    def typed(text: str) -> FunctionType:
        made: dict[str, FunctionType] = {}
        exec(compile(text, "<typed>", "exec"), made)
        return made["f"]

    assert fingerprint(typed("def f(x): return x + 1")) == fingerprint(typed("def f(x):\n\n    return x + 1"))
    assert fingerprint(typed("def f(x): return x + 1")) != fingerprint(typed("def f(x): return x + 2"))


def test_rules_follow_the_functions_of_their_conditions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (rule,) = parse_rules("r: relu(relu(x)) => relu(x) if wide(x)")
    hashes = []
    for text in (AS_IT_WAS, AS_IT_WAS.replace(*THE_SAME["docstring"]), AS_IT_WAS.replace(*ANOTHER["number"])):
        monkeypatch.setitem(FUNCTIONS, "wide", function(tmp_path, text))
        hashes.append(rule_hash(rule))
    assert hashes[0] == hashes[1] != hashes[2]


def test_every_shipped_record_is_current() -> None:
    evidence, rules = shipped_evidence(), shipped_rules()
    by_name = {rule.name: rule for rule in rules}
    assert [r.name for r in rules if not is_current(r, evidence.get(r.name), by_name)] == []
