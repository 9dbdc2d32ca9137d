"""Transposes, reshapes, slices and joins that experts cancel or move."""

from __future__ import annotations

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import concat, expand, gather, pad, reduce_mean, reduce_sum, relu, sigmoid, softmax, split, stack, tanh, tile

_GROUP = "transposes and reshapes"
_EXPORT = "exports of vision transformers and shuffled networks"


@case(_GROUP, "there and back through a relu", "TVM: layout transforms")
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 32, 32)
    return relu(x.transpose(0, 2, 3, 1)).transpose(0, 3, 1, 2), relu(x)


@case(_GROUP, "there and back through six layers", "TVM: layout transforms")
def _(m: Maker) -> Pair:
    x, y = m.x(8, 64, 32, 32), m.x(8, 64, 32, 32)

    def layers(a: Tensor, b: Tensor) -> Tensor:
        return sigmoid(tanh(relu(a) * 0.5 + b) * b) + a

    nhwc = (0, 2, 3, 1)
    return layers(x.transpose(*nhwc), y.transpose(*nhwc)).transpose(0, 3, 1, 2), layers(x, y)


@case(_GROUP, "there and back, with a bias of channels", "ONNX from TensorFlow: channels last")
def _(m: Maker) -> Pair:
    x, b = m.x(8, 64, 32, 32), m.w(64)
    return (x.transpose(0, 2, 3, 1) + b).transpose(0, 3, 1, 2), x + b.reshape(64, 1, 1)


@case(_GROUP, "there and back through a softmax", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 256)
    return softmax(x.transpose(0, 2, 1), axis=2).transpose(0, 2, 1), softmax(x, axis=1)


@case(_GROUP, "there and back through a mean", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 32, 32)
    return reduce_mean(x.transpose(0, 2, 3, 1), [1, 2]), reduce_mean(x, [2, 3])


