"""The figures of this machine's device, fitted to operators measured here.

`python -m benchmarks.calibrate onnxruntime-cpu > eqsat/costs/devices/onnxruntime-cpu.json` writes those that are
shipped, and so for openvino-cpu, c-cpu and numpy-cpu.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import Any

from eqsat.costs.devices.device import DEVICES, Device, write_device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.work import Work, work_of
from eqsat.costs.measuring.measure import DEVICE, measure
from eqsat.costs.measuring.microbenchmark import result_types
from eqsat.costs.table.environment import cpu_model
from eqsat.errors import CostError
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, Graph, Node, TensorType
from eqsat.runtime.backend import select
from eqsat.runtime.c.toolchain import compiler_version
from eqsat.runtime.measure import clock_for, interleaved

_PLANE = (256, 768)
#: The element types that a runtime computes in by kernels of its own.
_ELEMENTS = {
    "onnxruntime": ("float32", "float64", "float16"),
    "openvino": ("float32", "bfloat16"),
    "c": ("float32", "float64"),
    "numpy": ("float32", "float64"),
}
_CHAIN = 100


def calibrate(threads: int = 1, *, seconds_each: float = 0.1, name: str = DEVICE) -> Device:
    """Measure a runtime on this machine and return its device, source included; it takes some twenty seconds.

    Peak arithmetic is that of a large matrix product, by element type where the runtime has one; bandwidths those of
    sums of two vectors within and beyond the second-level cache; the weights' that of a vector times a matrix. The
    efficiency of products and convolutions is the median over typical shapes. Every other operator's rate is what its
    bytes do not explain of its time on a plane of 256 x 768.
    """

    def seconds(key: OpKey) -> float:
        # Where two lengths take as long by chance, the difference is nothing: more rounds tell them apart.
        limits = (seconds_each * 4**turn for turn in range(6))
        times = (measure(key, threads=threads, seconds=limit, device=own).seconds for limit in limits)
        found = next((time for time in times if time > 0), None)
        if found is None:
            raise CostError("no time that can be told from noise", where=key.text, remedy="try on an idle machine")
        return found

    runtime = name.removesuffix("-cpu")
    own = replace(Device.of(DEVICE), name=name, runtime=runtime)
    launch, view = (_rounded(x) for x in _overheads(threads, 5 * seconds_each, runtime))
    near_key, far_key = (_key("add", (n,), (n,)) for n in (1 << 16, 1 << 20))
    gemv = _key("matmul", (1, 1024), (1024, 1024), const={1})
    device = Device(
        name=name,
        kind="measured" if name == DEVICE else "roofline",
        flops=_peaks(seconds, _ELEMENTS[runtime]),
        bandwidth=_rounded(_work(far_key).bytes / seconds(far_key)),
        near_bandwidth=_rounded(_work(near_key).bytes / seconds(near_key)),
        near_bytes=_second_level_bytes(),
        weight_bandwidth=_rounded(_work(gemv).weight_bytes / seconds(gemv)),
        launch=launch,
        view=view,
        efficiency={},
        rates={},
        layouts=("row", "column"),
        fuses=False,
        source="",
        integers=Device.of(name).integers if name in DEVICES else (),
        runtime="" if name == DEVICE else runtime,
    )
    efficiency = _efficiencies(device, seconds)
    return Device(
        **{
            **vars(device),
            "efficiency": efficiency,
            "rates": _rates(device, seconds),
            "source": f"benchmarks.calibrate on {cpu_model()}, {_version(runtime)}, {threads} thread(s)",
        }
    )


def _version(runtime: str) -> str:
    return compiler_version() if runtime == "c" else f"{runtime} {metadata.version(runtime)}"


def _key(op: str, *shapes: tuple[int, ...], const: Iterable[int] = (), dtype: str = "float32", **attrs: Any) -> OpKey:
    operands = [TensorType.of(dtype, s) for s in shapes]
    flags = [i in set(const) for i in range(len(shapes))]
    return OpKey.of(op, spec(op).complete(attrs), operands, flags, {})


def _work(key: OpKey) -> Work:
    return work_of(key.op, key.attrs, key.operands, result_types(key), key.const_operands)


def _peaks(seconds: Callable[[OpKey], float], elements: Iterable[str]) -> dict[str, float]:
    """Arithmetic attained by element type: the best of some large products."""
    peaks: dict[str, float] = {}
    for dtype in elements:
        keys = [_key("matmul", (256, k), (k, n), const={1}, dtype=dtype) for k, n in ((768, 768), (512, 1024))]
        try:
            peaks[dtype] = _rounded(max(_work(key).flops / seconds(key) for key in keys))
        except CostError:
            continue  # The runtime has no such product here; the peak of float32 stands in.
    return peaks


def _second_level_bytes() -> int:
    """The size of a core's second-level cache as Linux states it, else one megabyte."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text(encoding="ascii").strip()
    except OSError:
        return 1 << 20
    units = {"K": 1 << 10, "M": 1 << 20}
    return int(text[:-1]) * units[text[-1]] if text[-1:] in units else 1 << 20


