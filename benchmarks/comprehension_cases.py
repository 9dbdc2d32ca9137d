"""Operators as comprehensions, in NumPy and as graphs: those that Tensor Comprehensions measures, and more."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import eqsat

Arrays = Mapping[str, Any]


@dataclass(frozen=True)
class OperatorCase:
    """An operator: its comprehension, NumPy's way to compute it, a graph of it, and the shapes of its operands.

    Operands are drawn from a normal distribution; those of integers index the first axis of the tables, `rows` long.
    `torch` is the operator in torch, needed where torch cannot trace `numpy`.
    """

    source: str
    numpy: Callable[..., Any]
    graph: Callable[..., Any]
    shapes: Mapping[str, tuple[int, ...]]
    rows: int = 0
    is_of_the_paper: bool = True
    torch: Callable[..., Any] | None = None

    def arguments(self) -> dict[str, Any]:
        """The operands."""
        rng = np.random.default_rng(0)
        made: dict[str, Any] = {}
        for name, shape in self.shapes.items():
            if name.startswith("I") and self.rows:
                made[name] = rng.integers(0, self.rows, shape).astype(np.int32)
            else:
                made[name] = rng.standard_normal(shape, dtype=np.float32)
        return made

    def model(self) -> Any:
        """The graph as an ONNX model, as it is."""
        g = eqsat.Graph("operator")
        arguments = self.arguments()
        results = self.graph(*(g.input(name, one.shape, str(one.dtype)) for name, one in arguments.items()))
        for number, one in enumerate(results if isinstance(results, tuple) else (results,)):
            g.output(f"result_{number}", one)
        return eqsat.optimize(g.build(), measure=False, rules=(), cache=False).to_onnx()


def _t(x: Any) -> Any:
    """The transpose of a matrix, or of the last two axes."""
    return eqsat.transpose(x, perm=(*range(x.type.rank - 2), x.type.rank - 1, x.type.rank - 2))


def _matmul(m: int, k: int, n: int) -> OperatorCase:
    return OperatorCase(
        "def tmm(float(M,K) A, float(N,K) B) -> (C) { C(m,n) +=! A(m,k) * B(n,k) }",
        lambda a, b: a @ b.T,
        lambda a, b: a @ _t(b),
        {"A": (m, k), "B": (n, k)},
    )


def _grouped(groups: int, channels: int, size: int) -> OperatorCase:
    """Convolutions in groups on 32 images, 3 × 3, as in ResNeXt."""

    def numpy(x: Any, w: Any) -> Any:
        windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(3, 4))
        n, g, c, h, v = windows.shape[:5]
        columns = windows.transpose(1, 0, 3, 4, 2, 5, 6).reshape(g, n * h * v, c * 9)
        made = columns @ w.reshape(g, w.shape[1], -1).transpose(0, 2, 1)
        return made.reshape(g, n, h, v, -1).transpose(1, 0, 4, 2, 3)

    def graph(x: Any, w: Any) -> Any:
        image = eqsat.reshape(x, shape=(32, groups * channels, size + 2, size + 2))
        weights = eqsat.reshape(w, shape=(groups * channels, channels, 3, 3))
        made = eqsat.conv(image, weights, group=groups)
        return eqsat.reshape(made, shape=(32, groups, channels, size, size))

    def torch(x: Any, w: Any) -> Any:
        from torch.nn.functional import conv2d

        return conv2d(x.flatten(1, 2), w.flatten(0, 1), groups=groups).unflatten(1, (groups, channels))

    return OperatorCase(
        "def gconv(float(N,G,C,H,W) I, float(G,F,C,KH,KW) W1) -> (O) {"
        " O(n,g,f,h,w) +=! I(n,g,c,h+kh,w+kw) * W1(g,f,c,kh,kw) }",
        numpy,
        graph,
        {"I": (32, groups, channels, size + 2, size + 2), "W1": (groups, channels, channels, 3, 3)},
        torch=torch,
    )


def _layers(sizes: tuple[int, ...]) -> OperatorCase:
    """Fully connected layers on a batch of 128, each with relu."""
    names = ["I", *(f"O{number}" for number in range(1, len(sizes)))]
    parameters = ["float(B,S0) I"]
    lines: list[str] = []
    shapes: dict[str, tuple[int, ...]] = {"I": (128, sizes[0])}
    for number in range(1, len(sizes)):
        parameters.append(f"float(S{number},S{number - 1}) W{number}, float(S{number}) B{number}")
        made, given = names[number], names[number - 1]
        lines.append(f"{made}(b,n) +=! {given}(b,m) * W{number}(n,m)")
        lines.append(f"{made}(b,n) = fmax({made}(b,n) + B{number}(n), 0)")
        shapes |= {f"W{number}": (sizes[number], sizes[number - 1]), f"B{number}": (sizes[number],)}
    source = f"def mlp({', '.join(parameters)}) -> ({names[-1]}) {{ {' '.join(lines)} }}"

    def numpy(x: Any, *weights: Any) -> Any:
        for w, b in zip(weights[::2], weights[1::2], strict=True):
            x = np.maximum(x @ w.T + b, 0)
        return x

    def graph(x: Any, *weights: Any) -> Any:
        for w, b in zip(weights[::2], weights[1::2], strict=True):
            x = eqsat.relu(x @ _t(w) + b)
        return x

    return OperatorCase(source, numpy, graph, shapes)


def _look_ups(rows: int) -> OperatorCase:
    return OperatorCase(
        "def two_tables(float(E1,D) T1, int(B,L1) I1, float(E2,D) T2, int(B,L2) I2) -> (O1, O2) {"
        " O1(b,d) +=! T1(I1(b,l),d) O2(b,d) +=! T2(I2(b,l),d) }",
        lambda t1, i1, t2, i2: (t1[i1].sum(axis=1), t2[i2].sum(axis=1)),
        lambda t1, i1, t2, i2: (
            eqsat.reduce_sum(eqsat.gather(t1, i1, axis=0), axes=(1,), keepdims=False),
            eqsat.reduce_sum(eqsat.gather(t2, i2, axis=0), axes=(1,), keepdims=False),
        ),
        {"T1": (rows, 64), "I1": (128, 50), "T2": (rows, 64), "I2": (128, 50)},
        rows,
    )


def _kronecker() -> OperatorCase:
    """The product of a batch with the Kronecker product of three matrices."""

    def numpy(x: Any, a: Any, b: Any, c: Any) -> Any:
        x = x @ c.T
        x = b @ x
        return np.tensordot(x, a, axes=([1], [1])).transpose(0, 3, 1, 2)

    def graph(x: Any, a: Any, b: Any, c: Any) -> Any:
        x = b @ (x @ _t(c))
        x = a @ eqsat.reshape(x, shape=(256, 8, 64))
        return eqsat.reshape(x, shape=(256, 8, 8, 8))

    return OperatorCase(
        "def kronecker3(float(M,N0,N1,N2) X, float(D0,N0) W0, float(D1,N1) W1, float(D2,N2) W2) -> (Y) {"
        " XW2(m,n0,n1,d2) +=! X(m,n0,n1,r) * W2(d2,r)"
        " XW1(m,n0,d1,d2) +=! XW2(m,n0,r,d2) * W1(d1,r)"
        " Y(m,d0,d1,d2) +=! XW1(m,r,d1,d2) * W0(d0,r) }",
        numpy,
        graph,
        {"X": (256, 8, 8, 8), "W0": (8, 8), "W1": (8, 8), "W2": (8, 8)},
        is_of_the_paper=False,
    )


def _softmax() -> OperatorCase:
    """Softmax over the middle axis."""

    def numpy(x: Any) -> Any:
        made = np.exp(x - x.max(axis=1, keepdims=True))
        return made / made.sum(axis=1, keepdims=True)

    return OperatorCase(
        "def softmax(float(B,C,W) X) -> (Y) { M(b,w) max=! X(b,c,w) E(b,c,w) = exp(X(b,c,w) - M(b,w))"
        " S(b,w) +=! E(b,c,w) Y(b,c,w) = E(b,c,w) / S(b,w) }",
        numpy,
        lambda x: eqsat.softmax(x, axis=1),
        {"X": (64, 21, 197)},
        is_of_the_paper=False,
    )


def _layer_norm() -> OperatorCase:
    """Layer normalisation of a sum."""

    def numpy(x: Any, r: Any, g: Any, b: Any) -> Any:
        y = x + r
        y = y - y.mean(axis=1, keepdims=True)
        return y / np.sqrt((y * y).mean(axis=1, keepdims=True) + np.float32(1e-5)) * g + b

    return OperatorCase(
        "def layer_norm(float(B,D) X, float(B,D) R, float(D) G, float(D) H) -> (Y) {"
        " Z(b,d) = X(b,d) + R(b,d) M(b) +=! Z(b,d) V(b) +=! (Z(b,d) - M(b) / D) * (Z(b,d) - M(b) / D)"
        " N(b) = rsqrt(V(b) / D + 1e-5)"
        " Y(b,d) = (Z(b,d) - M(b) / D) * N(b) * G(d) + H(d) }",
        numpy,
        lambda x, r, g, b: eqsat.layer_norm(x + r, g, b, axis=-1, epsilon=1e-5),
        {"X": (197, 771), "R": (197, 771), "G": (771,), "H": (771,)},
        is_of_the_paper=False,
    )


#: The cases by name; sizes are those of the paper (arXiv 1802.04730), tables of 2LUT and the large product reduced.
CASES: Mapping[str, OperatorCase] = {
    "tmm 128,32,256": _matmul(128, 32, 256),
    "tmm 128,1024,1024": _matmul(128, 1024, 1024),
    "tbmm 500,26,72,26": OperatorCase(
        "def tbmm(float(B,N,M) X, float(B,K,M) Y) -> (Z) { Z(b,n,k) +=! X(b,n,m) * Y(b,k,m) }",
        lambda x, y: x @ y.transpose(0, 2, 1),
        lambda x, y: x @ _t(y),
        {"X": (500, 26, 72), "Y": (500, 26, 72)},
    ),
    "gconv 56²": _grouped(32, 4, 56),
    "gconv 7²": _grouped(32, 32, 7),
    "2LUT": _look_ups(100_000),
    "C3": OperatorCase(
        "def c3(float(B,WX) I, float(WY,WX) W) -> (C3) { C3(b,y) +=! I(b,x) * W(y,x) }",
        lambda a, b: a @ b.T,
        lambda a, b: a @ _t(b),
        {"I": (128, 1000), "W": (1024, 1000)},
    ),
    "MLP1": _layers((2000, 128)),
    "MLP3": _layers((128, 64, 32, 2)),
    "kronecker": _kronecker(),
    "softmax, axis 1": _softmax(),
    "layer norm + residual": _layer_norm(),
}
