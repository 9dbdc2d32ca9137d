"""The backend "eqsat" of torch.compile."""

import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import eqsat
from tests.support.pages import ROOT

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from eqsat.pytorch.traced import FallbackWarning  # noqa: E402
from tests.support.torch_models import MODELS, build, largest_difference  # noqa: E402

_QUICK = {"measure": False, "time_limit": 20.0}


@pytest.fixture(autouse=True)
def _anew() -> Iterator[None]:
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def _compiled(module: torch.nn.Module, **options: object) -> torch.nn.Module:
    return torch.compile(module, backend="eqsat", options=_QUICK, **options)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("error::eqsat.pytorch.traced.FallbackWarning")
def test_compiled_models_agree_with_eager_ones(name: str) -> None:
    module, inputs = build(name)
    with torch.no_grad():
        expected = module(**inputs)
        assert largest_difference(_compiled(module)(**inputs), expected) < 1e-4


def test_the_backend_is_found_by_name() -> None:
    assert "eqsat" in torch.compiler.list_backends()


@pytest.mark.filterwarnings("error::eqsat.pytorch.traced.FallbackWarning")
def test_dynamic_shapes_are_compiled_as_often_as_pytorch_asks() -> None:
    module, _ = build("bert")
    counts = []
    for backend in ("aot_eager", "eqsat"):
        torch.compiler.reset()
        counter = CompileCounterWithBackend(backend)
        compiled = torch.compile(module, backend=counter, dynamic=True)
        with torch.no_grad():
            for batch, length in ((2, 12), (3, 7), (5, 20)):
                ids = torch.randint(0, 300, (batch, length))
                mask = torch.ones_like(ids)
                assert largest_difference(compiled(ids, mask), module(ids, mask)) < 1e-4
        counts.append(counter.frame_count)
    assert counts[0] == counts[1] < 3


def test_gradients_are_left_to_pytorch() -> None:
    module = torch.nn.Linear(3, 3)
    with pytest.warns(FallbackWarning, match="gradients are wanted"):
        made = _compiled(module)(torch.ones(2, 3))
    made.sum().backward()
    assert torch.equal(module.weight.grad, torch.full((3, 3), 2.0))


def test_random_numbers_are_left_to_pytorch() -> None:
    module = torch.nn.Dropout(0.5)
    with torch.no_grad(), pytest.warns(FallbackWarning, match="random numbers"):
        made = _compiled(module)(torch.ones(100, 10))
    assert 0.2 < float((made == 0).float().mean()) < 0.8


def test_changed_weights_are_seen() -> None:
    module = torch.nn.Linear(3, 3).eval()
    compiled = _compiled(module)
    x = torch.randn(2, 3)
    with torch.no_grad():
        assert torch.allclose(compiled(x), module(x))
        module.weight.mul_(2)
        with pytest.warns(FallbackWarning, match="weights changed"):
            assert torch.allclose(compiled(x), module(x))
        assert torch.allclose(compiled(x), module(x))


@pytest.mark.filterwarnings("error::eqsat.pytorch.traced.FallbackWarning")
def test_inputs_and_buffers_changed_in_place_are_changed() -> None:
    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):  # type: ignore[no-untyped-def]
            self.count.add_(1)
            x.mul_(2)
            return x + self.count

    module, x = Counting().eval(), torch.ones(3)
    compiled = _compiled(module)
    with torch.no_grad():
        assert torch.equal(compiled(x), torch.full((3,), 3.0))
        assert torch.equal(compiled(x), torch.full((3,), 6.0))
    assert torch.equal(x, torch.full((3,), 4.0))
    assert float(module.count) == 2


def test_views_of_inputs_stay_views() -> None:
    def halves(x):  # type: ignore[no-untyped-def]
        return x[:2], x.t(), x * 2

    x = torch.randn(4, 3)
    with torch.no_grad():
        top, turned, doubled = torch.compile(halves, backend="eqsat", options=_QUICK)(x)
    x.zero_()
    assert not top.any() and not turned.any() and doubled.any()


