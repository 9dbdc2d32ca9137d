"""Modules as loaded graphs, and inputs of modules that results do not read."""

from pathlib import Path

import onnx
import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")
pytest.importorskip("onnxscript", reason="the extra 'torch' is not installed: make test-torch")

import eqsat  # noqa: E402
from eqsat.errors import UsageError  # noqa: E402


class Cancelling(torch.nn.Module):
    """Its second argument takes no part in the result."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return (torch.relu(a) + b) - b


def test_a_pruned_input_leaves_the_file_and_stays_in_the_call(tmp_path: Path) -> None:
    a, b = torch.ones(2, 4), torch.zeros(2, 4)
    result = eqsat.optimize(Cancelling().eval(), (a, b), measure=False, prune_inputs=True)
    assert len(result.graph.inputs) == 1
    result.save(tmp_path / "pruned.onnx")
    assert len(onnx.load(tmp_path / "pruned.onnx").graph.input) == 1
    torch.testing.assert_close(result(a, b), torch.relu(a))


def test_a_module_is_loaded_and_inspected() -> None:
    a, b = torch.ones(2, 4), torch.zeros(2, 4)
    module = Cancelling().eval()
    graph = eqsat.load(module, (a, b))
    outputs = graph.run(**dict(zip(graph.inputs, (a.numpy(), b.numpy()), strict=True)))
    assert [value.tolist() for value in outputs.values()] == [a.tolist()]
    content = eqsat.inspect(module, (a, b))
    assert list(content.operators) == ["add", "relu", "sub"]
    assert content == eqsat.inspect(graph)


def test_a_loaded_module_needs_example_inputs() -> None:
    with pytest.raises(UsageError, match="no example inputs"):
        eqsat.load(Cancelling().eval())
