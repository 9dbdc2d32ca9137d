"""Spectra, windows of signals, and running products."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from benchmarks.onnx_models.elementwise import Step
from benchmarks.onnx_models.growing import Growing, RefusedError


def _spectrum(g: Growing) -> None:
    parts = g.among([1, 2])
    x = g.input(g.among([np.float32, np.float32, np.float64]), [g.among([1, 2, "n"]), g.integer(2, 6), parts])
    flags = {"onesided": 1} if parts == 1 and g.flip(0.3) else {"inverse": g.among([None, 1])}
    if g.opset >= 20:
        length = g.constant(np.array(g.integer(2, 6), np.int64)) if g.flip(0.3) else None
        g.add("DFT", [x, length, g.constant(np.array(g.among([1, -2]), np.int64))], **flags)
    else:
        g.add("DFT", [x], axis=1, **flags)


def _windowed(g: Growing) -> None:
    """A window, and a signal cut into frames that it weighs."""
    length = 4
    size = g.constant(np.array(length, np.int64), plain=True)
    op_type = g.among(["HannWindow", "HammingWindow", "BlackmanWindow"])
    (window,) = g.add(op_type, [size], periodic=g.among([None, 0]))
    if g.flip(0.4):
        g.add("Mul", [window, g.like(window)])
        return
    signal = g.input(np.float32, [g.among([1, 2, "n"]), g.integer(6, 10), 1])
    step = g.constant(np.array(2, np.int64), plain=True)
    g.add("STFT", [signal, step, window, size if g.flip() else None], onesided=g.among([None, 0]))


def _mel(g: Growing) -> None:
    numbers = [np.array(n, np.int64) for n in (g.integer(2, 4), 8, 16)] + [np.array(n, np.float32) for n in (0, 8)]
    g.add("MelWeightMatrix", [g.constant(n, plain=True) for n in numbers])


def _running(g: Growing) -> None:
    if not g.has("CumProd"):
        raise RefusedError("opset")
    x = g.pick("fi", least=1)
    axis = g.constant(np.array(g.integer(-x.rank, x.rank - 1), np.int64))
    g.add("CumProd", [x, axis], exclusive=g.among([None, 1]), reverse=g.among([None, 1]))


def _bits(g: Growing) -> None:
    """Numbers taken for others of as many bits."""
    if not g.has("BitCast"):
        raise RefusedError("opset")
    kinds = {"float32": 6, "int32": 1, "uint32": 12, "float64": 7, "int64": 11}
    x = g.pick("fiu")
    fitting = [code for name, code in kinds.items() if np.dtype(name).itemsize == x.dtype.itemsize]
    if not fitting:
        raise RefusedError("no type of as many bits")
    g.add("BitCast", [x], to=g.among(fitting))


def _drawn(g: Growing) -> None:
    """Numbers drawn at random by a seed, that are the same in each session."""
    attrs = {"seed": float(g.integer(1, 3))}
    match g.integer(0, 3):
        case 0:
            g.add(g.among(["RandomNormal", "RandomUniform"]), [], shape=[2, 3], **attrs)
        case 1:
            g.add(g.among(["RandomNormalLike", "RandomUniformLike"]), [g.pick("f")], **attrs)
        case 2:
            g.add("Bernoulli", [g.constant(g.rng.random((2, 3)).astype(np.float32))], **attrs)
        case _:
            x = g.constant(g.rng.normal(size=(2, 4)).astype(np.float32))
            g.add("Multinomial", [x], sample_size=3, dtype=g.among([6, 7]), **attrs)


STEPS: Mapping[Step, float] = {_spectrum: 1.5, _windowed: 1.5, _mel: 0.5, _running: 1, _bits: 1, _drawn: 1}