def test_strides_are_those_of_eager_mode() -> None:
    def turned(x, y):  # type: ignore[no-untyped-def]
        return (x + y).transpose(0, 1)

    x, y = torch.randn(4, 3), torch.randn(4, 3)
    with torch.no_grad():
        made = torch.compile(turned, backend="eqsat", options=_QUICK)(x, y)
    assert made.stride() == turned(x, y).stride()


def test_graph_breaks_leave_parts_to_python() -> None:
    def branching(x):  # type: ignore[no-untyped-def]
        y = torch.relu(x) + 1
        if y.sum() > 3:
            return torch.exp(y)
        return -y

    with torch.no_grad():
        compiled = torch.compile(branching, backend="eqsat", options=_QUICK)
        for x in (torch.ones(3), -torch.ones(3)):
            assert torch.allclose(compiled(x), branching(x))


def test_options_are_those_of_optimize_and_checked() -> None:
    module = torch.nn.ReLU().eval()
    with (
        torch.no_grad(),
        pytest.raises(Exception, match=r"unexpected keyword argument 'devise'\. Did you mean 'device'"),
    ):
        torch.compile(module, backend="eqsat", options={"devise": "cuda"})(torch.ones(2))
    with torch.no_grad(), pytest.raises(Exception, match="the backend 'eqsat' has no modes"):
        torch.compile(module, backend="eqsat", mode="max-autotune")(torch.ones(2))


_PROGRAM = """
import sys
import torch
from eqsat import run
from tests.support.torch_models import build

ready, searches = run.Opened.run, []


def counted(opened):
    searches.append(opened)
    return ready(opened)


run.Opened.run = counted
module, inputs = build("bert")
if sys.argv[1:]:
    module.get_parameter(sys.argv[1]).data.reshape(-1)[0] += 1
compiled = torch.compile(module, backend="eqsat", options={"measure": False, "time_limit": 60.0})
with torch.no_grad():
    ours, theirs = compiled(**inputs), module(**inputs)
assert (ours.last_hidden_state - theirs.last_hidden_state).abs().max() < 1e-4
print(len(searches))
"""


def test_a_second_process_does_not_search_unless_a_weight_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EQSAT_RESULTS", str(tmp_path / "results"))
    changed = "encoder.layer.1.output.dense.weight"
    printed = []
    for arguments in ([], [], [changed]):
        command = [sys.executable, "-W", "error::eqsat.pytorch.traced.FallbackWarning", "-c", _PROGRAM, *arguments]
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert process.returncode == 0, process.stderr
        printed.append(process.stdout.strip())
    assert printed == ["1", "0", "1"]


def test_a_module_that_was_optimised_is_found_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_RESULTS", str(tmp_path / "results"))
    module, inputs = build("resnet")
    first, second = (eqsat.optimize(module, inputs, **_QUICK) for _ in range(2))
    assert second.report.found_again and not first.report.found_again
    with torch.no_grad():
        assert largest_difference(second(**inputs), module(**inputs)) < 1e-4
        module.classifier[1].bias[0] += 1
        third = eqsat.optimize(module, inputs, **_QUICK)
        assert not third.report.found_again
        assert largest_difference(third(**inputs), module(**inputs)) < 1e-4


_NORMED = """
import torch


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.linear = torch.nn.LayerNorm(64), torch.nn.Linear(64, 64)

    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda y: self.norm(y) + 1, lambda y: self.norm(y) - 1, (self.linear(x),))
"""


def test_a_line_added_above_a_module_changes_no_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EQSAT_RESULTS", str(tmp_path / "results"))
    results = []
    for number, comment in enumerate(("", "# a line\n")):
        path = tmp_path / f"normed{number}.py"
        path.write_text(comment + _NORMED)
        module = runpy.run_path(str(path))["Normed"]
        torch.manual_seed(0)
        results.append(eqsat.optimize(module().eval(), torch.ones(2, 64), **_QUICK))
    assert results[1].report.found_again
    written = results[0].to_onnx().SerializeToString()
    assert written == results[1].to_onnx().SerializeToString() and b"normed0.py" not in written
