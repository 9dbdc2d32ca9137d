"""NasNet-A (Zoph et al., 2018) as in TASO's repository: three times five normal cells and a reduction cell.

Its input is what the stem gives, 128 channels of 56 × 56. Convolutions have no bias, and the separable ones
no rectifier between depthwise and pointwise; "same" padding is symmetric.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from onnx import ModelProto

from benchmarks.models.builder import GraphWriter

CHANNELS = 128
SIDE = 56


@dataclass(frozen=True)
class _Map:
    """A feature map: its value and what later layers must know of its shape."""

    name: str
    channels: int
    side: int


class _Net:
    """The layers of the network, with weights numbered in the order they are made."""

    def __init__(self, writer: GraphWriter) -> None:
        self.writer = writer
        self._convolutions = 0

    def _conv(self, x: _Map, channels: int, kernel: int, stride: int = 1, group: int = 1) -> _Map:
        inner = x.channels // group
        weight = self.writer.weight(
            f"filter_{self._convolutions}", (channels, inner, kernel, kernel), fan_in=inner * kernel * kernel
        )
        self._convolutions += 1
        output = self.writer.op("Conv", x.name, weight, group=group, **_window(kernel, stride))
        return _Map(output, channels, x.side // stride)

    def _relu(self, x: _Map) -> _Map:
        return _Map(self.writer.op("Relu", x.name), x.channels, x.side)

    def squeeze(self, x: _Map, channels: int) -> _Map:
        return self._relu(self._conv(x, channels, 1))

    def fit(self, current: _Map, previous: _Map) -> _Map:
        """The previous cell's output in the shape of the current one."""
        if previous.side == current.side:
            return self.squeeze(previous, current.channels)
        return self._relu(self._conv(previous, current.channels, 3, stride=2))

    def separable(self, x: _Map, channels: int, kernel: int, stride: int = 1) -> _Map:
        return self._conv(self._conv(x, channels, kernel, stride, group=channels), channels, 1)

    def pool(self, kind: str, x: _Map, stride: int = 1, kernel: int = 3) -> _Map:
        output = self.writer.op(f"{kind}Pool", x.name, **_window(kernel, stride))
        return _Map(output, x.channels, x.side // stride)

    def add(self, a: _Map, b: _Map) -> _Map:
        return _Map(self.writer.op("Add", a.name, b.name), a.channels, a.side)

    def concat(self, maps: list[_Map]) -> _Map:
        joined = self.writer.op("Concat", *[m.name for m in maps], axis=1)
        return _Map(joined, sum(m.channels for m in maps), maps[0].side)


def nasnet_a(batch: int = 1, seed: int = 0, *, normal_cells: int = 5) -> ModelProto:
    """NasNet-A without stem and classifier.

    Input `x` is (batch, 128, 56, 56), output (batch, 5120, 7, 7).
    """
    writer = GraphWriter("nasnet_a", seed)
    net = _Net(writer)
    x = net.pool("Max", _Map(writer.input("x", (batch, CHANNELS, SIDE, SIDE)), CHANNELS, SIDE), kernel=1)
    channels = CHANNELS
    for _ in range(3):
        previous = current = x
        for _ in range(normal_cells):
            previous, current = current, _normal_cell(net, previous, current, channels)
        channels *= 2
        x = _reduction_cell(net, previous, current, channels)
    return writer.model({x.name: (batch, x.channels, x.side, x.side)})


def _window(kernel: int, stride: int) -> dict[str, Any]:
    return {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}


def _normal_cell(net: _Net, previous: _Map, current: _Map, channels: int) -> _Map:
    current = net.squeeze(current, channels)
    previous = net.fit(current, previous)
    return net.concat(
        [
            net.add(net.separable(current, channels, 3), current),
            net.add(net.separable(previous, channels, 3), net.separable(current, channels, 3)),
            net.add(net.pool("Average", current), previous),
            net.add(net.pool("Average", previous), net.pool("Average", previous)),
            net.add(net.separable(previous, channels, 3), net.separable(previous, channels, 3)),
        ]
    )


def _reduction_cell(net: _Net, previous: _Map, current: _Map, channels: int) -> _Map:
    current = net.squeeze(current, channels)
    previous = net.fit(current, previous)
    first = net.add(net.separable(previous, channels, 7, 2), net.separable(current, channels, 5, 2))
    second = net.add(net.pool("Max", current, 2), net.separable(previous, channels, 7, 2))
    third = net.add(net.pool("Average", current, 2), net.separable(previous, channels, 5, 2))
    fourth = net.add(net.pool("Max", current, 2), net.separable(first, channels, 3))
    fifth = net.add(net.pool("Average", first), second)
    return net.concat([first, second, third, fourth, fifth])
