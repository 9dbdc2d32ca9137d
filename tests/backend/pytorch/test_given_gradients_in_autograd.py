"""Gradients that a caller writes, through PyTorch's autograd: of functions, of kernels, and of compiled graphs."""

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

import eqsat  # noqa: E402
from eqsat.errors import UsageError  # noqa: E402

SOURCE = """
def layer(double(B,I) x, double(O,I) w) -> (y) {
  y(b,o) +=! x(b,i) * w(o,i)
  y(b,o) = tanh(y(b,o))
}
"""
BACK = """
def back(double(B,I) x, double(O,I) w, double(B,O) up) -> (d_w, d_x) {
  s(b,o) +=! x(b,i) * w(o,i)
  s(b,o) = up(b,o) * (1 - tanh(s(b,o)) * tanh(s(b,o)))
  d_x(b,i) +=! s(b,o) * w(o,i)
  d_w(o,i) +=! s(b,o) * x(b,i)
}
"""
PLAIN = eqsat.comprehension(SOURCE).layer
GIVEN = PLAIN.with_gradient(BACK)


def drawn(*shape):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)


def called(kind):
    return GIVEN if kind == "function" else eqsat.kernel(GIVEN)


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_a_given_gradient_is_that_of_differences_and_has_a_gradient(kind):
    f, arguments = called(kind), (drawn(3, 4), drawn(5, 4))
    assert torch.autograd.gradcheck(f, arguments)
    assert torch.autograd.gradgradcheck(f, arguments)


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_autograd_calls_what_was_given(kind):
    """A gradient in w alone is given: what autograd asks for besides is an error that the derived one is not."""
    partly = PLAIN.with_gradient(BACK.replace("(d_w, d_x)", "(d_w)"))
    f = partly if kind == "function" else eqsat.kernel(partly)
    x, w = drawn(3, 4), drawn(5, 4)
    f(x.detach(), w).sum().backward()
    wanted = torch.autograd.grad(torch.tanh(x @ w.T).sum(), w)[0]
    torch.testing.assert_close(w.grad, wanted)
    with pytest.raises(UsageError, match="no gradient in 'x'"):
        f(x, w).sum().backward()


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_compiled_graphs_keep_it(kind):
    partly = PLAIN.with_gradient(BACK.replace("(d_w, d_x)", "(d_w)"))
    f = partly if kind == "function" else eqsat.kernel(partly)
    x, w = drawn(3, 4).detach(), drawn(5, 4)
    compiled = torch.compile(lambda x, w: 2 * f(x, w), backend="aot_eager", fullgraph=True)
    compiled(x, w).sum().backward()
    torch.testing.assert_close(w.grad, torch.autograd.grad((2 * torch.tanh(x @ w.T)).sum(), w)[0])
    torch.compiler.reset()
    with pytest.raises(Exception, match="no gradient in 'x'"):
        torch.compile(lambda x, w: f(x, w), backend="aot_eager", fullgraph=True)(drawn(3, 4), w).sum().backward()


def test_an_exported_program_has_the_function_alone():
    class Layer(torch.nn.Module):
        def forward(self, x, w):
            return GIVEN(x, w)

    x, w = drawn(3, 4).detach(), drawn(5, 4).detach()
    exported = torch.export.export(Layer(), (x, w))
    torch.testing.assert_close(exported.module()(x, w), torch.tanh(x @ w.T))
    graph = eqsat.load(exported)
    assert [node.op for node in graph.nodes if "layer" in node.op]
