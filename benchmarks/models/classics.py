"""VGG-16 and MobileNet-v1 from their papers, with seeded random weights, for the benchmark of precisions.

Batch normalisation is folded into filters and biases, as exporters leave it.
"""

from __future__ import annotations

from onnx import ModelProto

from benchmarks.models.builder import GraphWriter

SIDE, CLASSES = 224, 1000
#: Filters of the convolutions between two poolings (K. Simonyan and A. Zisserman, 2015, configuration D).
_VGG16 = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
#: Channels and stride of each depthwise separable convolution (A. Howard et al., 2017, table 1).
_MOBILENET = (
    *((64, 1), (128, 2), (128, 1), (256, 2), (256, 1), (512, 2)),
    *((512, 1),) * 5,
    *((1024, 2), (1024, 1)),
)
#: Twice the variance before a rectifier, which halves it.
_GAIN = 2.0


class _Layers:
    """Rectified convolutions and products, numbered in the order they are made."""

    def __init__(self, writer: GraphWriter) -> None:
        self.writer, self.count = writer, 0

    def _parameters(self, shape: tuple[int, ...], terms: int, outputs: int) -> tuple[str, str]:
        self.count += 1
        weight = self.writer.weight(f"weight_{self.count}", shape, fan_in=max(1, int(terms / _GAIN)))
        return weight, self.writer.bias(f"bias_{self.count}", (outputs,))

    def conv(self, x: str, read: int, channels: int, kernel: int = 3, stride: int = 1, group: int = 1) -> str:
        shape = (channels, read // group, kernel, kernel)
        weight, bias = self._parameters(shape, read // group * kernel * kernel, channels)
        window = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4, "group": group}
        return self.writer.op("Relu", self.writer.op("Conv", x, weight, bias, **window))

    def dense(self, x: str, read: int, outputs: int, *, rectified: bool = True) -> str:
        weight, bias = self._parameters((outputs, read), read, outputs)
        y = self.writer.op("Gemm", x, weight, bias, transB=1)
        return self.writer.op("Relu", y) if rectified else y


def vgg16() -> ModelProto:
    """VGG-16, of one image."""
    writer = GraphWriter("vgg16", seed=16)
    layers, x, channels = _Layers(writer), writer.input("input", (1, 3, SIDE, SIDE)), 3
    for block in _VGG16:
        for filters in block:
            x, channels = layers.conv(x, channels, filters), filters
        x = writer.op("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = writer.op("Flatten", x)
    x = layers.dense(layers.dense(x, channels * 7 * 7, 4096), 4096, 4096)
    writer.op("Identity", layers.dense(x, 4096, CLASSES, rectified=False), name="output")
    return writer.model({"output": (1, CLASSES)})


def mobilenet_v1() -> ModelProto:
    """MobileNet-v1 of width 1, of one image."""
    writer = GraphWriter("mobilenet_v1", seed=1)
    layers = _Layers(writer)
    x, channels = layers.conv(writer.input("input", (1, 3, SIDE, SIDE)), 3, 32, stride=2), 32
    for filters, stride in _MOBILENET:
        x = layers.conv(x, channels, channels, stride=stride, group=channels)
        x, channels = layers.conv(x, channels, filters, kernel=1), filters
    x = writer.op("Flatten", writer.op("GlobalAveragePool", x))
    writer.op("Identity", layers.dense(x, channels, CLASSES, rectified=False), name="output")
    return writer.model({"output": (1, CLASSES)})
