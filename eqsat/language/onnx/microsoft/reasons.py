"""Why operators of known domains have no counterpart."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_SEARCH = "generates text by running graphs of its own until it is done"
_PACKED = "reads tokens that are packed without padding, by offsets known at run time"
_GPU = "has kernels for GPUs alone, and no reference to check it against"
_EXPERTS = "routes each token to a few experts, chosen by its values"
_QUANTISED = "computes with quantised numbers in a rounding of ONNX Runtime's own"
_TRANSFORM = "a Fourier transform, whose complex numbers are pairs of floats"

#: Why an operator is kept as it is, by domain and name.
REASONS: Mapping[tuple[str, str], str] = MappingProxyType(
    {
        **{
            ("com.microsoft", name): _SEARCH
            for name in ("BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch", "NGramRepeatBlock")
        },
        **{
            ("com.microsoft", name): _PACKED
            for name in (
                "PackedAttention",
                "PackedMultiHeadAttention",
                "PagedAttention",
                "RemovePadding",
                "RestorePadding",
                "SparseAttention",
            )
        },
        **{
            ("com.microsoft", name): _GPU
            for name in (
                "BiasAdd",
                "BiasSoftmax",
                "BiasSplitGelu",
                "GemmFastGelu",
                "GroupNorm",
                "LongformerAttention",
                "SkipGroupNorm",
                "RelativePositionBias",
                "GatedRelativePositionBias",
            )
        },
        **{("com.microsoft", name): _EXPERTS for name in ("MoE", "QMoE")},
        **{
            ("com.microsoft", name): _QUANTISED
            for name in (
                "DynamicQuantizeLSTM",
                "DynamicQuantizeMatMul",
                "MatMulBnb4",
                "MatMulIntegerToFloat",
                "QAttention",
                "QEmbedLayerNormalization",
                "QGemm",
                "QLinearAdd",
                "QLinearAveragePool",
                "QLinearConcat",
                "QLinearGlobalAveragePool",
                "QLinearLeakyRelu",
                "QLinearMul",
                "QLinearReduceMean",
                "QLinearSigmoid",
                "QLinearSoftmax",
                "QLinearWhere",
            )
        },
        **{("com.microsoft", name): _TRANSFORM for name in ("Rfft", "Irfft", "ComplexMul", "ComplexMulConj")},
    }
)
