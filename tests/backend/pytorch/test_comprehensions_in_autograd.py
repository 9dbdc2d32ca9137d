"""Comprehensions of tensors of PyTorch, and their gradients through its autograd."""

import pytest

torch = pytest.importorskip("torch", reason="the extra 'torch' is not installed: make test-torch")

import numpy as np  # noqa: E402

import eqsat  # noqa: E402
from eqsat.errors import UsageError  # noqa: E402

SOURCE = """
def layer(double(B,I) x, double(O,I) w, double(O) b) -> (y) {
  y(n,o) +=! x(n,i) * w(o,i)
  y(n,o) = tanh(y(n,o) + b(o))
}
def rows(double(B,D) x) -> (y) {
  most(b) max=! x(b,d)
  e(b,d) = exp(x(b,d) - most(b))
  total(b) +=! e(b,d)
  y(b,d) = e(b,d) / total(b)
}
def look_up(double(E,D) table, int(B) at) -> (y, count) {
  y(b,d) = table(at(b),d)
  count(b) = at(b) + 1
}
def scaled(double(N) x, double a) -> (total) { total +=! a * x(i) * x(i) }
def convolved(double(N) x, double(K) w) -> (y) { y(i) +=! x(i + k) * w(k) }
def strided(double(N) x, double(K) w) -> (y) { y(i) +=! x(2 * i + k) * w(k) }
def product(double(B,N) x) -> (y) { y(b) *=! x(b,i) where i in 0:N }
"""
FUNCTIONS = eqsat.comprehension(SOURCE)


def drawn(*shape, grad=True):
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=grad)


def called(name, kind):
    return FUNCTIONS[name] if kind == "function" else eqsat.kernel(FUNCTIONS[name])


ARGUMENTS = {
    "layer": lambda: (drawn(3, 4), drawn(5, 4), drawn(5)),
    "rows": lambda: (drawn(3, 7),),
    "scaled": lambda: (drawn(6), drawn()),
    "convolved": lambda: (drawn(9), drawn(3)),
    "strided": lambda: (drawn(10), drawn(3)),
    "product": lambda: (drawn(2, 4),),
}


@pytest.mark.parametrize("kind", ["function", "kernel"])
@pytest.mark.parametrize("name", ARGUMENTS)
def test_gradients_are_those_of_differences_and_so_are_their_own(name, kind):
    f, arguments = called(name, kind), ARGUMENTS[name]()
    assert torch.autograd.gradcheck(f, arguments)
    if name != "strided":  # whose gradient has ranges of quotients of differences
        assert torch.autograd.gradgradcheck(f, arguments)


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_results_of_integers_and_arguments_of_integers_have_no_gradient(kind):
    table, at = drawn(4, 3), torch.tensor([2, 0, 2], dtype=torch.int32)
    y, count = called("look_up", kind)(table, at)
    assert y.requires_grad and not count.requires_grad
    assert count.tolist() == [3, 1, 3]
    y.sum().backward()
    assert table.grad.tolist() == [[1.0] * 3, [0.0] * 3, [2.0] * 3, [0.0] * 3]


def test_only_the_gradients_that_are_asked_for_are_computed(monkeypatch):
    asked = []
    f = FUNCTIONS.layer
    gradient = type(f).gradient
    monkeypatch.setattr(type(f), "gradient", lambda self, *names: asked.append(names) or gradient(self, *names))
    x, w, b = drawn(3, 4, grad=False), drawn(5, 4), drawn(5, grad=False)
    f(x, w, b=b).sum().backward()
    assert asked == [("w",)]
    torch.testing.assert_close(w.grad, (1 - torch.tanh(x @ w.detach().T + b) ** 2).T @ x)


def test_a_layer_is_trained():
    torch.manual_seed(0)
    w, b = torch.nn.Parameter(drawn(2, 3) * 0.1), torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))
    x, wanted = drawn(32, 3, grad=False), torch.tanh(drawn(32, 3, grad=False) @ drawn(3, 2, grad=False))
    optimiser, kernel = torch.optim.SGD([w, b], lr=0.5), eqsat.kernel(FUNCTIONS.layer)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = ((kernel(x, w, b) - wanted) ** 2).mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.05 * losses[0]


