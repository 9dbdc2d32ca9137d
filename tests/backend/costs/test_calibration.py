"""Costs of another machine, scaled to this one by a few operators that are measured here, once."""

import json
import sqlite3

import numpy as np
import pytest

import eqsat
from eqsat.costs.kernels.applications import keys_of
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring import calibration
from eqsat.costs.measuring.measure import measure
from eqsat.costs.table import shipped
from eqsat.costs.table.entry import Entry, TableRecord
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import write_records
from eqsat.costs.table.table import CostTable, fault
from eqsat.errors import BackendError
from eqsat.language.onnx.read.model import read

HERE = Environment.current()
THERE = Environment("onnxruntime-cpu", "a processor, cpu family 1", HERE.runtime, 1)
FACTOR = 3.0
#: Operators that other ones are measured by: of a launch, of memory, and of products.
PROBES = ("relu {} float32[8]", "add {} float32[400000] float32[400000]", "matmul {} float32[96, 96] float32[96, 96]")


def chain() -> eqsat.Graph:
    graph = eqsat.Graph("chain")
    x = graph.input("x", (64, 48))
    weight = graph.constant(np.random.default_rng(0).standard_normal((48, 32)).astype(np.float32))
    graph.output("y", eqsat.relu(eqsat.tanh(x @ weight) + eqsat.tanh(x @ weight)))
    return graph


@pytest.fixture
def measured(monkeypatch):
    """The texts of the operators that are measured for scales; each takes three times as long here as there."""
    texts = []

    def faked(key, **_):
        texts.append(key.text)
        return Entry(FACTOR * 1e-6, FACTOR * 1e-6, FACTOR * 1e-6, 20)

    monkeypatch.setattr(calibration, "measure", faked)
    return texts


@pytest.fixture
def elsewhere(folder, monkeypatch):
    """Shipped entries of another machine, on which everything takes 1 µs."""
    keys = {key.text: key for key in (*map(OpKey.parse, PROBES), *keys_of(read(chain()).graph))}
    records = [TableRecord(THERE, text, Entry(1e-6, 1e-6, 1e-6, 20)) for text in keys]
    monkeypatch.setattr(shipped, "FOLDER", folder)
    (folder / "onnxruntime-cpu.jsonl").write_text(write_records(records))
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()
    yield
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


