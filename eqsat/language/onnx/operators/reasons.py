"""Why operators of ONNX's own domains that no function translates stay as they are."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

_BY_DATA = "how many elements it makes depends on its data"
_BY_CHANCE = "random: it must be neither folded nor merged"
_TRAINING = "changes weights in a step of training, which no model that is run does"
SEQUENCE = "reads or makes sequences, which are no tensors"
OPTIONAL = "reads or makes optional values, which are no tensors"
_TEXT = "operates on strings"
_TRANSFORM = "a Fourier transform, whose complex numbers are pairs of floats"
_SAMPLES = "samples at places that are computed at run time, in a rounding of its own"
_COUNTED = "its size is a number that is computed at run time"

#: Why an operator is kept, by name.
KEPT: Mapping[str, str] = MappingProxyType(
    {
        **{
            name: reason
            for reason, names in (
                (_BY_DATA, ("Compress", "NonMaxSuppression", "NonZero", "Unique")),
                (
                    _BY_CHANCE,
                    (
                        "Bernoulli",
                        "Multinomial",
                        "RandomNormal",
                        "RandomNormalLike",
                        "RandomUniform",
                        "RandomUniformLike",
                    ),
                ),
                (SEQUENCE, ("SequenceMap",)),
                (OPTIONAL, ("Optional",)),
                (_TEXT, ("RegexFullMatch", "StringConcat", "StringNormalizer", "StringSplit")),
                (_TRANSFORM, ("DFT", "STFT")),
                (_SAMPLES, ("DeformConv", "MaxRoiPool", "RoiAlign")),
                (
                    _COUNTED,
                    (
                        "AffineGrid",
                        "BlackmanWindow",
                        "CenterCropPad",
                        "HammingWindow",
                        "HannWindow",
                        "MelWeightMatrix",
                    ),
                ),
            )
            for name in names
        },
        "BitCast": "reads the bits of numbers as those of another type",
        "CausalConvWithState": "convolves with a state that it hands on",
        "Col2Im": "adds up windows that overlap, in an order of its own",
        "CumProd": "products of ever more elements, for which no operator stands",
        "Det": "a determinant, for which no operator stands",
        "ImageDecoder": "decodes the bytes of a compressed image",
        "LinearAttention": "a recurrence over steps, which are many or counted at run time",
        "MaxUnpool": "places elements where indices that are computed at run time say",
        "NegativeLogLikelihoodLoss": "a loss of operands whose types are unknown",
        "SoftmaxCrossEntropyLoss": "a loss of operands whose types are unknown",
        "SwiGLU": "a product of operands whose types are unknown",
        "TfIdfVectorizer": "counts sequences of words that are in a table of its attributes",
    }
)

#: Why every operator of a domain is kept.
PREVIEWS: Mapping[str, str] = MappingProxyType(
    {
        "ai.onnx.preview": "a preview of ONNX, which runtimes have not yet",
        "ai.onnx.preview.training": _TRAINING,
        "ai.onnx.training": _TRAINING,
    }
)