@case(_GROUP, "three transposes in a row", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(16, 64, 32, 8)
    return relu(x.transpose(1, 2, 3, 0).transpose(1, 2, 3, 0).transpose(1, 2, 3, 0)), relu(x.transpose(3, 0, 1, 2))


@case(_GROUP, "four rotations of axes", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(16, 64, 32, 8), m.x(16, 64, 32, 8)
    turned = x
    for _ in range(4):
        turned = turned.transpose(1, 2, 3, 0)
    return turned + y, x + y


@case(_GROUP, "reshapes in a row around a relu", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(64, 32, 128)
    return relu(x.reshape(2048, 128).reshape(64, 4096)).reshape(64, 32, 128), relu(x)


@case(_GROUP, "transposed twice with a reshape between", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(8, 196, 768)
    moved = x.transpose(0, 2, 1).reshape(8, 768, 14, 14)
    return relu(moved.reshape(8, 768, 196).transpose(0, 2, 1)), relu(x)


@case(_GROUP, "heads split and merged", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(8, 128, 768)
    heads = relu(x.reshape(8, 128, 12, 64).transpose(0, 2, 1, 3))
    return heads.transpose(0, 2, 1, 3).reshape(8, 128, 768), relu(x)


@case(_GROUP, "windows cut and put back", "Swin, ICCV 2021")
def _(m: Maker) -> Pair:
    x = m.x(1, 56, 56, 96)
    windows = relu(x.reshape(1, 8, 7, 8, 7, 96).transpose(0, 1, 3, 2, 4, 5).reshape(64, 49, 96))
    return windows.reshape(1, 8, 8, 7, 7, 96).transpose(0, 1, 3, 2, 4, 5).reshape(1, 56, 56, 96), relu(x)


@case(_GROUP, "channels shuffled there and back", "ShuffleNet, CVPR 2018")
def _(m: Maker) -> Pair:
    x = m.x(8, 64, 28, 28)
    shuffled = x.reshape(8, 4, 16, 28, 28).transpose(0, 2, 1, 3, 4).reshape(8, 64, 28, 28)
    back = relu(shuffled).reshape(8, 16, 4, 28, 28).transpose(0, 2, 1, 3, 4).reshape(8, 64, 28, 28)
    return back, relu(x)


@case(_GROUP, "transposes of both operands of a sum", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(1024, 512), m.x(1024, 512)
    return (x.transpose(1, 0) + y.transpose(1, 0)).transpose(1, 0), x + y


@case(_GROUP, "transposes before a join", _EXPORT)
def _(m: Maker) -> Pair:
    x = [m.x(64, 512) for _ in range(4)]
    return concat([one.transpose(1, 0) for one in x], axis=1).transpose(1, 0), concat(x, axis=0)


@case(_GROUP, "parts of a join", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(256, 512), m.x(256, 512)
    return relu(concat([x, y], axis=0)[:256]) + y, relu(x) + y


@case(_GROUP, "a split joined again", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(256, 2048)
    return concat([relu(part) for part in split(x, 4, axis=1)], axis=1), relu(x)


@case(_GROUP, "a split joined again, one by one", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(16, 4096)
    return stack([tanh(x[i]) for i in range(16)], axis=0), tanh(x)


@case(_GROUP, "slices of slices", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(512, 1024)
    return relu(x[64:][:, 128:][:128][:, :256]), relu(x[64:192, 128:384])


@case(_GROUP, "padding cut away", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(64, 128, 128)
    return relu(pad(x, pads=(0, 2, 2, 0, 2, 2)))[:, 2:130, 2:130], relu(x)


@case(_GROUP, "padding twice", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(64, 128, 128)
    return pad(pad(x, pads=(0, 1, 1, 0, 1, 1)), pads=(0, 2, 2, 0, 2, 2)), pad(x, pads=(0, 3, 3, 0, 3, 3))


@case(_GROUP, "slice after pointwise work", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(1024, 1024), m.x(1024, 1024)
    return tanh(x * y)[:64], tanh(x[:64] * y[:64])


@case(_GROUP, "the last token of a product", "GPT-2 exports: logits of the last token")
def _(m: Maker) -> Pair:
    x, w = m.x(8, 128, 512), m.w(512, 1024)
    return (x @ w)[:, 127:], x[:, 127:] @ w


@case(_GROUP, "the first token of a normalised sequence", "BERT exports: pooled output")
def _(m: Maker) -> Pair:
    x, w, b = m.x(8, 128, 512), m.w(512, 512), m.w(512)
    return tanh(relu(x @ w + b)[:, 0]), tanh(relu(x[:, 0] @ w + b))


@case(_GROUP, "expanded, then summed", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(1, 1024)
    return reduce_sum(relu(expand(x, shape=(512, 1024))), 0), relu(x.reshape(1024)) * 512.0


@case(_GROUP, "expanded, then added", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(1, 1024), m.x(512, 1024)
    return expand(x, shape=(512, 1024)) + y, x + y


@case(_GROUP, "tiled, then added", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(1, 1024), m.x(512, 1024)
    return tile(x, repeats=(512, 1)) * y, x * y


@case(_GROUP, "pointwise work on what is expanded", _EXPORT)
def _(m: Maker) -> Pair:
    x, y = m.x(1, 1024), m.x(512, 1024)
    return sigmoid(tanh(expand(x, shape=(512, 1024)))) * y, sigmoid(tanh(x)) * y


@case(_GROUP, "gathered twice", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(512, 1024)
    first, second = list(range(0, 512, 2)), list(range(0, 256, 2))
    given = gather(gather(x, m.c(first, "int64")), m.c(second, "int64"))
    return relu(given), relu(x[0:512:4])


@case(_GROUP, "gathered rows in their order", _EXPORT)
def _(m: Maker) -> Pair:
    x = m.x(512, 1024)
    return relu(gather(x, m.c(list(range(128)), "int64"))), relu(x[:128])


@case(_GROUP, "a transpose between two products", _EXPORT)
def _(m: Maker) -> Pair:
    a, b, c = m.x(256, 256), m.x(256, 256), m.x(256, 256)
    return (b.transpose(1, 0) @ a.transpose(1, 0)).transpose(1, 0) @ c, (a @ b) @ c


@case(_GROUP, "squeezed and unsqueezed around a product", _EXPORT)
def _(m: Maker) -> Pair:
    x, w = m.x(1, 128, 512), m.w(512, 512)
    return relu(x.reshape(128, 512) @ w).reshape(1, 128, 512).reshape(128, 512), relu(x.reshape(128, 512) @ w)
