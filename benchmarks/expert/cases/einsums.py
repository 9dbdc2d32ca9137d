"""Sums of products in index notation, in the order of least work and as products of matrices."""

from __future__ import annotations

from benchmarks.expert.case import Maker, Pair, case
from eqsat import einsum, reduce_sum

_GROUP = "einsum"
_SOURCE = "opt_einsum, JOSS 2018"


@case(_GROUP, "ij,jk,kl->il", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, c = m.x(128, 256), m.x(256, 128), m.x(128, 4)
    return einsum("ij,jk,kl->il", a, b, c), a @ (b @ c)


@case(_GROUP, "ij,jk,kl,lm->im", _SOURCE)
def _(m: Maker) -> Pair:
    a, b, c, d = m.x(32, 64), m.x(64, 32), m.x(32, 64), m.x(64, 2)
    return einsum("ij,jk,kl,lm->im", a, b, c, d), a @ (b @ (c @ d))


@case(_GROUP, "ij,j->i", _SOURCE)
def _(m: Maker) -> Pair:
    a, x = m.x(512, 512), m.x(512)
    return einsum("ij,j->i", a, x), (a @ x.reshape(512, 1)).reshape(512)


@case(_GROUP, "ij,kj->ik", _SOURCE)
def _(m: Maker) -> Pair:
    a, b = m.x(256, 512), m.x(256, 512)
    return einsum("ij,kj->ik", a, b), a @ b.transpose(1, 0)


@case(_GROUP, "ji,jk->ki", _SOURCE)
def _(m: Maker) -> Pair:
    a, b = m.x(512, 256), m.x(512, 256)
    return einsum("ji,jk->ki", a, b), b.transpose(1, 0) @ a


@case(_GROUP, "bij,bjk->bik", _SOURCE)
def _(m: Maker) -> Pair:
    a, b = m.x(8, 128, 128), m.x(8, 128, 128)
    return einsum("bij,bjk->bik", a, b), a @ b


@case(_GROUP, "bqhd,bkhd->bhqk", "attention as JAX writes it")
def _(m: Maker) -> Pair:
    q, k = m.x(2, 64, 8, 32), m.x(2, 64, 8, 32)
    return einsum("bqhd,bkhd->bhqk", q, k), q.transpose(0, 2, 1, 3) @ k.transpose(0, 2, 3, 1)


@case(_GROUP, "bsd,dhk->bshk", "projections as JAX writes them")
def _(m: Maker) -> Pair:
    x, w = m.x(2, 64, 256), m.w(256, 8, 32)
    return einsum("bsd,dhk->bshk", x, w), (x @ w.reshape(256, 256)).reshape(2, 64, 8, 32)


@case(_GROUP, "ij,ij->", _SOURCE)
def _(m: Maker) -> Pair:
    a, b = m.x(512, 512), m.x(512, 512)
    return einsum("ij,ij->", a, b), reduce_sum(a * b, [0, 1])


@case(_GROUP, "ij,jk->", _SOURCE)
def _(m: Maker) -> Pair:
    a, b = m.x(256, 512), m.x(512, 256)
    return einsum("ij,jk->", a, b), reduce_sum(reduce_sum(a, 0) * reduce_sum(b, 1), 0)


@case(_GROUP, "i,ij,j->", "bilinear forms")
def _(m: Maker) -> Pair:
    x, a, y = m.x(512), m.x(512, 512), m.x(512)
    given = einsum("i,ij,j->", x, a, y)
    return given, (x.reshape(1, 512) @ (a @ y.reshape(512, 1))).reshape()


@case(_GROUP, "i,j,ij->ij", _SOURCE)
def _(m: Maker) -> Pair:
    x, y, a = m.x(512), m.x(512), m.x(512, 512)
    return einsum("i,j,ij->ij", x, y, a), (x.reshape(512, 1) * a) * y


@case(_GROUP, "ik,jk,kl->ijl", "factors of tensors: CP decomposition")
def _(m: Maker) -> Pair:
    a, b, c = m.x(32, 8), m.x(32, 8), m.x(8, 32)
    given = einsum("ik,jk,kl->ijl", a, b, c)
    return given, ((a.reshape(32, 1, 8) * b).reshape(1024, 8) @ c).reshape(32, 32, 32)


@case(_GROUP, "abc,cd->abd", _SOURCE)
def _(m: Maker) -> Pair:
    x, w = m.x(8, 64, 256), m.w(256, 256)
    return einsum("abc,cd->abd", x, w), x @ w


@case(_GROUP, "abc->ab", _SOURCE)
def _(m: Maker) -> Pair:
    x = m.x(64, 64, 256)
    return einsum("abc->ab", x), reduce_sum(x, 2)
