"""Result types of ONNX Runtime's operators that are kept as they are, of which onnx knows nothing.

Source: the shape inference of ONNX Runtime's schemas, compared in the tests with the results of its kernels.
"""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.declaration import normal_axis
from eqsat.language.onnx.read.importing import Call, TypeRule, types_by
from eqsat.language.ops.linear import conv, matmul
from eqsat.language.terms import Dim, DType, Shape, TensorType, ValueType, broadcast_shapes, exact_quotient


def result_types(call: Call) -> Mapping[str, ValueType]:
    """The types of the outputs of a node of ONNX Runtime's domain, as far as the table has them."""
    domain = "" if call.node.op_type in _OF_ONNX else "com.microsoft"
    return types_by(TYPES.get(call.node.op_type) if call.node.domain == domain else None, call)


#: Operators that ONNX Runtime adds to ONNX's own domain.
_OF_ONNX = ("SimplifiedLayerNormalization",)


def _like(*indices: int) -> TypeRule:
    def rule(call: Call) -> list[ValueType]:
        return [call.type(i) for i in indices]

    return rule


def _of(call: Call, dtype: DType | int, shape: Shape | None) -> TensorType:
    return TensorType(call.type(dtype).dtype if isinstance(dtype, int) else dtype, shape)


def _broadcast(dtype: int, *indices: int) -> TypeRule:
    def rule(call: Call) -> list[ValueType]:
        return [_of(call, dtype, broadcast_shapes(*(call.shape(i) for i in indices)))]

    return rule


def _product(left: int, right: int, dtype: DType | int = 0) -> TypeRule:
    """A matrix product, whose sides are turned where transA and transB say so."""

    def rule(call: Call) -> list[ValueType]:
        sides = [
            TensorType(DType.FLOAT32, _turned(call.shape(i), bool(call.attrs.get(name, 0))))
            for i, name in ((left, "transA"), (right, "transB"))
        ]
        (result,) = matmul.infer(sides, matmul.complete({}))
        return [_of(call, dtype, result.shape)]

    return rule


