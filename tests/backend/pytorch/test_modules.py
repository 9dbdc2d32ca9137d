"""`eqsat.optimize` of modules, exported programs and ONNXProgram."""

import warnings

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

import eqsat  # noqa: E402
from eqsat.errors import EqsatError, ImportModelError, UsageError  # noqa: E402
from tests.support.torch_models import MODELS, build, largest_difference  # noqa: E402

_QUICK = {"measure": False, "time_limit": 20.0}


@pytest.mark.parametrize("name", MODELS)
def test_a_module_and_its_result_agree_on_tensors(name: str) -> None:
    module, inputs = build(name)
    result = eqsat.optimize(module, inputs, **_QUICK)
    assert not result.report.failure
    with torch.no_grad():
        expected = module(**inputs)
    made = result(**inputs)
    assert type(made) is type(expected)
    assert largest_difference(made, expected) < 1e-4


def test_sizes_that_vary_are_stated_as_torch_export_takes_them() -> None:
    module, inputs = build("bert")
    sizes = {0: torch.export.Dim("batch", max=64), 1: torch.export.Dim("sequence", max=64)}
    result = eqsat.optimize(module, inputs, dict.fromkeys(inputs, sizes), **_QUICK)
    other = torch.randint(0, 300, (3, 7))
    with torch.no_grad():
        expected = module(other, torch.ones_like(other))
    assert largest_difference(result(other, torch.ones_like(other)), expected) < 1e-4
    long = torch.randint(0, 300, (2, 65))
    with pytest.raises(UsageError, match=r"axis 1 of 'input_ids' has size 65\n +expected \d to 64, which torch.export"):
        result(long, torch.ones_like(long))


def test_exported_programs_and_onnx_programs_need_no_example_inputs() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).eval()
    x = torch.randn(3, 4)
    program = torch.export.export(module, (x,))
    converted = torch.onnx.export(module, (x,), dynamo=True, verbose=False)
    with torch.no_grad():
        expected = module(x)
    for model in (program, converted):
        assert largest_difference(eqsat.optimize(model, **_QUICK)(x), expected) < 1e-5
    with pytest.raises(UsageError, match="example inputs for a program that is exported already"):
        eqsat.optimize(program, (x,))


def test_weights_that_no_rule_changed_are_those_of_the_module() -> None:
    module = torch.nn.Embedding(500, 32).eval()
    result = eqsat.optimize(module, torch.tensor([1, 2]), **_QUICK)
    pointers = {c.array.ctypes.data for c in result.graph.constants.values() if c.nbytes == 500 * 32 * 4}
    assert pointers == {module.weight.data_ptr()}


class _Nested(torch.nn.Module):
    def forward(self, pair, *, scale, shift=None):  # type: ignore[no-untyped-def]
        a, b = pair["a"], pair["b"]
        return {"sum": (a + b) * scale, "none": shift, "both": [a - b, a]}


def test_arguments_and_outputs_may_be_nested() -> None:
    a, b, scale = torch.randn(2, 3), torch.randn(2, 3), torch.tensor(2.0)
    program = torch.export.export(_Nested().eval(), ({"a": a, "b": b},), {"scale": scale})
    result = eqsat.optimize(program, **_QUICK)
    made = result({"a": a, "b": b}, scale=scale)
    assert made["none"] is None
    assert torch.allclose(made["sum"], (a + b) * 2)
    assert torch.equal(made["both"][1], a)
    with pytest.raises(UsageError, match=r"called with 1 positional and \[\] keyword arguments"):
        result({"a": a, "b": b})
    with pytest.raises(UsageError, match="a call of another form than the example inputs"):
        result({"a": a}, scale=scale)


def test_outputs_may_repeat_and_inputs_be_unused() -> None:
    class Repeating(torch.nn.Module):
        def forward(self, x, unused, y):  # type: ignore[no-untyped-def]
            z = x * 2 + y
            return z, z, x, None

    inputs = tuple(torch.randn(3, 2) for _ in range(3))
    first, second, same, nothing = eqsat.optimize(Repeating().eval(), inputs, **_QUICK)(*inputs)
    assert torch.allclose(first, inputs[0] * 2 + inputs[2])
    assert torch.equal(first, second)
    assert torch.equal(same, inputs[0])
    assert nothing is None


def test_bfloat16_goes_in_and_comes_out() -> None:
    class Twice(torch.nn.Module):
        def forward(self, x):  # type: ignore[no-untyped-def]
            return x + x

    x = torch.randn(4, 3, dtype=torch.bfloat16)
    made = eqsat.optimize(Twice().eval(), x, **_QUICK)(x)
    assert made.dtype == torch.bfloat16
    assert torch.equal(made, x + x)


class _Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x):  # type: ignore[no-untyped-def]
        self.count.add_(1)
        return x + self.count


class _Drawing(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x + torch.rand_like(x)


class _Branching(torch.nn.Module):
    def forward(self, x):  # type: ignore[no-untyped-def]
        return x + 1 if x.sum() > 0 else x - 1


@pytest.mark.parametrize(
    ("module", "error", "words"),
    [
        (_Counting().eval(), ImportModelError, "it changes count in place"),
        (_Drawing().eval(), ImportModelError, "it draws random numbers: RandomUniformLike"),
        (_Branching().eval(), ImportModelError, "torch.export cannot trace it"),
        (torch.nn.Linear(2, 2), UsageError, "the module is in training mode"),
    ],
    ids=["in place", "random", "branching", "training"],
)
def test_modules_that_no_graph_stands_for_are_refused(
    module: torch.nn.Module, error: type[EqsatError], words: str
) -> None:
    with pytest.raises(error, match=words):
        eqsat.optimize(module, torch.ones(2, 2))


def test_an_onnx_program_with_effects_is_refused_too() -> None:
    converted = torch.onnx.export(_Counting().eval(), (torch.ones(2),), dynamo=True, verbose=False)
    with pytest.raises(ImportModelError, match="it changes count in place"):
        eqsat.optimize(converted)


def test_a_module_without_example_inputs_is_refused_with_the_remedy() -> None:
    with pytest.raises(UsageError, match=r"no example inputs[\s\S]*pass example_inputs="):
        eqsat.optimize(torch.nn.ReLU().eval())


def test_torch_exports_without_noise(capfd: pytest.CaptureFixture[str]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        eqsat.optimize(torch.nn.ReLU().eval(), torch.ones(2), **_QUICK)
    captured = capfd.readouterr()
    assert (captured.out, captured.err) == ("", "")