def test_nothing_is_recorded_where_nothing_is_asked_for():
    x = drawn(3, 7)
    with torch.no_grad():
        assert not FUNCTIONS.rows(x).requires_grad
    assert not FUNCTIONS.rows(x.detach()).requires_grad
    assert isinstance(FUNCTIONS.rows(x.detach().numpy()), np.ndarray)


def test_results_that_are_written_to_memory_of_the_caller_are_not_recorded():
    x, out = drawn(3, 7), torch.empty(3, 7, dtype=torch.float64)
    for argument, result in ((x, out), (x.detach(), torch.empty(3, 7, dtype=torch.float64, requires_grad=True))):
        with pytest.raises(UsageError, match="out: tensors in which gradients are asked for") as error:
            FUNCTIONS.rows(argument, out=result)
        assert "torch.no_grad()" in str(error.value)
    with torch.no_grad():
        FUNCTIONS.rows(x, out=out)
    torch.testing.assert_close(out, torch.softmax(x, 1))


def test_a_function_without_a_gradient_is_called_and_refuses_to_go_back():
    f = eqsat.comprehension("def every(float(N) x, int s) -> (y) { y(i) = x(s * i) }").every
    x = torch.ones(4, requires_grad=True)
    y = f(x, 2)
    assert y.tolist() == [1.0, 1.0]
    with pytest.raises(UsageError, match="has no gradient here"):
        y.sum().backward()


def test_elements_of_bfloat16_go_in_and_out_in_place():
    f = eqsat.comprehension("def twice(bfloat16(N) x) -> (y) { y(i) = x(i) + x(i) }").twice
    made = f(torch.tensor([1.5, -2.0], dtype=torch.bfloat16))
    assert made.dtype is torch.bfloat16 and made.tolist() == [3.0, -4.0]
    one = torch.tensor(2.0, dtype=torch.float64)
    assert FUNCTIONS.scaled(torch.ones(2, dtype=torch.float64), one).shape == ()


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_arguments_by_name_have_their_own_gradients(kind):
    f = called("scaled", kind)
    x, a = torch.tensor([1.0, 2.0], dtype=torch.float64, requires_grad=True), drawn()
    d_x, d_a = torch.autograd.grad(f(a=a, x=x), [x, a])
    torch.testing.assert_close(d_x, 2 * a.detach() * x.detach())
    torch.testing.assert_close(d_a, torch.tensor(5.0, dtype=torch.float64))


def test_what_changes_between_a_call_and_going_back_is_not_read_then():
    x, scale = drawn(3), np.ones(3)
    f = eqsat.comprehension("def f(double(N) x, double(N) n) -> (y) { y(i) = x(i) * n(i) }").f
    y = f(x, scale)
    scale[:] = 5
    y.sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


@pytest.mark.parametrize("kind", ["function", "kernel"])
def test_autograd_knows_that_memory_for_results_was_written_to(kind):
    w, held = drawn(7), torch.ones(7, dtype=torch.float64)
    product = (w * held).sum()
    called("convolved", kind)(drawn(9, grad=False), drawn(3, grad=False), out=held)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        product.backward()


def test_transforms_of_functions_get_the_gradient_or_say_that_there_is_none():
    x, w = drawn(9, grad=False), drawn(3, grad=False)
    made = torch.func.grad(lambda w: FUNCTIONS.convolved(x, w).sum())(w)
    torch.testing.assert_close(made, torch.stack([x[k : k + 7].sum() for k in range(3)]))
    with torch.autograd.forward_ad.dual_level():
        dual = torch.autograd.forward_ad.make_dual(x, torch.ones_like(x))
        with pytest.raises(NotImplementedError, match=r"jvp|forward"):
            FUNCTIONS.convolved(dual, w)


def test_values_without_elements_here_are_refused_in_words():
    for value in (torch.empty(9, device="meta", dtype=torch.float64), [drawn(9)]):
        with pytest.raises(UsageError, match=r"no array|cannot read"):
            FUNCTIONS.convolved(value, drawn(3, grad=False))


def test_kernels_with_free_sizes_have_gradients_for_every_batch():
    kernel = eqsat.kernel(FUNCTIONS["layer"], "default", free="B")
    for batch in (2, 5):
        given = [drawn(batch, 4), drawn(3, 4), drawn(3)]
        found, expected = (torch.autograd.grad(f(*given).square().sum(), given) for f in (kernel, FUNCTIONS["layer"]))
        torch.testing.assert_close(found, expected)