def _efficiencies(device: Device, seconds: Callable[[OpKey], float]) -> dict[str, float]:
    """The share of the peak that products and convolutions attain: the median over their shapes."""
    shares: dict[str, list[float]] = {}
    for key in _products():
        work = _work(key)
        memory = device.memory_seconds(work.bytes, work.weight_bytes)
        arithmetic = _remainder(seconds(key) - device.launch, memory)
        if arithmetic > 0:
            share = work.flops / arithmetic / device.peak(work.dtype)
            shares.setdefault(work.variant, []).append(min(share, 1.0))
    return {variant: _rounded(statistics.median(s)) for variant, s in sorted(shares.items())}


def _products() -> list[OpKey]:
    heads = (12, 128, 64), (12, 64, 128)
    return [
        *(_key("matmul", (m, 1024), (1024, 1024), const={1}) for m in (16, 32, 64, 128)),
        *(_key("gemm", (m, 1024), (1024, 1024), (1024,), const={1, 2}) for m in (16, 64)),
        _key("matmul", *heads),
        _key("matmul", (12, 128, 128), heads[0]),
        _key("gemm", (128, 768), (768, 768)),
        *(_conv(*shape) for shape in _CONVOLUTIONS),
        _key("conv_transpose", (1, 64, 28, 28), (64, 32, 2, 2), const={1}, strides=(2, 2)),
    ]


#: Channels in and out, plane, kernel, groups.
_CONVOLUTIONS = (
    (64, 64, 56, 3, 1),
    (64, 256, 56, 1, 1),
    (256, 64, 56, 1, 1),
    (512, 512, 7, 3, 1),
    (16, 64, 55, 3, 1),
    (128, 128, 56, 3, 4),
    (128, 128, 56, 3, 16),
    (128, 128, 56, 3, 32),
    (512, 512, 14, 3, 32),
    (144, 144, 56, 3, 144),
    (384, 384, 14, 3, 384),
)


