"""How far rounding alone moves the results of a model: Monte Carlo arithmetic (Parker, 1997) on the model itself.

Every float that a node makes, every float input and weight, is multiplied by a random number next to 1, element by
element, and moved by one unit where it lies below the normal numbers; the model is run so several times. The spread of
a result is what its own rounding may move it by; a rewrite that is right in the reals and rounds elsewhere stays within
it. Nothing of this knows how the optimiser works.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx import shape_inference as inference

from benchmarks.onnx_models.inner_noise import inlined, stir_bodies
from benchmarks.onnx_models.sessions import Feed, Session, arrays, dense

#: Units of rounding that the noise has, and runs at each level.
LEVELS, RUNS = (2.0, 8.0), 6
#: Half the distance from 1 to the next number.
_UNIT: Mapping[Any, float] = {np.float32: 2.0**-24, np.float64: 2.0**-53, np.float16: 2.0**-11}
#: Operands that say what is done, and are no data.
_EXACT = {"Pow": (1,), "Resize": (1, 2, 3), "Upsample": (1,), "Range": (0, 1, 2), "OneHot": (1, 2)}
#: Operators with poles, or edges beyond which they have no value: what they make is not taken for finite.
_POLES = frozenset(
    """
    Acos Acosh Asin Atanh Cast CastLike Constant ConstantOfShape Div GroupNormalization If
    InstanceNormalization LayerNormalization Log LogSoftmax Loop LpNormalization MaxPool MeanVarianceNormalization Mod
    Pad Pow RMSNormalization Reciprocal ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin Scan Softmax Sqrt
    Tan
    """.split()  # noqa: SIM905 - a page of quotation marks says less
)

#: Operators that put numbers in order.
_ORDER = frozenset(
    ("ArgMax", "ArgMin", "GlobalMaxPool", "Hardmax", "MaxPool", "ReduceMax", "ReduceMin", "TopK", "Unique")
)
#: Operators whose results have as many elements as their operands' values ask for.
_SIZED = frozenset(("Compress", "NonZero", "Unique"))
#: Operators that make windows of signals.
_WINDOWS = frozenset(("BlackmanWindow", "HammingWindow", "HannWindow"))
#: Operators that hold graphs, which may add up.
_HOLDING = frozenset(("If", "Loop", "Scan"))
#: Operators that slide a window over their operand.
_POOLS = frozenset(("AveragePool", "Conv", "LpPool", "MaxPool"))
#: Operators whose factors may be multiplied in another order.
_PRODUCTS = frozenset(("Div", "Mul"))
#: Operators that take a number from 1 within, so that their results are rounded as numbers of that size are.
_FROM_ONE = frozenset(("Celu", "Elu", "GRU", "LSTM", "RNN", "Selu"))
#: Operators that add up squares, which overflow where the numbers do not.
_SQUARING = frozenset(
    """
    GroupNormalization InstanceNormalization LayerNormalization LpNormalization LpPool LRN MeanVarianceNormalization
    RMSNormalization ReduceL2 ReduceSumSquare
    """.split()  # noqa: SIM905 - a page of quotation marks says less
)
#: Operators that add up, and overflow on the way or not by the order of their terms.
_SUMS = frozenset(
    """
    Add Attention AveragePool BatchNormalization Conv ConvTranspose CumSum Einsum FusedGemm FusedMatMul Gemm
    GlobalAveragePool GroupNormalization InstanceNormalization LRN LayerNormalization LpNormalization LpPool MatMul Mean
    MeanVarianceNormalization RMSNormalization ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMean ReduceSum
    ReduceSumSquare Softmax LogSoftmax Sub Sum
    """.split()  # noqa: SIM905 - a page of quotation marks says less
)


def types_of(model: ModelProto) -> dict[str, int]:
    """The element type of every tensor of the main graph that is known.

    Of an operator that onnx's inference does not know it is taken for that of the first operand.
    """
    made = dense(model)
    while True:
        try:
            graph = inference.infer_shapes(made).graph
        except Exception:  # noqa: BLE001 - then the model says what it says
            graph = made.graph
        found = {v.name: v.type.tensor_type.elem_type for v in (*graph.input, *graph.value_info, *graph.output)}
        found |= {t.name: t.data_type for t in graph.initializer}
        found = {name: kind for name, kind in found.items() if kind}
        guessed = [
            helper.make_tensor_value_info(node.output[0], found[node.input[0]], None)
            for node in model.graph.node
            if node.domain and node.input and node.input[0] in found and node.output[0] not in found
        ]
        if not guessed:
            return found
        made.graph.value_info.extend(guessed)


def shown(model: ModelProto) -> tuple[ModelProto, list[str]]:
    """The model with every tensor that is known as an output, and their names."""
    kinds = types_of(model)
    wanted = [o for n in model.graph.node for o in n.output if o in kinds and kinds[o] != TensorProto.BFLOAT16]
    every = ModelProto()
    every.CopyFrom(model)
    del every.graph.output[:]
    every.graph.output.extend(helper.make_tensor_value_info(name, kinds[name], None) for name in wanted)
    return every, wanted


def inner_values(model: ModelProto, feed: Feed) -> dict[str, Any]:
    """Every tensor of the main graph, by name."""
    every, wanted = shown(model)
    return dict(zip(wanted, Session(every).run(feed), strict=True)) if wanted else {}


def beyond_promise(model: ModelProto, feed: Feed, *, finite: bool) -> str | None:
    """Why nothing is promised of a model on some inputs, or None (docs/adr/0010, docs/adr/0025).

    What ONNX does not define: casts of what an integer type does not hold, the greatest of numbers and NaN, which goes
    by their places. What ONNX Runtime does not do: it leaves memory as it was where there is nothing to reduce. A sum
    that overflows on its way depends on the order of its terms, as a product does on that of its factors; where results
    are taken for finite, none that overflows is promised.
    """
    known = dict(feed) | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    inner = inner_values(model, feed)
    known |= inner
    factors = {v for node in model.graph.node if node.op_type in _PRODUCTS for v in node.input}
    read = {v for node in model.graph.node for v in node.input}
    vanished, summed = False, set[str]()
    for node in model.graph.node:
        operands = [known[v] for v in node.input if v in known]
        made = [known[v] for v in node.output if v in known]
        words = _undefined(node, operands, made) or _overflow(node, operands, made, finite=finite)
        on_the_way = node.op_type == "ReduceProd" or node.output[0] in factors
        if words is None and on_the_way and _overflows_as_product(node, operands, made):
            words = "overflows on the way of a product"
        if words is None and _overflows_half(node, operands, made) and read.intersection(node.output):
            words = "overflows float16 on the way, where kernels keep more digits or do not"
        if words is None and node.op_type == "Pow" and _powers_of_negative_halves(node, operands, inner):
            words = "of negative halves, whose rounding decides whether an exponent is whole"
        if node.op_type in ("Exp", "Softmax") and made and operands:
            vanished |= bool(((made[0] == 0) & np.isfinite(operands[0])).any())
        if words is None and vanished and node.op_type in ("Div", "Log") and operands and (operands[-1] == 0).any():
            words = "of exponentials that are 0 by rounding alone"
        summed |= set(node.output) if node.op_type in _SUMS or node.op_type in _HOLDING else set()
        divides = node.op_type == "Div" and len(operands) == 2
        if words is None and divides and node.input[1] in summed and (operands[1] == 0).any():
            words = "by a sum that is 0, whose sign is that of its order"
        if words is not None:
            return f"{node.op_type} {words}"
    return None


def _undefined(node: NodeProto, operands: Sequence[Any], made: Sequence[Any]) -> str | None:
    """The reason why neither ONNX nor ONNX Runtime defines a node on its operands, or None."""
    floats = [v for v in operands if _is_float(v)]
    if node.op_type in ("Cast", "CastLike") and floats and made and made[0].dtype.kind in "iu":
        limits = np.iinfo(made[0].dtype)
        low, high = float(limits.min), float(limits.max)
        x = np.trunc(operands[0].astype(np.float64))
        if not ((x >= low) & (x <= high) & ((x < high) | (high < 2.0**53))).all():
            return f"of a number that {made[0].dtype} does not hold"
    if node.op_type in _POOLS and operands and not _has_windows(node, operands):
        return "of fewer elements than a window has, of which ONNX makes nothing"
    if node.op_type in _WINDOWS:
        return "of cosines that cancel, in an order that ONNX does not say"
    if node.op_type == "Clip" and any(np.isinf(v).any() for v in floats[:1]) and not _is_bounded(node):
        return "of an infinity without a bound, which becomes the largest number in some kernels"
    if node.op_type in _ORDER and any(np.isnan(v).any() for v in floats):
        return "of NaN"
    empty = any(np.size(v) == 0 for v in operands[:2])
    if empty and made and np.size(made[0]) and (node.op_type in _SUMS or node.op_type.startswith("Reduce")):
        return "of nothing"
    if empty and node.op_type.startswith(("Arg", "Reduce")):
        return "of an empty tensor, whose shape ONNX Runtime gets wrong for negative axes"
    return None


def _is_bounded(node: NodeProto) -> bool:
    """Whether a Clip has both bounds."""
    return sum(bool(v) for v in node.input[1:]) + len(node.attribute) == 2


def _has_windows(node: NodeProto, operands: Sequence[Any]) -> bool:
    """Whether a window lies within the operand with its pads along every axis."""
    attrs = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    kernel = attrs.get("kernel_shape") or (operands[1].shape[2:] if len(operands) > 1 else ())
    dims, count = np.shape(operands[0])[2:], len(kernel)
    if attrs.get("auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return True
    pads, dilations = attrs.get("pads", (0,) * 2 * count), attrs.get("dilations", (1,) * count)
    return all(
        (k - 1) * step + 1 <= d + pads[i] + pads[count + i]
        for i, (k, step, d) in enumerate(zip(kernel, dilations, dims, strict=False))
    )


def _overflow(node: NodeProto, operands: Sequence[Any], made: Sequence[Any], *, finite: bool) -> str | None:
    """Whether an overflow that is not promised is met: of a sum on its way, or of anything but a pole."""
    if finite and node.op_type in ("Div", "Reciprocal") and operands and made and _is_float(made[0]):
        # Beside the pole, where the divisor is 0, a quotient overflows as a product does.
        inside = np.isfinite(operands[0]) & (operands[-1] != 0)
        return "overflows" if (inside & ~np.isfinite(made[0])).any() else None
    floats = [v for v in operands if _is_float(v)]
    if node.op_type in _SQUARING and any(_is_large(v, power=2) for v in floats):
        return "overflows"
    if node.domain not in ("", "com.microsoft") or node.op_type in _POLES or not (finite or node.op_type in _SUMS):
        return None
    results = [v for v in made if _is_float(v)]
    overflows = _is_new_infinity(floats, results)
    with np.errstate(all="ignore"):
        large = node.op_type in _SUMS and any(_is_large(v) for v in floats)
    return "overflows" if overflows or large else None


def _overflows_as_product(node: NodeProto, operands: Sequence[Any], made: Sequence[Any]) -> bool:
    """Whether a product or quotient of finite numbers leaves its type, and by no pole."""
    if node.op_type == "ReduceProd" and operands and _is_float(operands[0]):
        return _may_leave(operands[0])
    quotient = node.op_type in ("Div", "Reciprocal")
    if not (quotient or node.op_type in _PRODUCTS) or not operands or not made or not _is_float(made[0]):
        return False
    pole = quotient & (operands[-1] == 0)
    inside = np.logical_and.reduce(np.broadcast_arrays(*(np.isfinite(v) for v in operands)), axis=0)
    return bool((inside & ~pole & ~np.isfinite(made[0])).any())


def _may_leave(factors: Any) -> bool:
    """True where some of the factors have a product beyond their type, or one that is 0."""
    sizes = np.abs(factors[np.isfinite(factors) & (factors != 0)].astype(np.float64))
    limits = np.finfo(factors.dtype)
    powers = np.log2(sizes[sizes > 0])
    return bool(powers[powers > 0].sum() >= limits.maxexp or powers[powers < 0].sum() <= limits.minexp)


def _is_new_infinity(operands: Sequence[Any], made: Sequence[Any]) -> bool:
    """True where finite numbers make something that is not."""
    floats, results = ([v for v in values if _is_float(v)] for values in (operands, made))
    return all(np.isfinite(v).all() for v in floats) and not all(np.isfinite(v).all() for v in results)


def _overflows_half(node: NodeProto, operands: Sequence[Any], made: Sequence[Any]) -> bool:
    """True where finite numbers make an infinity in halves, and by no pole."""
    within = node.op_type == "Div" and len(operands) == 2 and bool((operands[1] != 0).all())
    if (node.op_type in _POLES and not within) or not made or not _is_float(made[0]) or made[0].dtype != np.float16:
        return False
    floats = [v for v in operands if _is_float(v)]
    try:
        finite = np.broadcast_to(np.all(np.broadcast_arrays(*(np.isfinite(v) for v in floats)), axis=0), made[0].shape)
    except ValueError:  # it does not act element by element
        return _is_new_infinity(floats, made[:1])
    return bool((np.isinf(made[0]) & finite).any())


def _powers_of_negative_halves(node: NodeProto, operands: Sequence[Any], inner: Mapping[str, Any]) -> bool:
    """True where negative halves have exponents that a node makes."""
    computed = len(operands) == 2 and node.input[1] in inner and _is_float(operands[1])
    return computed and operands[0].dtype == np.float16 and bool((operands[0] < 0).any())


def _is_large(value: Any, power: int = 1) -> bool:
    """True where a few terms of such numbers, or of their powers, leave their type."""
    found = np.abs(value[np.isfinite(value)])
    return bool(found.size and found.max() > (np.finfo(value.dtype).max / 1e4) ** (1 / power))


def underflows(model: ModelProto, feed: Feed) -> bool:
    """True where a result is so small that it has fewer digits than its type: what is made of it may have any."""
    known = dict(feed) | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    floats = [v for v in (known | inner_values(model, feed)).values() if _is_float(v)]
    return any(bool(_is_tiny(v).any()) for v in floats)


def _is_float(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def noisy_runs(model: ModelProto, feed: Feed) -> Iterator[list[Any]]:
    """The outputs of the model with noise, run by run.

    Where rounding decides how many elements a value has, which noise for each element does not fit, a value has one
    factor for all.
    """
    model = inlined(model)
    known = dict(feed) | {t.name: numpy_helper.to_array(t) for t in model.graph.initializer} | inner_values(model, feed)
    exact = {v for node in model.graph.node for i, v in enumerate(node.input) if i in _EXACT.get(node.op_type, ())}
    floats = {n: v for n, v in known.items() if _is_float(v) and v.dtype.type in _UNIT and n not in exact}
    if any(node.op_type in _SIZED for node in model.graph.node):
        floats = {name: np.ones((), value.dtype) for name, value in floats.items()}
    stirred = noisy(model, floats)
    within = {name: np.ones((), kind) for name, kind in stir_bodies(stirred).items()}
    session = _session(stirred)
    rng = np.random.default_rng(len(floats))
    from_one = {v for node in model.graph.node if node.op_type in _FROM_ONE for v in node.output}
    wide = {n: np.minimum(np.abs(v), 1) if n in from_one else None for n, v in floats.items()}
    for level in LEVELS:
        for _ in range(RUNS):
            noise = {_noise(n): _factors(rng, v, level, wide[n]) for n, v in floats.items()}
            noise |= {n: _factors(rng, one, level) for n, one in within.items()}
            noise |= {_shift(n): _shifts(rng, v) for n, v in floats.items() if _is_tiny(v).any()}
            found = arrays(session.run(dict(feed) | noise))
            if found is not None:
                yield found


def _session(stirred: ModelProto) -> Session:
    """A model with noise made ready: with the sizes of the noise, which Scan needs, or without, for which an If whose
    branches make tensors of other sizes is refused.
    """
    try:
        return Session(stirred)
    except Exception:  # noqa: BLE001 - it is tried again
        for value in stirred.graph.input:
            if value.name.endswith(("/noise", "/shift")):
                for dim in value.type.tensor_type.shape.dim:
                    dim.Clear()
        return Session(stirred)


def _noise(name: str) -> str:
    return f"{name}/noise"


def _shift(name: str) -> str:
    return f"{name}/shift"


def _shifts(rng: np.random.Generator, value: Any) -> Any:
    """A unit up, down or nothing where numbers lie below the normal ones."""
    unit = np.finfo(value.dtype).smallest_subnormal
    return np.asarray(np.where(_is_tiny(value), rng.integers(-1, 2, value.shape), 0).astype(value.dtype) * unit)


def _factors(rng: np.random.Generator, value: Any, level: float, share: Any = None) -> Any:
    """Random numbers next to 1; farther from it where the value is a small share of what was rounded."""
    width = level * _UNIT[value.dtype.type] / (1.0 if share is None else np.maximum(share, _UNIT[value.dtype.type]))
    return np.asarray(1.0 + width * rng.uniform(-1.0, 1.0, value.shape)).astype(value.dtype)


def noisy(model: ModelProto, floats: Mapping[str, Any]) -> ModelProto:
    """The model with each of some values multiplied by a further input, NAME/noise, where it arises."""
    made = ModelProto()
    made.CopyFrom(model)
    graph = made.graph
    renamed: dict[str, str] = {}
    nodes: list[NodeProto] = []
    for name in dict.fromkeys([v.name for v in graph.input] + [t.name for t in graph.initializer]):
        if name in floats:
            renamed[name] = f"{name}/noisy"
            nodes += _stirred(name, name, renamed[name], floats)
    for node in model.graph.node:
        kept = NodeProto()
        kept.CopyFrom(node)
        kept.input[:] = [renamed.get(v, v) for v in node.input]
        _rename_captured(kept, renamed)
        nodes.append(kept)
        for i, name in enumerate(node.output):
            if name in floats:
                kept.output[i] = f"{name}/exact"
                nodes += _stirred(name, kept.output[i], name, floats)
    del graph.node[:]
    graph.node.extend(nodes)
    for output in graph.output:
        output.name = renamed.get(output.name, output.name)
    graph.input.extend(
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in floats.items()
        for name in ([_noise(n), _shift(n)] if _is_tiny(v).any() else [_noise(n)])
    )
    del graph.value_info[:]
    return made


def _stirred(name: str, given: str, made: str, floats: Mapping[str, Any]) -> list[NodeProto]:
    """Nodes that put the noise of a value on what is given."""
    if not _is_tiny(floats[name]).any():
        return [helper.make_node("Mul", [given, _noise(name)], [made])]
    between = f"{name}/between"
    return [
        helper.make_node("Mul", [given, _noise(name)], [between]),
        helper.make_node("Add", [between, _shift(name)], [made]),
    ]


def _is_tiny(value: Any) -> Any:
    """Where the numbers lie below the normal ones, whose rounding is no share of them."""
    return (value != 0) & (np.abs(value) < np.finfo(value.dtype).tiny)


def _rename_captured(node: NodeProto, renamed: Mapping[str, str]) -> None:
    for attribute in node.attribute:
        graphs: Sequence[GraphProto] = [attribute.g] if attribute.HasField("g") else attribute.graphs
        for graph in graphs:
            for inner in graph.node:
                inner.input[:] = [renamed.get(v, v) for v in inner.input]
                _rename_captured(inner, renamed)
            for output in graph.output:
                output.name = renamed.get(output.name, output.name)
