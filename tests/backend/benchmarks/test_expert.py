"""The collection of experts' graphs: both sides of each case are equal, and outcomes are counted as stated."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from click.testing import CliRunner

from benchmarks.expert.__main__ import main
from benchmarks.expert.case import Case, Maker, Pair
from benchmarks.expert.cases import CASES
from benchmarks.expert.outcomes import DEVICES, class_of, counted, difference, worst


def test_there_are_enough_cases_with_names_of_their_own() -> None:
    assert len(CASES) >= 200
    assert [key for key, often in Counter((case.group, case.name) for case in CASES).items() if often > 1] == []
    assert all(case.source for case in CASES)


@pytest.mark.parametrize("group", sorted({case.group for case in CASES}))
def test_both_sides_of_a_case_are_equal(group: str) -> None:
    apart = {case.name: difference(*case.graphs()) for case in CASES if case.group == group}
    assert {name: far for name, far in apart.items() if not far < 1e-4} == {}


def test_sides_that_differ_are_told() -> None:
    def wrong(m: Maker) -> Pair:
        x = m.x(4, 4)
        return x + 1.0, x + 2.0

    assert difference(*Case("none", "wrong", "nobody", wrong).graphs()) > 0.1


@pytest.mark.parametrize(
    ("before", "after", "expert", "wanted"),
    [
        (2.0, 1.005, 1.0, "reached"),
        (2.0, 0.8, 1.0, "reached"),
        (2.0, 1.05, 1.0, "close"),
        (2.0, 1.5, 1.0, "part"),
        (2.0, 2.0, 1.0, "missed"),
        (2.0, 3.0, 1.0, "missed"),
        (1.0, 1.0, 1.005, "nothing to gain"),
        (1.0, 0.5, 1.0, "reached"),
    ],
)
def test_the_way_to_the_experts_cost(before: float, after: float, expert: float, wanted: str) -> None:
    assert class_of(before, after, expert) == wanted


def test_a_case_counts_by_the_worse_of_the_devices_with_something_to_gain() -> None:
    def row(*classes: str) -> dict[str, object]:
        return {"group": "g", **{device: {"class": name} for device, name in zip(DEVICES, classes, strict=True)}}

    assert worst(row("reached", "part")) == "part"
    assert worst(row("nothing to gain", "close")) == "close"
    assert worst(row("nothing to gain", "nothing to gain")) == "nothing to gain"
    assert counted([row("reached", "part"), row("close", "close")])["all"] == {"part": 1, "close": 1}
    assert counted([{"group": "chains", "name": "long", "failed": "TimeUp"}])["all"] == {"missed": 1}


def test_the_command_writes_the_rows_of_the_cases_asked_for(tmp_path) -> None:
    target = tmp_path / "expert.json"
    done = CliRunner().invoke(main, ["doubled", "--group", "published", "--json", str(target)])
    assert done.exit_code == 0, done.output
    (row,) = json.loads(target.read_text())["models"]
    assert (row["name"], worst(row)) == ("doubled and halved", "reached")
    assert "published" in done.output
