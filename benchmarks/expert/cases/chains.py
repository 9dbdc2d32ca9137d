"""Products of several matrices, written from the left, and in the cheapest order."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, reduce
from itertools import pairwise
from operator import matmul

import numpy as np

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import relu

_GROUP = "matrix chains"
_SOURCE = "Cormen et al., Introduction to Algorithms: matrix-chain multiplication"


def cheapest(operands: Sequence[Tensor]) -> Tensor:
    """The product of matrices in the order that takes the fewest multiplications (dynamic programming)."""
    sizes = [*(int(str(t.shape[0])) for t in operands), int(str(operands[-1].shape[1]))]

    @cache
    def best(first: int, last: int) -> tuple[int, int]:
        """The multiplications of a part, and where it is cut."""
        if first == last:
            return 0, first
        return min(
            (best(first, cut)[0] + best(cut + 1, last)[0] + sizes[first] * sizes[cut + 1] * sizes[last + 1], cut)
            for cut in range(first, last)
        )

    def made(first: int, last: int) -> Tensor:
        if first == last:
            return operands[first]
        cut = best(first, last)[1]
        return made(first, cut) @ made(cut + 1, last)

    return made(0, len(operands) - 1)


def _register(name: str, sizes: Sequence[int]) -> None:
    @case(_GROUP, name, _SOURCE)
    def _(m: Maker) -> Pair:
        matrices = [m.x(rows, columns) for rows, columns in pairwise(sizes)]
        return reduce(matmul, matrices), cheapest(matrices)


for _name, _sizes in {
    "three, a vector last": (512, 512, 512, 1),
    "three, narrow in the middle": (512, 8, 512, 8),
    "three, narrow at the end": (256, 512, 512, 16),
    "four, a vector last": (512, 512, 512, 512, 1),
    "four, wide and narrow": (256, 16, 512, 16, 512),
    "four, narrow towards the end": (512, 256, 128, 64, 8),
    "five, a vector last": (256, 256, 256, 256, 256, 1),
    "five, two bottlenecks": (256, 512, 8, 512, 8, 512),
    "six, the textbook's sizes times ten": (300, 350, 150, 50, 100, 200, 250),
    "six, a vector last": (256,) * 6 + (1,),
    "eight, sizes by turns": (256, 16) * 4 + (256,),
    "eight, a narrow middle": (128, 256, 512, 256, 4, 256, 512, 256, 128),
    "ten, a vector last": (256,) * 10 + (1,),
    "ten, sizes by turns": (16, 256) * 5 + (16,),
    "ten, a narrow middle": (256, 128, 256, 128, 256, 4, 256, 128, 256, 128, 256),
    "twelve, a vector last": (192,) * 12 + (1,),
}.items():
    _register(_name, _sizes)


@case(_GROUP, "a vector behind transposed matrices", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, x = m.x(512, 256), m.x(512, 256), m.x(512, 1)
    return (a.transpose(1, 0) @ b).transpose(1, 0) @ (a.transpose(1, 0) @ x), b.transpose(1, 0) @ (
        a @ (a.transpose(1, 0) @ x)
    )


@case(_GROUP, "a scale inside of a chain", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, x = m.x(512, 512), m.x(512, 512), m.x(512, 1)
    return ((a @ b) * 0.125) @ x, a @ (b @ (x * 0.125))


@case(_GROUP, "fourth power times a vector", _SOURCE)
def _(m: Maker) -> Pair:
    a, x = m.x(512, 512), m.x(512, 1)
    return (((a @ a) @ a) @ a) @ x, a @ (a @ (a @ (a @ x)))


@case(_GROUP, "eighth power", "Knuth, The Art of Computer Programming 2: powers by squaring")
def _(m: Maker) -> Pair:
    a = m.x(256, 256)
    two = a @ a
    four = two @ two
    return reduce(matmul, [a] * 8), four @ four


@case(_GROUP, "chain of constants behind an input", "Gale et al., 2019: factorised linear layers")
def _(m: Maker) -> Pair:
    x, w = m.x(64, 256), [m.w(256, 256) for _ in range(3)]
    return ((x @ w[0]) @ w[1]) @ w[2], x @ (w[0] @ w[1] @ w[2])


@case(_GROUP, "two chains that begin alike", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, x, y = m.x(256, 256), m.x(256, 256), m.x(256, 1), m.x(256, 1)
    both = m.builder.apply("concat", x, y, axis=1)
    z = a @ (b @ both)
    return (relu((a @ b) @ x), relu((a @ b) @ y)), (relu(z[:, :1]), relu(z[:, 1:]))


@case(_GROUP, "batches of chains", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, c = m.x(8, 256, 256), m.x(8, 256, 256), m.x(8, 256, 4)
    return (a @ b) @ c, a @ (b @ c)


@case(_GROUP, "a chain behind a sum", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, c, x = m.x(256, 256), m.x(256, 256), m.x(256, 256), m.x(256, 1)
    return (a @ b + a @ c) @ x, a @ ((b + c) @ x)


@case(_GROUP, "projection on the columns of a matrix", "Golub and Van Loan, Matrix Computations")
def _(m: Maker) -> Pair:
    q, x = m.x(1024, 16), m.x(1024, 4)
    return (q @ q.transpose(1, 0)) @ x, q @ (q.transpose(1, 0) @ x)


@case(_GROUP, "Householder reflection", "Golub and Van Loan, Matrix Computations")
def _(m: Maker) -> Pair:
    v, x = m.x(512, 1), m.x(512, 64)
    identity = m.c(np.eye(512))
    return (identity - (v @ v.transpose(1, 0)) * 2.0) @ x, x - (v * 2.0) @ (v.transpose(1, 0) @ x)
