"""A network of depthwise and pointwise convolutions that is trained, with NumPy, on handwritten digits."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import eqsat

Array = np.ndarray[Any, np.dtype[Any]]

#: Images for training; the others are for the test.
TRAINED = 1200
#: Passes over the images, images in a step, and the rate of Adam at the beginning.
_EPOCHS, _BATCH, _RATE = 30, 48, 4e-3
#: Kernel, outputs and stride of the layers; of depthwise ones 0 outputs.
_LAYERS = ((3, 24, 1), (3, 0, 1), (1, 32, 1), (3, 0, 2), (1, 48, 1), (3, 0, 1), (1, 64, 1))


@dataclass(frozen=True)
class Layer:
    """Filters and biases of a convolution with relu behind it, its stride, and its groups."""

    weights: Array
    bias: Array
    stride: int
    groups: int

    @property
    def is_depthwise(self) -> bool:
        """True where each channel has filters of its own."""
        return self.groups > 1

    @property
    def pad(self) -> int:
        """Zeros around the image."""
        return self.weights.shape[-1] // 2


@dataclass(frozen=True)
class Network:
    """Convolutions, then a product of the means of their channels with a matrix, and a bias."""

    layers: tuple[Layer, ...]
    matrix: Array
    bias: Array

    def graph(self, rows: int) -> eqsat.Graph:
        """The network on so many images as a graph of eqsat."""
        g = eqsat.Graph("digits")
        x = g.input("x", (rows, 1, 8, 8))
        for one in self.layers:
            x = eqsat.relu(
                eqsat.conv(
                    x,
                    g.constant(one.weights),
                    g.constant(one.bias),
                    strides=(one.stride,) * 2,
                    pads=(one.pad,) * 4,
                    group=one.groups,
                )
            )
        means = eqsat.global_avg_pool(x).reshape(rows, len(self.matrix))
        g.output("y", means @ g.constant(self.matrix) + g.constant(self.bias))
        return g.build()

    def skewed(self, decades: float, seed: int) -> Network:
        """The same function, with the inputs of depthwise layers scaled by factors over so many decades."""
        rng = np.random.default_rng(seed)
        layers = list(self.layers)
        for place, one in enumerate(layers):
            if one.is_depthwise:
                scale = (10.0 ** rng.uniform(-decades / 2, decades / 2, one.groups)).astype(np.float32)
                before, along = layers[place - 1], scale[:, None, None, None]
                layers[place - 1] = replace(before, weights=before.weights * along, bias=before.bias * scale)
                layers[place] = replace(one, weights=one.weights / along)
        return replace(self, layers=tuple(layers))


def digits(package: Path) -> tuple[Array, Array]:
    """Images of 8 x 8 numbers from 0 to 1, mixed, and their digits, of the folder of scikit-learn."""
    with gzip.open(package / "sklearn" / "datasets" / "data" / "digits.csv.gz") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng(0).permutation(len(table))]
    return (table[:, :64] / 16).reshape(-1, 1, 8, 8), table[:, 64].astype(np.int64)


def trained(images: Array, answers: Array, seed: int) -> Network:
    """The network after training by Adam (D. Kingma and J. Ba, 2015) at a falling rate."""
    rng = np.random.default_rng(seed)
    network = _begun(rng)
    values = _parameters(network)
    means, squares = [np.zeros_like(v) for v in values], [np.zeros_like(v) for v in values]
    batches = len(images) // _BATCH
    steps = _EPOCHS * batches
    order = np.arange(len(images))
    for step in range(steps):
        if step % batches == 0:
            rng.shuffle(order)
        some = order[step % batches * _BATCH :][:_BATCH]
        slopes = _slopes(network, images[some], answers[some])
        rate = _RATE * (1 - step / steps)
        for value, slope, mean, square in zip(values, slopes, means, squares, strict=True):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            value -= rate * (mean / (1 - 0.9 ** (step + 1))) / (np.sqrt(square / (1 - 0.999 ** (step + 1))) + 1e-8)
    return network


def _begun(rng: np.random.Generator) -> Network:
    layers: list[Layer] = []
    channels = 1
    for kernel, outputs, stride in _LAYERS:
        groups = 1 if outputs else channels
        shape = (outputs or channels, channels // groups, kernel, kernel)
        weights = (rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))).astype(np.float32)
        layers.append(Layer(weights, np.zeros(shape[0], np.float32), stride, groups))
        channels = shape[0]
    matrix = (rng.standard_normal((channels, 10)) / np.sqrt(channels)).astype(np.float32)
    return Network(tuple(layers), matrix, np.zeros(10, np.float32))


def _parameters(network: Network) -> list[Array]:
    return [array for one in network.layers for array in (one.weights, one.bias)] + [network.matrix, network.bias]


def _slopes(network: Network, images: Array, answers: Array) -> list[Array]:
    """The derivatives of the mean cross-entropy by the parameters."""
    windows: list[Array] = []
    values = [images]
    for one in network.layers:
        windows.append(_windows(values[-1], one))
        values.append(np.maximum(_convolved(windows[-1], one), 0))
    means = values[-1].mean(axis=(2, 3))
    logits = means @ network.matrix + network.bias
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    shares[np.arange(len(answers)), answers] -= 1
    shares /= len(answers)
    back = [means.T @ shares, shares.sum(axis=0)]
    area = values[-1].shape[2] * values[-1].shape[3]
    slope = np.broadcast_to((shares @ network.matrix.T / area)[:, :, None, None], values[-1].shape)
    for place in reversed(range(len(network.layers))):
        one = network.layers[place]
        slope = slope * (values[place + 1] > 0)
        back = [*_layer_slopes(one, windows[place], slope), *back]
        slope = _input_slope(one, slope, values[place].shape)
    return back


def _windows(x: Array, layer: Layer) -> Array:
    """The windows that a layer reads: images, channels, places and kernel."""
    pad, size = layer.pad, layer.weights.shape[-1]
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)))
    every = np.lib.stride_tricks.sliding_window_view(padded, (size, size), axis=(2, 3))
    return every[:, :, :: layer.stride, :: layer.stride]


def _convolved(windows: Array, layer: Layer) -> Array:
    if layer.is_depthwise:
        made = np.einsum("nchwij,cij->nchw", windows, layer.weights[:, 0])
    else:
        made = np.tensordot(windows, layer.weights, ((1, 4, 5), (1, 2, 3))).transpose(0, 3, 1, 2)
    return made + layer.bias[:, None, None]


def _layer_slopes(layer: Layer, windows: Array, slope: Array) -> Sequence[Array]:
    """The derivatives by the filters and the biases."""
    if layer.is_depthwise:
        filters = np.einsum("nchwij,nchw->cij", windows, slope)[:, None]
    else:
        filters = np.tensordot(slope, windows, ((0, 2, 3), (0, 2, 3)))
    return filters, slope.sum(axis=(0, 2, 3))


def _input_slope(layer: Layer, slope: Array, shape: tuple[int, ...]) -> Array:
    """The derivative by the input."""
    pad, stride, size = layer.pad, layer.stride, layer.weights.shape[-1]
    rows, columns = slope.shape[2:]
    padded = np.zeros((*shape[:2], shape[2] + 2 * pad, shape[3] + 2 * pad), np.float32)
    for i in range(size):
        for j in range(size):
            taken = layer.weights[:, :, i, j]
            if layer.is_depthwise:
                part = slope * taken[:, 0][:, None, None]
            else:
                part = np.tensordot(slope, taken, ((1,), (0,))).transpose(0, 3, 1, 2)
            padded[:, :, i : i + stride * rows : stride, j : j + stride * columns : stride] += part
    return padded[:, :, pad : pad + shape[2], pad : pad + shape[3]]
