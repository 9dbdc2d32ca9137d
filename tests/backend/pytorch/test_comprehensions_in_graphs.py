"""Comprehensions in what PyTorch compiles and exports: one operator of its graphs."""

import subprocess
import sys

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

import numpy as np  # noqa: E402

import eqsat  # noqa: E402

SOURCE = """
def layer(float(B,I) x, float(O,I) w, float(O) b) -> (y) {
  y(n,o) +=! x(n,i) * w(o,i)
  y(n,o) = tanh(y(n,o) + b(o))
}
def parts(float(N) x, int(M) at, int32 times, float gain) -> (y, count) {
  y(m,t) = gain * x(at(m)) where t in 0:times
  count(m) = at(m) + 1
}
def summed(float(N) x) -> (C) { C(i) += x(i) }
def windows(float(N) x, float(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }
"""
FUNCTIONS = eqsat.comprehension(SOURCE)


def called(name, kind):
    if kind == "free":
        return eqsat.kernel(FUNCTIONS[name], free="B")
    return FUNCTIONS[name] if kind == "function" else eqsat.kernel(FUNCTIONS[name], options=kind)


def drawn(*shape, grad=False):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)), requires_grad=grad)


def whole(function, **options):
    """A function compiled as one graph."""
    torch.compiler.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", **options)


@pytest.mark.parametrize("kind", ["function", "fastest", "naive", "free"])
def test_a_compiled_call_has_the_results_and_the_gradients_of_the_call_itself(kind):
    f = called("layer", kind)
    given = [drawn(3, 4), drawn(5, 4), drawn(5)]

    def loss(x, w, b):
        return f(x.relu(), w, b=b).square()

    compiled = whole(loss)
    torch.testing.assert_close(compiled(*given), loss(*given))
    first, second = ([one.clone().requires_grad_() for one in given] for _ in range(2))
    second[0] = second[0].detach()
    loss(*first).sum().backward()
    compiled(*second).sum().backward()
    assert second[0].grad is None
    for one, other in zip(first[1:], second[1:], strict=True):
        torch.testing.assert_close(other.grad, one.grad)


@pytest.mark.parametrize("kind", ["function", "fastest"])
def test_gradients_of_gradients_are_those_of_differences(kind):
    from eqsat.language.pytorch.comprehensions import call_in_graph

    f = eqsat.comprehension(SOURCE.replace("float", "double"))["layer"]
    options = "" if kind == "function" else '{"options": "fastest", "free": []}'
    given = [drawn(3, 4).double().requires_grad_(), drawn(5, 4).double().requires_grad_(), drawn(5).double()]
    assert torch.autograd.gradgradcheck(lambda *values: call_in_graph(f.source, options, values, {}), given)


def test_sizes_stay_open_where_the_function_is_of_any_size():
    f, sizes = FUNCTIONS.windows, []

    def inner(x, w):
        return f(x, w) * 2

    def backend(graph, inputs):
        sizes.append(inputs)
        return graph

    torch.compiler.reset()
    compiled = torch.compile(inner, fullgraph=True, dynamic=True, backend=backend)
    for length in (9, 12, 30):
        x, w = drawn(length), drawn(3)
        made = compiled(x, w)
        assert made.shape == (length - 2,)
        torch.testing.assert_close(made, inner(x, w))
    assert len(sizes) == 1


def test_numbers_and_results_of_integers():
    f = FUNCTIONS.parts
    x, at = drawn(6), torch.tensor([2, 0, 2], dtype=torch.int32)

    def inner(x, times):
        return f(x, at, times, gain=0.5)

    compiled = whole(inner)
    for times in (2, 3, 5):
        for one, other in zip(compiled(x, times), inner(x, times), strict=True):
            torch.testing.assert_close(one, other)


def test_what_is_added_to_is_passed_by_its_name_and_is_not_written_to():
    f, x, start = FUNCTIONS.summed, drawn(4), drawn(4).abs()
    kept = start.clone()
    made = whole(lambda x, start: f(x, C=start))(x, start)
    torch.testing.assert_close(made, x + kept)
    torch.testing.assert_close(start, kept)


def test_out_is_written_to():
    f, given, out = FUNCTIONS.layer, [drawn(3, 4), drawn(5, 4), drawn(5)], torch.zeros(3, 5)
    compiled = whole(lambda *values: f(*values, out=out))
    made = compiled(*given)
    torch.testing.assert_close(made, f(*given))
    torch.testing.assert_close(out, made)
    with pytest.raises(Exception, match="out: tensors that do not fit the results"):
        whole(lambda *values: f(*values, out=torch.zeros(5)))(*given)


def test_arguments_that_do_not_fit_are_told_of_in_words():
    compiled = whole(lambda x: FUNCTIONS.windows(x, x.long()))
    with pytest.raises(Exception, match=r"windows, w: elements of int64"):
        compiled(drawn(5))
    with pytest.raises(Exception, match=r"windows without w"):
        whole(lambda x: FUNCTIONS.windows(x))(drawn(5))


def test_torch_checks_the_operator_by_its_own_rules():
    given = ["0", "1", "2"], [drawn(3, 4, grad=True), drawn(5, 4, grad=True), drawn(5)], [], []
    torch.library.opcheck(torch.ops.eqsat.comprehension.default, (FUNCTIONS.layer.source, "", *given))


def test_the_backend_eqsat_optimises_a_graph_with_a_call(recwarn):
    f, given = FUNCTIONS.layer, [drawn(3, 4), drawn(5, 4), drawn(5)]

    def inner(x, w, b):
        return f(x + 1, w, b=b) * 2

    torch.compiler.reset()
    with torch.no_grad():
        made = torch.compile(inner, backend="eqsat", options={"time_limit": 20})(*given)
    torch.testing.assert_close(made, inner(*given))
    assert not [one for one in recwarn if "PyTorch runs a graph" in str(one.message)]


def test_a_module_with_a_call_is_a_graph_with_its_operator():
    class Parts(torch.nn.Module):
        def forward(self, x, at):
            return FUNCTIONS.parts(x, at, 3, gain=0.1)

    given = drawn(6), torch.tensor([2, 0, 2], dtype=torch.int32)
    graph = eqsat.load(torch.export.export(Parts(), given))
    assert [node.op for node in graph.nodes] == ["parts"]
    assert graph.nodes[0].attrs["times"] == 3
    made = graph.run(**dict(zip(graph.inputs, (one.numpy() for one in given), strict=True)))
    for one, other in zip(made.values(), Parts()(*given), strict=True):
        np.testing.assert_array_equal(one, other.numpy())


def test_an_exported_program_runs_in_another_process(tmp_path):
    class Layer(torch.nn.Module):
        def forward(self, x, w, b):
            return eqsat.kernel(FUNCTIONS.layer)(x, w, b) + 1

    given = (drawn(3, 4), drawn(5, 4), drawn(5))
    torch.export.save(torch.export.export(Layer(), given), tmp_path / "layer.pt2")
    torch.save([*given, Layer()(*given)], tmp_path / "values.pt")
    code = """
import sys, torch, eqsat.pytorch
*given, wanted = torch.load(sys.argv[1] + "/values.pt")
torch.testing.assert_close(torch.export.load(sys.argv[1] + "/layer.pt2").module()(*given), wanted)
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, timeout=300)


def test_arrays_of_numpy_are_traced_as_tensors():
    f, w = FUNCTIONS.windows, np.ones(2, np.float32)
    made = whole(lambda x: f(x, torch.from_numpy(w)))(torch.arange(5.0))
    torch.testing.assert_close(made, torch.tensor([1.0, 3, 5, 7]))
