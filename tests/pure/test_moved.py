"""Modules are found where documentation once named them, with a warning that says where they are."""

from __future__ import annotations

import importlib
import subprocess
import sys

import pytest

import eqsat
from eqsat.language.sizes.solve import sizing_of
from eqsat.moved import MOVED


@pytest.mark.parametrize("earlier", MOVED)
def test_a_module_is_found_at_its_earlier_place(earlier: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, f"eqsat.{earlier}", raising=False)
    with pytest.warns(DeprecationWarning, match=f"eqsat.{earlier} is eqsat.{MOVED[earlier]} now"):
        module = importlib.import_module(f"eqsat.{earlier}")
    real = importlib.import_module(f"eqsat.{MOVED[earlier]}")
    public = [name for name in vars(real) if not name.startswith("_")]
    assert all(getattr(module, name) is getattr(real, name) for name in public)
    with pytest.raises(AttributeError):
        _ = module.nonsense


@pytest.mark.parametrize(
    ("statement", "now"),
    [
        ("from eqsat.costs.table import CostTable", "eqsat.costs.table.table.CostTable"),
        ("from eqsat.costs.model import CostModel", "eqsat.costs.model.model.CostModel"),
        ("from eqsat.report import Report", "eqsat.report.report.Report"),
        ("from eqsat.rewrites.parser import parse_rules", "eqsat.rewrites.rules.parser"),
        ("from eqsat.language.spec import OPS, REQUIRED, OpSpec, op, spec", "eqsat.language.declaration.spec"),
        (
            "from eqsat.rewrites.factory.generate import Settings, generate",
            "eqsat.rewrites.discovery.enumerate.generate",
        ),
        ("from eqsat.runtime.cuda.source import Source", "eqsat.runtime.kernels.source"),
    ],
)
def test_scripts_of_before_run_and_hear_where_names_are(statement: str, now: str) -> None:
    command = [sys.executable, "-W", "always::DeprecationWarning", "-c", statement]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert f"DeprecationWarning: {statement.split()[1]}" in done.stderr
    assert f"is {now} now" in done.stderr


def test_the_sizes_of_a_graph_are_found_at_their_earlier_place() -> None:
    g = eqsat.Graph("named")
    g.output("y", eqsat.relu(g.input("x", ("n", 2))))
    graph = g.build()
    with pytest.warns(DeprecationWarning, match=r"Graph\.sizing is eqsat\.language\.sizes\.solve\.sizing_of now"):
        assert graph.sizing is sizing_of(graph)


def test_a_module_that_never_was_is_not_found() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"eqsat\.rewrites\.nonsense"):
        importlib.import_module("eqsat.rewrites.nonsense")
    with pytest.raises(AttributeError, match="nonsense"):
        importlib.import_module("eqsat.costs.table").nonsense  # noqa: B018
