"""Pads, concatenations and sums of dims that experts cancel, with the movements between."""

from __future__ import annotations

from benchmarks.expert.case import Maker, Pair, Tensor, case
from eqsat import concat, conv, expand, gather, pad, relu, slice, tanh
from eqsat.language.terms import Sym

_GROUP = "transposes and reshapes"
_BATCH, _PAST, _NEW = map(Sym.named, ("batch", "past", "new"))


def _windows(x: Tensor, side: int, channels: int) -> Tensor:
    """Windows of 7 by 7 of a square image with channels last."""
    parts = x.reshape(1, side // 7, 7, side // 7, 7, channels).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape((side // 7) ** 2, 49, channels)


def _image(x: Tensor, side: int, channels: int) -> Tensor:
    """The image of windows."""
    parts = x.reshape(1, side // 7, side // 7, 7, 7, channels).transpose(0, 1, 3, 2, 4, 5)
    return parts.reshape(1, side, side, channels)


@case(_GROUP, "windows of a padded image put back", "Transformers: SwinLayer, maybe_pad and window_reverse")
def _(m: Maker) -> Pair:
    x = m.x(1, 60, 60, 96)
    back = _image(_windows(pad(x, pads=(0, 0, 0, 0, 0, 3, 3, 0)), 63, 96), 63, 96)
    return relu(back[:, :60, :60]), relu(x)


@case(_GROUP, "windows of a padded image through a layer", "Transformers: SwinLayer, maybe_pad and window_reverse")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 60, 60, 96), m.w(96, 96)
    windows = _windows(pad(x, pads=(0, 0, 0, 0, 0, 3, 3, 0)), 63, 96)
    return _image(windows @ w, 63, 96)[:, :60, :60], x @ w


@case(_GROUP, "windows rolled and rolled back", "Swin, ICCV 2021: shifted windows")
def _(m: Maker) -> Pair:
    x = m.x(1, 56, 56, 96)
    there = concat([x[:, 3:], x[:, :3]], axis=1)
    there = concat([there[:, :, 3:], there[:, :, :3]], axis=2)
    back = _image(_windows(there, 56, 96), 56, 96)
    back = concat([back[:, 53:], back[:, :53]], axis=1)
    return tanh(concat([back[:, :, 53:], back[:, :, :53]], axis=2)), tanh(x)


@case(_GROUP, "four images of every second pixel", "YOLOv5: Focus")
def _(m: Maker) -> Pair:
    x = m.x(1, 3, 640, 640)
    parts = [x[:, :, row::2, column::2] for column in range(2) for row in range(2)]
    apart = x.reshape(1, 3, 320, 2, 320, 2).transpose(0, 5, 3, 1, 2, 4)
    return relu(concat(parts, axis=1)), relu(apart.reshape(1, 12, 320, 320))


@case(_GROUP, "patches merged two by two", "Transformers: SwinPatchMerging")
def _(m: Maker) -> Pair:
    x, w = m.x(1, 56, 56, 96), m.w(384, 192)
    parts = [x[:, row::2, column::2] for column in range(2) for row in range(2)]
    apart = x.reshape(1, 28, 2, 28, 2, 96).transpose(0, 1, 3, 4, 2, 5)
    return concat(parts, axis=3).reshape(1, 784, 384) @ w, apart.reshape(1, 784, 384) @ w


@case(_GROUP, "even and odd columns interleaved again", "GPT-J exports: rotate_every_two")
def _(m: Maker) -> Pair:
    x = m.x(8, 128, 64)
    parts = [x[:, :, n::2].reshape(8, 128, 32, 1) for n in range(2)]
    return relu(concat(parts, axis=3).reshape(8, 128, 64)), relu(x)


@case(_GROUP, "padding on both sides, one cut off", "TCN, Bai et al. 2018: Chomp1d")
def _(m: Maker) -> Pair:
    x, w = m.x(8, 64, 512), m.w(64, 64, 3)
    padded = pad(x, pads=(0, 0, 4, 0, 0, 4))
    given = conv(padded, w, dilations=(2,), strides=(1,), pads=(0, 0))
    return relu(given[:, :, :512]), relu(conv(x, w, dilations=(2,), strides=(1,), pads=(4, 0)))


@case(_GROUP, "space to batch and back", "ONNX from TensorFlow: dilated convolutions")
def _(m: Maker) -> Pair:
    x = m.x(1, 30, 30, 64)
    padded = pad(x, pads=(0, 1, 1, 0, 0, 1, 1, 0)).reshape(1, 16, 2, 16, 2, 64)
    batch = relu(padded.transpose(2, 4, 0, 1, 3, 5).reshape(4, 16, 16, 64))
    back = batch.reshape(2, 2, 1, 16, 16, 64).transpose(2, 3, 0, 4, 1, 5).reshape(1, 32, 32, 64)
    return back[:, 1:31, 1:31], relu(x)


@case(_GROUP, "zeros joined in front of what is shifted", "T5 exports: shift right")
def _(m: Maker) -> Pair:
    x, zeros = m.x(8, 128, 512), m.c([[[0.0] * 512]] * 8)
    return relu(concat([zeros, x[:, :127]], axis=1)), relu(pad(x, pads=(0, 1, 0, 0, -1, 0)))


@case(_GROUP, "borders joined one by one", "ONNX from Keras: ZeroPadding2D by concatenations")
def _(m: Maker) -> Pair:
    x = m.x(1, 16, 64, 64)
    row, column = m.c([[[[0.0] * 64]] * 16]), m.c([[[[0.0]] * 66] * 16])
    tall = concat([row, x, row], axis=2)
    return relu(concat([column, tall, column], axis=3)), relu(pad(x, pads=(0, 0, 1, 1, 0, 0, 1, 1)))


@case(_GROUP, "heads of a cache turned for a kernel", "Transformers: DynamicCache before flash attention")
def _(m: Maker) -> Pair:
    past, new = m.x("batch", 8, "past", 64), m.x("batch", "new", 512)
    heads = concat([past, new.reshape(_BATCH, _NEW, 8, 64).transpose(0, 2, 1, 3)], axis=2)
    rows = [past.transpose(0, 2, 1, 3).reshape(_BATCH, _PAST, 512), new]
    return relu(heads.transpose(0, 2, 1, 3).reshape(_BATCH, _PAST + _NEW, 512)), relu(concat(rows, axis=1))


@case(_GROUP, "new rows of a cache", "Transformers: past key values returned with the new ones")
def _(m: Maker) -> Pair:
    past, new = m.x("batch", 8, "past", 64), m.x("batch", "new", 512)
    heads = concat([past, new.reshape(_BATCH, _NEW, 8, 64).transpose(0, 2, 1, 3)], axis=2)
    rows = slice(heads, axes=(2,), starts=(_PAST,), ends=(_PAST + _NEW,))
    return relu(rows.transpose(0, 2, 1, 3).reshape(_BATCH, _NEW, 512)), relu(new)


@case(_GROUP, "keys of a cache repeated and taken once", "Llama exports: repeat_kv")
def _(m: Maker) -> Pair:
    past, new = m.x("batch", 2, "past", 64), m.x("batch", 2, "new", 64)
    keys, total = concat([past, new], axis=2), _PAST + _NEW
    wide = expand(keys.reshape(_BATCH, 2, 1, total, 64), shape=(_BATCH, 2, 4, total, 64)).reshape(_BATCH, 8, total, 64)
    return tanh(wide.reshape(_BATCH, 2, 4, total, 64)[:, :, 0]), tanh(keys)


@case(_GROUP, "the mask of a batch by its places", "torch.export of Llama: padding_mask_function under vmap")
def _(m: Maker) -> Pair:
    mask = m.x("batch", "steps")
    batch, steps = Sym.named("batch"), Sym.named("steps")
    ranges = [mask.graph.apply("iota", start=0, step=1, size=size, dtype="int64") for size in (batch, steps)]
    width = gather(mask.graph.apply("shape", mask, start=0, end=None), m.c([1], "int64"))
    places = width * ranges[0].reshape(batch, 1, 1, 1) + ranges[1].reshape(1, 1, 1, steps)
    found = gather(mask.reshape(batch * steps, 1), places).reshape(batch, 1, 1, steps)
    return relu(found), relu(mask.reshape(batch, 1, 1, steps))
