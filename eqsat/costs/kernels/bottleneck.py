"""The resource that bounds a kernel's time: kernels bound by the same one scale alike from processor to processor."""

from __future__ import annotations

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import is_product
from eqsat.costs.kernels.work import Work, family, work_of
from eqsat.language.ops import OPS

#: Names of bottlenecks that are no arithmetic of a product, which has the name of the product's family.
LAUNCH, MEMORY, WEIGHTS, ELEMENTS = "launch", "memory", "weights", "elements"


def bottleneck(key: OpKey, device: Device) -> str:
    """The largest term of a kernel's roofline on a device: a launch, memory or elements.

    For products it may also be their constants, or their arithmetic, which has the name of the product's family.

    >>> device = Device.of("onnxruntime-cpu")
    >>> [bottleneck(OpKey.parse(text), device) for text in (
    ...     "relu {} float32[8]", "add {} float32[999999] float32[999999]",
    ...     "matmul {} float32[1, 1024] =float32[1024, 1024]", "matmul {} float32[512, 512] =float32[512, 512]")]
    ['launch', 'memory', 'weights', 'matmul']
    """
    work = plain_work(key)
    if work is None:
        return family(key.op) if is_product(key.op) else MEMORY
    weights = work.weight_bytes if is_product(key.op) else 0
    terms = {
        LAUNCH: device.launch,
        MEMORY: device.memory_seconds(work.bytes - weights, work.weight_bytes - weights),
        WEIGHTS: device.memory_seconds(weights, weights),
        ELEMENTS: work.elements * device.rates.get(work.variant, 0.0),
        family(key.op): work.flops / (device.peak(work.dtype) * device.efficiency.get(work.variant, 1.0)),
    }
    largest = max(terms, key=lambda name: terms[name])
    return largest if largest != family(key.op) or is_product(key.op) else ELEMENTS


def plain_work(key: OpKey) -> Work | None:
    """The work of an operator in whatever layouts it runs; None for one that this version does not know."""
    declared = OPS.get(key.op)
    if declared is None or not key.is_measurable:
        return None
    results = declared.result_types(key.operands, key.attrs)
    return work_of(key.op, key.attrs, key.operands, results, key.const_operands)


def constant_bytes(key: OpKey) -> int:
    """The bytes of the constants that a kernel reads whole; an operator that only moves elements reads a part."""
    if key.op not in OPS or OPS[key.op].movement:
        return 0
    pairs = zip(key.operands, key.const_operands, strict=True)
    return sum(t.elements({}) * t.dtype.itemsize for t, const in pairs if t is not None and const)
