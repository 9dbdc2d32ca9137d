"""Why operators that no function translates stay as they are."""

from __future__ import annotations

from collections.abc import Mapping

SEQUENCE = "reads or makes sequences, which are no tensors"
OPTIONAL = "reads or makes optional values, which are no tensors"
_TRANSFORM = "a Fourier transform, whose complex numbers are pairs of floats"
_UNKNOWN_LOSS = "a loss of operands whose types are unknown"
_TRAINING = "changes weights in a step of training, which no model that is run does"

#: Reasons by domain, each with the names of the operators that it holds for.
_TABLES: Mapping[str, Mapping[str, str]] = {
    "": {
        "how many elements it makes depends on its data": "Compress NonMaxSuppression NonZero Unique",
        "random: it must be neither folded nor merged": (
            "Bernoulli Multinomial RandomNormal RandomNormalLike RandomUniform RandomUniformLike"
        ),
        SEQUENCE: "SequenceMap",
        OPTIONAL: "Optional",
        "operates on strings": "RegexFullMatch StringConcat StringNormalizer StringSplit",
        _TRANSFORM: "DFT STFT",
        "samples at places that are computed at run time, in a rounding of its own": "DeformConv MaxRoiPool RoiAlign",
        "its size is a number that is computed at run time": (
            "AffineGrid BlackmanWindow CenterCropPad HammingWindow HannWindow MelWeightMatrix"
        ),
        "reads the bits of numbers as those of another type": "BitCast",
        "convolves with a state that it hands on": "CausalConvWithState",
        "adds up windows that overlap, in an order of its own": "Col2Im",
        "products of ever more elements, for which no operator stands": "CumProd",
        "a determinant, for which no operator stands": "Det",
        "decodes the bytes of a compressed image": "ImageDecoder",
        "a recurrence over steps, which are many or counted at run time": "LinearAttention",
        "places elements where indices that are computed at run time say": "MaxUnpool",
        _UNKNOWN_LOSS: "NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss",
        "a product of operands whose types are unknown": "SwiGLU",
        "counts sequences of words that are in a table of its attributes": "TfIdfVectorizer",
    },
    "ai.onnx.ml": {
        "compares features along trees, which no sum or product stands for": (
            "TreeEnsemble TreeEnsembleClassifier TreeEnsembleRegressor"
        ),
        "compares features with support vectors, in a kernel of its own": "SVMClassifier SVMRegressor",
        "looks elements up in a table of its attributes": "CategoryMapper LabelEncoder OneHotEncoder",
        "reads or makes maps, which are no tensors": "CastMap DictVectorizer ZipMap",
    },
    "com.microsoft": {
        "generates text by running graphs of its own until it is done": (
            "BeamSearch GreedySearch Sampling WhisperBeamSearch NGramRepeatBlock"
        ),
        "reads tokens that are packed without padding, by offsets known at run time": (
            "PackedAttention PackedMultiHeadAttention PagedAttention RemovePadding RestorePadding SparseAttention"
        ),
        "has kernels for GPUs alone, and no reference to check it against": (
            "BiasAdd BiasSoftmax BiasSplitGelu GemmFastGelu GroupNorm LongformerAttention SkipGroupNorm "
            "RelativePositionBias GatedRelativePositionBias"
        ),
        "routes each token to a few experts, chosen by its values": "MoE QMoE",
        "computes with quantised numbers in a rounding of ONNX Runtime's own": (
            "DynamicQuantizeLSTM MatMulBnb4 QEmbedLayerNormalization QLinearReduceMean"
        ),
        _TRANSFORM: "Rfft Irfft ComplexMul ComplexMulConj",
    },
}

#: Why an operator is kept as it is, by domain and name.
REASONS: Mapping[tuple[str, str], str] = {
    (domain, name): reason
    for domain, reasons in _TABLES.items()
    for reason, names in reasons.items()
    for name in names.split()
}

#: Why every operator of a domain is kept.
PREVIEWS: Mapping[str, str] = {
    "ai.onnx.preview": "a preview of ONNX, which runtimes have not yet",
    "ai.onnx.preview.training": _TRAINING,
    "ai.onnx.training": _TRAINING,
}
