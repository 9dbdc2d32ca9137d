"""The table of extractors: what it reads, what it writes, and that it says where the integer program was beaten."""

import json

from click.testing import CliRunner

from benchmarks.extraction import Job, _better, _row, _summary, main


def graph(*costs):
    """A root over one of two leaves of these costs."""
    nodes = {f"leaf{i}": {"op": "x", "eclass": "leaf", "cost": cost} for i, cost in enumerate(costs)}
    nodes["root"] = {"op": "f", "eclass": "root", "cost": 1, "children": ["leaf0"]}
    return json.dumps({"nodes": nodes, "root_eclasses": ["root"]})


def test_every_extractor_is_run_on_every_file_and_other_rows_stay(tmp_path):
    (tmp_path / "graphs" / "inner").mkdir(parents=True)
    (tmp_path / "graphs" / "inner" / "one.json").write_text(graph(5, 2))
    (tmp_path / "two.json").write_text(graph(3, 4))
    target = tmp_path / "out.json"
    for argument in ("graphs", "two.json"):
        result = CliRunner().invoke(main, [str(tmp_path / argument), "--json", str(target)])
        assert result.exit_code == 0, result.output
    found = json.loads(target.read_text())
    assert [row["graph"] for row in found["graphs"]] == ["graphs/inner/one.json", "two.json"]
    for row, cost in zip(found["graphs"], (3.0, 4.0), strict=True):
        assert {name: f["cost"] for name, f in row["found"].items()} == dict.fromkeys(
            ("ilp", "tree", "dag", "alpha 0.95", "alpha 1", "alpha 1.05", "alpha 1.1"), cost
        )
        assert row["bound"] == cost
    assert [(line["extractor"], line["graphs"], line["at_bound"]) for line in found["summary"][:2]] == [
        ("ilp", 2, 2),
        ("tree", 2, 2),
    ]


def test_a_model_is_extracted_from_its_original_graph_on() -> None:
    row = _row(Job("squeezenet1_1"), time_limit=1.0)
    found = row["found"]
    assert _better(row) == []
    assert found["ilp"]["gap"] <= 1e-9
    assert found["original"]["cost"] >= found["alpha 0.95"]["cost"] >= found["alpha 1"]["cost"]
    assert found["original"]["gap"] > 0.01


def test_a_baseline_that_beats_the_integer_program_is_named():
    found = {
        name: {"cost": cost, "gap": 0.5, "seconds": 1.0} for name, cost in (("ilp", 2.0), ("tree", 3.0), ("dag", 1.0))
    }
    row = {"graph": "g", "kind": "file", "found": found}
    assert _better(row) == ["dag"]
    assert [line["mean_cost_over_ilp"] for line in _summary([row])] == [1.0, 1.5, 0.5]


def test_an_argument_that_is_no_graph_is_refused():
    result = CliRunner().invoke(main, ["nothing"])
    assert result.exit_code == 2
    assert "no model, file or folder 'nothing'" in result.output
