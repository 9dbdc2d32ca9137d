"""Devices of one's own: files, their errors, and where their names count."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

import eqsat
from eqsat.costs.devices.device import DEVICES, Device, read_device, write_device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment, kind_of
from eqsat.costs.table.table import CostTable
from eqsat.errors import CostError, UsageError
from eqsat.language.terms import TensorType
from eqsat.options.options import Options

CPU = DEVICES["onnxruntime-cpu"]


@pytest.fixture
def mine(tmp_path):
    """The file of a device, ten times as slow as the one that is shipped."""
    slow = {name: rate / 10 for name, rate in CPU.flops.items()}
    device = replace(CPU, name="my-laptop", kind="roofline", flops=slow, launch=1e-3, source="a guess")
    path = tmp_path / "mine.json"
    path.write_text(write_device(device))
    return path


def changed(path, **fields):
    """The file with some fields changed, or removed where they are None."""
    known = {**json.loads(path.read_text()), **fields}
    path.write_text(json.dumps({name: value for name, value in known.items() if value is not None}))
    return path


@pytest.mark.parametrize("given", [str, Path])
def test_a_device_in_a_file_is_taken_wherever_a_name_is(given, mine):
    device = Device.of(given(mine))
    assert (device.name, device.launch, device.flops["float32"]) == ("my-laptop", 1e-3, CPU.flops["float32"] / 10)
    assert read_device(write_device(device)) == device
    assert Options.of("optimize", {"device": given(mine)}).device == given(mine)
    assert CostModel(given(mine)).device == device
    assert CostModel(device).environment == Environment.current("my-laptop")


def test_an_optimisation_for_a_device_in_a_file_is_reported_by_its_name_and_costs(mine):
    g = eqsat.Graph("one")
    g.output("y", eqsat.relu(g.input("x", (4, 4))))
    result = eqsat.optimize(g, device=mine, measure=False)
    assert result.report.device == "my-laptop"
    assert result.report.cost_before >= 1e-3
    assert result.run(x=[[1.0] * 4] * 4)["y"].shape == (4, 4)


def test_measured_costs_of_a_device_in_a_file_are_kept_by_its_name(mine):
    table, type = CostTable(":memory:"), TensorType.of("float32", (4, 4))
    key = OpKey.parse("relu {} float32[4, 4]")
    device = Device.of(mine)
    table.put(table.environment(device), key, Entry(seconds=7e-6, p10=6e-6, p90=8e-6, samples=9))

    def cost(device):
        return CostModel(device, table).node("relu", {}, [type], [type], [False])

    assert (cost(mine).seconds, cost(mine).estimated) == (7e-6, False)
    assert cost("onnxruntime-cpu").estimated


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"name": "onnxruntime-cpu"},
            "name: 'onnxruntime-cpu' is a device that eqsat or a plug-in has\n  expected a name",
        ),
        ({"name": "My laptop"}, "name: 'My laptop'\n  expected small letters, digits"),
        ({"name": "cuda"}, "name: 'cuda'\n  expected small letters"),
        ({"name": "nvidia-mine"}, "name: 'nvidia-mine' with gpu = ''\n  expected a name that begins with nvidia-"),
        ({"gpu": "NVIDIA B200"}, "name: 'my-laptop' with gpu = 'NVIDIA B200'\n  expected a name that begins with"),
        ({"kind": "guess"}, 'kind: \'guess\'\n  expected one of "measured", "roofline"'),
        ({"bandwidth": 0}, "bandwidth: 0\n  expected a finite number above 0: bytes a second"),
        ({"bandwidth": float("inf")}, "bandwidth: inf\n  expected a finite number above 0"),
        ({"launch": "1 us"}, "launch: '1 us'\n  expected a finite number of 0 or more: seconds"),
        ({"near_bytes": 1.5}, "near_bytes: 1.5\n  expected a whole number of 0 or more: bytes"),
        ({"near_bytes": True}, "near_bytes: True\n  expected a whole number"),
        ({"flops": {"float16": 1e12}}, "flops: no 'float32'\n  expected it, which stands for all others"),
        ({"flops": {"float32": -1}}, "flops: float32: -1\n  expected a finite number above 0: operations a second"),
        (
            {"flops": {"float23": 1}},
            "flops: no element type 'float23'\n  expected names of element types\n",
        ),
        ({"flops": 1e12}, "flops: 1000000000000.0\n  expected an object from element type to numbers"),
        (
            {"rates": {"mattmul": 1e-9}},
            "rates: no operator 'mattmul'\n  expected names of operators\n",
        ),
        ({"layouts": ["column"]}, "layouts: ['column']\n  expected a list of 'row' and others of row, column"),
        ({"packings": ["int3"]}, "packings: ['int3']\n  expected a list of some of int4_32, int4_32_zeros, int4_128"),
        ({"fuses": 1}, "fuses: 1\n  expected one of false, true"),
        ({"source": ""}, "source: ''\n  expected text, such as where figures come from"),
        ({"sauce": "a guess"}, "a field 'sauce'\n  expected fields of name, kind"),
        ({"lanch": 0.0}, "a field 'lanch'\n  expected fields of name, kind"),
        ({"view": None}, "no field 'view'\n  expected the fields name, kind"),
    ],
)
def test_a_file_that_is_no_device_is_refused_with_the_field(fields, message, mine):
    with pytest.raises(CostError) as caught:
        Device.of(changed(mine, **fields))
    assert str(caught.value).replace(f"{mine}: ", "").startswith(message)
    assert str(caught.value).startswith(str(mine))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "no JSON: "),
        ("[]", "no JSON object"),
        ('{"name": "a", "name": "b"}', "no JSON: the field 'name' twice"),
    ],
)
def test_a_file_that_is_no_json_object_is_refused(text, message, mine):
    mine.write_text(text)
    with pytest.raises(CostError, match=message):
        Device.of(mine)


def test_a_file_that_is_not_there_is_named():
    with pytest.raises(CostError) as caught:
        Device.of("nowhere.json")
    assert str(caught.value) == (
        "nowhere.json: the file cannot be read: No such file or directory\n"
        "  expected the path of a device in JSON, as write_device writes it"
    )


def test_a_name_that_is_nearly_one_is_asked_after():
    with pytest.raises(CostError) as caught:
        Device.of("onnxruntime-cpus")
    assert str(caught.value) == (
        "no device 'onnxruntime-cpus'\n"
        "  expected one of c-cpu, numpy-cpu, nvidia-h200, onnxruntime-cpu, openvino-cpu, cuda, "
        "or a file that ends in .json\n"
        "  did you mean 'onnxruntime-cpu'?"
    )
    with pytest.raises(UsageError, match="device = 3\n  expected the name of a device, or the path of its file"):
        Options.of("optimize", {"device": 3})


def test_every_shipped_device_has_a_name_that_tells_its_kind():
    assert {kind_of(device) == "gpu" for device in DEVICES.values() if device.gpu} == {True}
    assert {kind_of(device) == "cpu" for device in DEVICES.values() if not device.gpu} == {True}
