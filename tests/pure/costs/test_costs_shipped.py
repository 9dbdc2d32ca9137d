"""The measured entries that come with eqsat."""

from importlib import resources

import pytest

from eqsat.costs.devices.device import DEVICES
from eqsat.costs.model.model import CostModel
from eqsat.costs.table import shipped
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.lines import read_records, write_records
from eqsat.costs.table.table import CostTable

SHIPPED = resources.files("eqsat.costs") / "devices"
FILES = {f.name.removesuffix(".jsonl"): f for f in SHIPPED.iterdir() if f.name.endswith(".jsonl")}


@pytest.fixture(autouse=True)
def _as_shipped(monkeypatch):
    """With the files themselves, which other tests do without."""
    monkeypatch.setattr(shipped, "FOLDER", SHIPPED)
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()
    yield
    shipped.shipped_records.cache_clear()
    shipped.shipped_entries.cache_clear()


def test_every_device_that_was_fitted_has_entries_and_all_entries_have_a_device():
    assert {name for name, device in DEVICES.items() if device.kind == "measured"} <= set(FILES) <= set(DEVICES)


@pytest.mark.parametrize("device", FILES)
def test_a_shipped_file_is_as_export_writes_it_and_import_takes_it(device):
    text = FILES[device].read_text(encoding="utf-8")
    records = list(read_records(text, f"{device}.jsonl"))
    assert {r.environment.device for r in records} == {device}
    assert write_records(records) == text
    assert len(text) < 8_000_000


@pytest.mark.parametrize("device", FILES)
def test_shipped_entries_are_costs_in_their_environment_alone(device, monkeypatch):
    records = shipped.shipped_records(device)
    there = records[0].environment
    monkeypatch.setattr(Environment, "current", staticmethod(lambda *_: there))
    entries = CostTable(":memory:").entries(there)
    assert entries == {r.key: r.entry for r in records if r.environment == there}
    assert CostModel(device, CostTable(":memory:")).measured == entries
    assert CostTable(":memory:").environments() == {}