def _conv(inputs: int, outputs: int, plane: int, kernel: int, group: int) -> OpKey:
    shapes = (1, inputs, plane, plane), (outputs, inputs // group, kernel, kernel)
    return _key("conv", *shapes, const={1}, pads=(kernel // 2,) * 4, group=group)


def _rates(device: Device, seconds: Callable[[OpKey], float]) -> dict[str, float]:
    """Seconds an element that an operator takes beyond the time to move its bytes."""
    rates: dict[str, float] = {}
    for key in _elementwise():
        work = _work(key)
        try:
            taken = seconds(key)
        except CostError:
            continue  # Not implemented for floats; its bytes alone estimate it.
        rest = _remainder(taken - device.launch, device.memory_seconds(work.bytes, work.weight_bytes))
        if rest > 0:
            rates[work.variant] = _rounded(rest / work.elements)
    return dict(sorted(rates.items()))


def _elementwise() -> list[OpKey]:
    """Every operator of one or two operands that works element by element, and the usual others on typical shapes."""
    operands = {name: d.min_operands for name, d in OPS.items() if d.pointwise and not d.view and d.min_operands <= 2}
    keys: list[OpKey] = []
    for name, count in sorted(operands.items()):
        attrs: dict[str, Any] = {"to": "float16"} if name == "cast" else {}
        boolean = name in ("not_", "and_", "or_", "xor")
        integer = name.startswith("bit")
        dtype = "bool" if boolean else ("uint8" if integer else "float32")
        keys.append(_key(name, *[_PLANE] * count, dtype=dtype, **attrs))
    heads = (12, 128, 64)
    reductions = sorted(n for n in OPS if n.startswith("reduce_"))
    return [
        *keys,
        *(_key(name, _PLANE, axes=(1,), keepdims=True) for name in reductions),
        *(_key(name, _PLANE, axis=1) for name in ("softmax", "log_softmax", "argmax", "argmin")),
        _key("pow", _PLANE, (), const={1}),
        _key("layer_norm", _PLANE, (768,), (768,), const={1, 2}, axis=1, epsilon=1e-5),
        _key("batch_norm", (1, 64, 56, 56), (64,), (64,), (64,), (64,), const={1, 2, 3, 4}, epsilon=1e-5),
        _key("transpose", heads, perm=(1, 0, 2)),
        _key("concat", _PLANE, _PLANE, axis=1),
        _key("split", _PLANE, axis=1, sizes=(384, 384)),
        _key("slice", _PLANE, starts=(0,), ends=(384,), axes=(1,), steps=(1,)),
        _key("pad", _PLANE, pads=(0, 1, 0, 1), mode="constant"),
        _key("expand", (1, 768), shape=_PLANE),
        _key("max_pool", (1, 64, 56, 56), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        _key("avg_pool", (1, 64, 56, 56), kernel=(3, 3), strides=(2, 2), pads=(1, 1, 1, 1)),
        _key("global_avg_pool", (1, 64, 56, 56)),
        _key("lrn", (1, 64, 56, 56), size=5),
    ]


def _rounded(figure: float) -> float:
    """Three digits, more than any of these measurements carries."""
    return float(f"{figure:.3g}")


def _remainder(whole: float, part: float) -> float:
    """The rest of a Euclidean norm without one of its parts."""
    return math.sqrt(max(whole * whole - part * part, 0.0))


def _overheads(threads: int, time_limit: float, runtime: str) -> tuple[float, float]:
    """The time of a kernel that does nothing, and of a node that moves nothing: in chains of one-element tensors.

    Sums that follow one another are one kernel to OpenVINO, softmax by softmax is not.
    """
    kind = "softmax" if runtime == "openvino" else "add"
    sums, mixed = (_per_node(kinds, threads, time_limit, runtime) for kinds in ((kind,), (kind, "reshape")))
    return sums, max(2 * mixed - sums, 0.0)


def _per_node(kinds: tuple[str, ...], threads: int, time_limit: float, runtime: str) -> float:
    backend = select(runtime)
    inputs = {"x": [1.0], "y": [0.5]}
    programs = {
        name: backend.compile(_chain(kinds, length), threads=threads).bind(inputs)
        for name, length in (("once", _CHAIN), ("twice", 2 * _CHAIN))
    }
    timings = interleaved(programs, clock=clock_for(threads, runtime), time_limit=time_limit)
    return (timings.median("twice") - timings.median("once")) / _CHAIN


def _chain(kinds: tuple[str, ...], length: int) -> Graph:
    """Operators one after the other; reshapes alternate between ranks, so that each changes something."""
    types = {"x": TensorType.of("float32", (1,)), "y": TensorType.of("float32", (1,))}
    nodes: list[Node] = []
    value = "x"
    for i in range(length):
        made, kind = f"v{i}", kinds[i % len(kinds)]
        if kind == "reshape":
            shape = (1,) * (1 + i // len(kinds) % 2)
            types[made] = TensorType.of("float32", shape)
            nodes.append(Node(kind, (value,), (made,), Attrs(shape=shape)))
        else:
            types[made] = types[value]
            softmax = kind == "softmax"
            attrs = Attrs(axis=types[value].rank - 1) if softmax else Attrs()
            nodes.append(Node(kind, (value,) if softmax else (value, "y"), (made,), attrs))
        value = made
    return Graph("chain", ("x", "y"), {value: value}, tuple(nodes), {}, types)


if __name__ == "__main__":
    sys.stdout.write(write_device(calibrate(name=sys.argv[1] if len(sys.argv) > 1 else DEVICE)))