@pytest.mark.usefixtures("elsewhere")
class TestCalibration:
    def test_happens_once_for_a_machine_and_scales_the_costs_of_another(self, measured):
        report = eqsat.optimize(chain()).report
        assert set(measured) >= {PROBES[0]}
        assert len(measured) == len(set(measured))
        assert report.seconds["calibrate"] > 0
        assert report.cost_before == pytest.approx(FACTOR * 1e-6 * len(read(chain()).graph.nodes))
        assert (report.estimated_share, report.borrowed_share) == (0.0, 1.0)
        assert report.borrowed_from.startswith("a processor, cpu family 1, onnxruntime ")
        assert "launch 3" in report.borrowed_from
        assert f"borrowed share of cost: 100 %, from {report.borrowed_from[:20]}" in str(report)
        assert report.warnings == []
        count = len(measured)
        again = eqsat.optimize(chain()).report
        assert len(measured) == count
        assert "calibrate" not in again.seconds
        assert again.cost_before == report.cost_before
        unmeasured = [eqsat.optimize(chain(), measure=False).report for _ in range(2)]
        assert [r.cost_before for r in unmeasured] == [report.cost_before] * 2
        assert unmeasured[0].cost_after == unmeasured[1].cost_after

    def test_is_kept_apart_from_the_costs_of_this_machine(self, measured):
        eqsat.optimize(chain())
        with CostTable() as table:
            assert table.entries(HERE) == {}
            assert set(table.own(HERE.calibration)) == set(measured)
            assert table.mismatch(HERE) is None

    def test_shows_its_progress(self, measured):
        news = []
        eqsat.optimize(chain(), progress=news.append)
        details = [one.detail for one in news if one.phase == "calibrate" and one.detail]
        assert details == [f"{done} of {len(measured)} operators" for done in range(len(measured))]

    def test_ends_when_asked_and_goes_on_in_the_next_run(self, measured):
        report = eqsat.optimize(chain(), should_stop=lambda: bool(measured)).report
        assert len(measured) == 1
        assert report.borrowed_share == 1.0
        eqsat.optimize(chain())
        assert len(measured) == len(set(measured)) > 1

    @pytest.mark.parametrize(
        ("options", "reason"),
        [
            ({"measure": False}, "since nothing is to be measured"),
            ({"time_limit": 3.0}, "since there is no time to measure"),
            ({"steps": 100_000, "measure": False}, "since steps are counted"),
        ],
    )
    def test_is_left_out_where_nothing_may_run_and_a_warning_says_why(self, measured, options, reason):
        report = eqsat.optimize(chain(), **options).report
        assert measured == []
        (warning,) = [w for w in report.warnings if "another environment" in w]
        assert warning.startswith(
            "costs were measured in another environment: cpu is 'a processor, cpu family 1', here '"
        )
        assert warning.endswith(f"; not scaled to this one, {reason}")
        assert report.cost_before == pytest.approx(1e-6 * len(read(chain()).graph.nodes))
        assert report.borrowed_from.endswith("not scaled")

    def test_counts_for_nothing_where_steps_are_counted(self, measured):
        steps = {"steps": 100_000, "measure": False}
        before = eqsat.optimize(chain(), **steps).report
        eqsat.optimize(chain())
        after = eqsat.optimize(chain(), **steps).report
        assert (before.cost_before, before.cost_after) == (after.cost_before, after.cost_after)

    def test_of_operators_that_do_not_run_here_leaves_the_others(self, monkeypatch):
        def faked(key, **_):
            if key.op == "relu":
                raise BackendError("refused")
            return Entry(FACTOR * 1e-6, FACTOR * 1e-6, FACTOR * 1e-6, 20)

        monkeypatch.setattr(calibration, "measure", faked)
        report = eqsat.optimize(chain()).report
        assert report.cost_before == pytest.approx(FACTOR * 1e-6 * len(read(chain()).graph.nodes))

    def test_of_operators_that_there_is_no_memory_for_leaves_the_others(self, monkeypatch):
        def faked(key, **_):
            if key.op == "matmul":
                raise MemoryError
            return Entry(FACTOR * 1e-6, FACTOR * 1e-6, FACTOR * 1e-6, 20)

        monkeypatch.setattr(calibration, "measure", faked)
        report = eqsat.optimize(chain()).report
        assert report.cost_before == pytest.approx(FACTOR * 1e-6 * len(read(chain()).graph.nodes))

    def test_says_why_there_are_no_scales_where_no_operator_runs_here(self, monkeypatch):
        def faked(key, **_):
            raise BackendError("refused")

        monkeypatch.setattr(calibration, "measure", faked)
        (warning,) = [w for w in eqsat.optimize(chain()).report.warnings if "another environment" in w]
        assert warning.endswith("; not scaled to this one, since none of its operators could be measured here")

    def test_in_a_table_that_cannot_be_written_any_more_is_no_failure(self, measured, monkeypatch):
        def full(table, *_):
            raise fault(table.path, sqlite3.OperationalError("database or disk is full"))

        monkeypatch.setattr(CostTable, "put", full)
        report = eqsat.optimize(chain()).report
        assert len(measured) == 1
        assert not report.failure
        (warning,) = [w for w in report.warnings if "another environment" in w]
        assert warning.endswith("; not scaled to this one, since the cost table failed: database or disk is full")

    def test_is_told_apart_by_costs_show_and_costs_check(self, measured, run):
        eqsat.optimize(chain())
        _, out, _ = run("costs", "show", "--device", "onnxruntime-cpu")
        assert "measured here to scale the entries of another environment; no costs" in out
        assert "another environment, used here for operators that were not measured, times " in out
        uses = {
            e["use"]
            for e in json.loads(run("costs", "show", "--json", "--device", "onnxruntime-cpu")[1])["environments"]
        }
        assert uses == {"calibration", "borrowed"}
        code, out, _ = run("costs", "check")
        assert (code, "missed by a factor of 1.00" in out) == (0, True)
        assert json.loads(run("costs", "check", "--json")[1])["borrowed"]["median"] == pytest.approx(1.0)


def test_nothing_is_measured_where_no_other_machine_is_known(folder, measured):
    assert "calibrate" not in eqsat.optimize(chain()).report.seconds
    assert measured == []


def test_a_product_is_measured_cold_and_hot_and_other_operators_cold():
    product = measure(OpKey.parse("matmul {} float32[1, 256] =float32[256, 256]"))
    assert 0 < product.hot <= product.seconds
    for text in ("relu {} float32[1024]", "matmul {} float32[4, 16] =float32[16, 16]", PROBES[2]):
        assert measure(OpKey.parse(text)).hot is None
    # Copies of a convolution that share their filters too would be one.
    filters = 'conv {"activation":"none","dilations":[1,1],"group":1,"pads":[0,0,0,0],"strides":[1,1]} '
    assert measure(OpKey.parse(filters + "float32[1, 128, 7, 7] =float32[256, 128, 1, 1] -")).hot is None