def _turned(shape: Shape, turn: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if turn and len(shape) > 1 else shape


def _gemm(call: Call) -> list[ValueType]:
    return [_of(call, 8 if call.has(8) else DType.FLOAT32, _product(0, 3)(call)[0].shape)]  # type: ignore[union-attr]


def _columns(name: str) -> TypeRule:
    """The rows of the first operand, and as many columns as an attribute says."""

    def rule(call: Call) -> list[ValueType]:
        return [_of(call, 0, (*call.shape(0)[:-1], int(call.attrs[name])))]

    return rule


def _normalised(call: Call) -> list[ValueType]:
    x, shape = call.type(0), call.shape(0)
    axis = normal_axis(call.attrs.get("axis", -1), len(shape))
    spread = TensorType(DType.FLOAT32, (*shape[:axis], *(1 for _ in shape[axis:])))
    sums = [spread] if call.node.op_type == "SimplifiedLayerNormalization" else [spread, spread, x]
    return [x, *sums]


def _embedded(words: int, dtype: DType | int) -> TypeRule:
    def rule(call: Call) -> list[ValueType]:
        batch, length = call.shape(0)
        result = _of(call, dtype, (batch, length, call.shape(words)[1]))
        return [result, TensorType(DType.INT32, (batch,)), result]

    return rule


def _concatenated(call: Call) -> list[ValueType]:
    shapes = [call.shape(i) for i in range(2, call.arity, 3)]
    axis = normal_axis(call.attrs["axis"], len(shapes[0]))
    total: Dim = 0
    for shape in shapes:
        total = total + shape[axis]
    return [_of(call, 1, (*shapes[0][:axis], total, *shapes[0][axis + 1 :]))]


def _global_pool(call: Call) -> list[ValueType]:
    batch, *rest = call.shape(0)
    ones = (1,) * (len(rest) - 1)
    return [_of(call, 0, (batch, *ones, rest[-1]) if call.attrs.get("channels_last", 0) else (batch, rest[0], *ones))]


def _rank_of(index: int, dtype: DType | int | None = None) -> TypeRule:
    """A tensor of the rank and first dim of an operand; of the rest nothing is known."""

    def rule(call: Call) -> list[ValueType]:
        first, *rest = call.shape(index)
        return [_of(call, index if dtype is None else dtype, (first, *(call.fresh_dim() for _ in rest)))]

    return rule


def _reduced(call: Call) -> list[ValueType]:
    shape = call.shape(0)
    axes = {normal_axis(a, len(shape)) for a in call.attrs["axes"]}
    keep = call.attrs.get("keepdims", 1)
    return [_of(call, 0, tuple(1 if i in axes else d for i, d in enumerate(shape) if keep or i not in axes))]


def _fused_conv(call: Call) -> list[ValueType]:
    from eqsat.language.onnx.operators.import_nn import geometry

    return list(conv.infer([call.type(0), call.type(1)], conv.complete(geometry(call))))


def _quantised(call: Call) -> list[ValueType]:
    return [_of(call, 2 if call.has(2) else DType.UINT8, call.type(0).shape)]


def _dequantised(call: Call) -> list[ValueType]:
    return [_of(call, 1, call.type(0).shape)]


def _gathered(call: Call) -> list[ValueType]:
    """Rows of a quantised table, dequantised; two numbers of four bits to a byte are twice as many elements."""
    dims, indices = list(call.shape(0)), call.shape(1)
    axis = normal_axis(call.attrs.get("gather_axis", 0), len(dims))
    if call.type(0).dtype is DType.UINT8:
        dims[-1] = dims[-1] * (8 // int(call.attrs.get("bits", 4)))
    return [_of(call, 2, (*dims[:axis], *indices, *dims[axis + 1 :]))]


def _attention(call: Call) -> list[ValueType]:
    batch, length, _ = call.shape(0)
    sizes, heads = call.attrs.get("qkv_hidden_sizes"), int(call.attrs["num_heads"])
    width: Dim | None = sizes[2] if sizes else exact_quotient(call.shape(1)[1], 3)
    width = call.fresh_dim() if width is None else width
    result = _of(call, 0, (batch, length, width))
    size = exact_quotient(width, heads)
    if size is None or sizes:
        return [result]
    past = call.shape(4)[3] if call.has(4) else 0
    total = past if call.attrs.get("past_present_share_buffer", 0) else past + length
    return [result, _of(call, 0, (2, batch, heads, total, size))]


def _quantised_attention(call: Call) -> list[ValueType]:
    width = exact_quotient(call.shape(1)[1], 3)
    return [_of(call, 3, (*call.shape(0)[:2], call.fresh_dim() if width is None else width))]


def _heads(call: Call) -> list[ValueType]:
    """The result of MultiHeadAttention, whose operands may be packed into one, and whose keys may be apart by head."""
    query, heads = call.shape(0), int(call.attrs["num_heads"])
    batch, length = query[:2]
    if len(query) == 5:
        return [_of(call, 0, (batch, length, query[2] * query[4]))]
    if not call.has(2):
        return [_of(call, 0, (batch, length, query[2]))]
    value = call.shape(2)
    width = value[2] if len(value) == 3 else value[1] * value[3]
    result = _of(call, 0, (batch, length, width))
    sizes = exact_quotient(query[2], heads), exact_quotient(width, heads)
    keys = call.shape(1)[1] if len(call.shape(1)) == 3 else call.shape(1)[2]
    if None in sizes or call.has(8):  # a cache that is filled up to a length known at run time
        return [result]
    total = keys + (call.shape(6)[2] if call.has(6) else 0)
    return [result, *(_of(call, 0, (batch, heads, total, s)) for s in sizes if s is not None)]


def _decoding(call: Call) -> list[ValueType]:
    return _heads(call)[:1]


def _grouped(call: Call) -> list[ValueType]:
    batch, length, width = call.shape(0)
    heads, shared = int(call.attrs["num_heads"]), int(call.attrs["kv_num_heads"])
    packed = not call.has(1)
    size = exact_quotient(width, heads + 2 * shared if packed else heads)
    if size is None:
        return [_of(call, 0, (batch, length, call.fresh_dim()))]
    total = call.fresh_dim()
    present = _of(call, 3 if call.has(3) else 0, (batch, shared, total, size))
    return [_of(call, 0, (batch, length, size * heads)), present, present]


def _distances(call: Call) -> list[ValueType]:
    return [_of(call, 0, (call.shape(0)[0], call.shape(1)[0]))]


def _unique(call: Call) -> list[ValueType]:
    count = call.fresh_dim()
    return [_of(call, 0, (count,)), _of(call, DType.INT64, call.shape(0)), _of(call, DType.INT64, (count,))]


def _expanded(call: Call) -> list[ValueType]:
    shape = call.shape(0)
    (axis,) = call.integers(1)
    place = normal_axis(axis, len(shape) + 1)
    return [_of(call, 0, (*shape[:place], 1, *shape[place:]))]


def _split_gelu(call: Call) -> list[ValueType]:
    *lead, last = call.shape(0)
    half = exact_quotient(last, 2)
    return [_of(call, 0, (*lead, call.fresh_dim() if half is None else half))]


def _hashed(call: Call) -> list[ValueType]:
    return [TensorType(DType.UINT32 if call.attrs.get("positive", 1) else DType.INT32, call.type(0).shape)]


def _crops(call: Call) -> list[ValueType]:
    height, width = call.integers(3)
    return [_of(call, 0, (call.shape(1)[0], call.shape(0)[1], height, width))]


def _found(beams: bool) -> TypeRule:
    def rule(call: Call) -> list[ValueType]:
        batch: Dim = call.shape(0)[0]
        shape: Shape = (batch, *((call.fresh_dim(),) if beams else ()), call.fresh_dim())
        return [TensorType(DType.INT32, shape)]

    return rule


def _finite(call: Call) -> list[ValueType]:
    return [TensorType(DType.BOOL, ())]


def _dropped(call: Call) -> list[ValueType]:
    return [call.type(0), TensorType(DType.BOOL, call.type(0).shape)]


#: Operators whose result has the type of their first operand.
_SAME = (
    "BiasAdd",
    "BiasGelu",
    "BiasSoftmax",
    "FastGelu",
    "GatedRelativePositionBias",
    "Gelu",
    "GroupNorm",
    "Inverse",
    "LongformerAttention",
    "MoE",
    "QLinearLeakyRelu",
    "QLinearSigmoid",
    "QLinearSoftmax",
    "QMoE",
    "QuickGelu",
    "RotaryEmbedding",
)

#: Operator of ONNX Runtime -> the types of its results.
TYPES: Mapping[str, TypeRule] = {
    **dict.fromkeys(_SAME, _like(0)),
    "Attention": _attention,
    "BeamSearch": _found(beams=True),
    "BiasDropout": _dropped,
    "BiasSplitGelu": _split_gelu,
    "CDist": _distances,
    "CropAndResize": _crops,
    "DecoderMaskedMultiHeadAttention": _decoding,
    "DequantizeLinear": _dequantised,
    "DynamicQuantizeMatMul": _product(0, 1),
    "EmbedLayerNormalization": _embedded(2, 2),
    "ExpandDims": _expanded,
    "FusedConv": _fused_conv,
    "FusedGemm": _product(0, 1),
    "FusedMatMul": _product(0, 1),
    "FusedMatMulActivation": _product(0, 1),
    "GatherBlockQuantized": _gathered,
    "GemmFastGelu": _product(0, 1),
    "GreedySearch": _found(beams=False),
    "GroupQueryAttention": _grouped,
    "IsAllFinite": _finite,
    "MatMulBnb4": _columns("N"),
    "MatMulIntegerToFloat": _product(0, 1, 2),
    "MatMulNBits": _columns("N"),
    "MultiHeadAttention": _heads,
    "MurmurHash3": _hashed,
    "NGramRepeatBlock": _like(1),
    "NhwcConv": _rank_of(0),
    "NhwcFusedConv": _rank_of(0),
    "NhwcMaxPool": _rank_of(0),
    "Pad": _rank_of(0),
    "QAttention": _quantised_attention,
    "QEmbedLayerNormalization": _embedded(2, DType.FLOAT32),
    "QGemm": _gemm,
    "QLinearAdd": _broadcast(0, 0, 3),
    "QLinearAveragePool": _rank_of(0),
    "QLinearConcat": _concatenated,
    "QLinearConv": _rank_of(0, 7),
    "QLinearGlobalAveragePool": _global_pool,
    "QLinearMul": _broadcast(0, 0, 3),
    "QLinearReduceMean": _reduced,
    "QLinearWhere": _broadcast(1, 0, 1, 4),
    "QuantizeLinear": _quantised,
    "Sampling": _found(beams=False),
    "SimplifiedLayerNormalization": _normalised,
    "SkipGroupNorm": lambda call: [call.type(0), call.type(0)],
    "SkipLayerNormalization": _normalised,
    "SkipSimplifiedLayerNormalization": _normalised,
    "TransposeMatMul": _product(0, 1),
    "Unique": _unique,
}
