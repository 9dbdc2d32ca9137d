"""The published schema of reports in JSON."""

from __future__ import annotations

import copy
import json
from dataclasses import replace

import jsonschema
import numpy as np
import pytest

import eqsat
from eqsat.certify.record import CheckedRegion
from eqsat.report.record import SCHEMA
from eqsat.report.schema import FILE, report_schema, schema_text
from tests.pure.report.test_report import CHANGED, UNCHANGED

REPORTS = {
    "changed": CHANGED,
    "unchanged": UNCHANGED,
    "odd numbers": replace(CHANGED, gap=float("nan"), enodes=np.int64(7), cost_after=np.float32(0.5)),
    "no input": replace(CHANGED, input=None, machine=None),
}


def closed(schema):
    """The schema with no property beside those that it names."""
    if isinstance(schema, dict):
        more = {"additionalProperties": False} if "properties" in schema else {}
        return {key: closed(value) for key, value in schema.items()} | more
    return [closed(value) for value in schema] if isinstance(schema, list) else schema


def check(report, schema=None):
    validator = jsonschema.Draft202012Validator(schema or report_schema())
    assert [error.message for error in validator.iter_errors(json.loads(report.json()))] == []


def test_the_file_is_that_of_the_types():
    assert FILE.read_text(encoding="utf-8") == schema_text(), "python -m eqsat.report.schema writes it"


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(report_schema())
    assert CHANGED.to_json()["schema"] == SCHEMA


@pytest.mark.parametrize("report", REPORTS.values(), ids=REPORTS)
def test_reports_have_the_fields_of_the_schema_and_no_others(report):
    check(report, closed(report_schema()))


@pytest.mark.parametrize(
    "options", [{}, {"measure": False}, {"time_limit": 1e-6}, {"objective": {"flops": 1.0}}], ids=str
)
def test_reports_of_runs_fit_the_schema(options):
    g = eqsat.Graph("g")
    x = g.input("x", ("batch", 8))
    w = np.eye(8, dtype=np.float32) + 1
    g.output("y", (x @ w) + (x @ (2 * w)))
    check(eqsat.optimize(g, **options).report, closed(report_schema()))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes_before",), "343"),
        (("certificate", "kind"), None),
        (("finalists", 0, "predicted"), "cheap"),
        (("input", "sha256"), 7),
        (("growth", 0), ["simplify", 1]),
        (("changes", 0, "rules"), "a rule"),
        (("schema",), SCHEMA + 1),
    ],
)
def test_the_schema_refuses_what_no_report_has(path, value):
    wrong = copy.deepcopy(CHANGED.to_json())
    holder = wrong
    for key in path[:-1]:
        holder = holder[key]
    holder[path[-1]] = value
    assert not jsonschema.Draft202012Validator(report_schema()).is_valid(wrong)


def test_a_field_that_is_missing_is_refused():
    for name in CHANGED.to_json():
        less = {key: value for key, value in CHANGED.to_json().items() if key != name}
        assert not jsonschema.Draft202012Validator(report_schema()).is_valid(less)


def test_parts_of_a_certificate_are_named():
    definition = report_schema()["$defs"][CheckedRegion.__name__]
    assert definition["properties"]["kind"] == {"enum": ["exact", "float64"]}
