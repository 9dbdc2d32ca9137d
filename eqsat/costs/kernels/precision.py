"""Element types and arithmetic that may stand for float32, and the operators for which they may not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from eqsat.errors import UsageError, nearest
from eqsat.language.ops import OPS
from eqsat.language.terms.blocks import PACKINGS
from eqsat.language.terms.plan import Implementation
from eqsat.language.terms.state import FLOAT8
from eqsat.language.terms.types import DType, TensorType

#: Largest relative change by rounding to an element type, or by forming products in an arithmetic: half the distance
#: between neighbours (IEEE 754 for float16; 7 stored bits in bfloat16, 10 in TF32).
ROUNDOFF: Mapping[str, float] = MappingProxyType({"float16": 2.0**-11, "bfloat16": 2.0**-8, "tf32": 2.0**-11})
#: The element types that values of float32 may be held in instead.
NARROW = ("float16", "bfloat16")
#: The precision of kernels that compute on integers, by scales: values in uint8, weights in int8.
INTEGERS = "int8"
#: The ways to the range of a value that is held in integers: least squared error, all of it, all but the largest
#: magnitudes, and least divergence.
RANGES = ("mse", "max", "percentile", "kl")
#: The precisions in which numbers of a byte stand for values, by scales.
BYTES = (INTEGERS, FLOAT8)
#: The precisions of products whose constant weights are packed in blocks.
PACKED = tuple(dict.fromkeys(one.kind for one in PACKINGS.values()))
#: The ways in which weights are adjusted for kernels on integers: scales of channels, and numbers with biases.
ADJUSTMENTS = ("equalise", "round")
#: The error of an output that is accepted in a lower precision where no limit is stated.
DEFAULT_ERROR = 2e-2

#: Operators that stay in float32: sums of many terms, exponentials and logarithms, and divisions by small numbers
#: (the list of PAI's automatic mixed precision, with the operators that have come since).
SENSITIVE = frozenset(name for name, one in OPS.items() if one.sensitive)


def is_product(op: str) -> bool:
    """True if an operator multiplies matrices or filters, in an arithmetic of its own that adds up in float32."""
    declared = OPS.get(op)
    return declared is not None and declared.product


@dataclass(frozen=True)
class PrecisionPolicy:
    """The element types that values of float32 may be held in, the arithmetic their products may be formed in, and the
    operators that keep float32 in any case.

    `precisions` are of float16, bfloat16, int8, float8 and int4, which is one of weights, `arithmetic` of tf32, `keep`
    names of operators. `ranges` is the way to the range of a value that is held in a byte: "mse" for the least squared
    error of the elements seen, "max" for all of them, "percentile" for all but the largest magnitudes (99.99 % are
    kept), "kl" for the least divergence of their distribution. `adjust` says what is done about weights, of kernels on
    integers, for the calibration data: "equalise" scales channels between layers, "round" chooses the numbers of
    weights and corrects biases. UsageError for others, and for a policy that contradicts itself. How far outputs may
    move is a limit of the run: its "error".
    """

    precisions: tuple[str, ...] = ()
    arithmetic: tuple[str, ...] = ()
    keep: frozenset[str] = SENSITIVE
    ranges: str = RANGES[0]
    adjust: tuple[str, ...] = ADJUSTMENTS

    def __post_init__(self) -> None:
        for name in self.precisions:
            if name not in (*NARROW, *BYTES, *PACKED):
                known = (*NARROW, *BYTES, *PACKED)
                raise UsageError(f"no precision {name!r}", expected=", ".join(known[:-1]) + f" or {known[-1]}")
        for name in self.arithmetic:
            if name != "tf32":
                raise UsageError(f"no arithmetic {name!r}", expected="tf32")
        for name in self.adjust:
            if name not in ADJUSTMENTS:
                raise UsageError(
                    f"no adjustment of weights {name!r}", expected="a tuple of " + " and ".join(map(repr, ADJUSTMENTS))
                )
        unknown = sorted(self.keep - set(OPS))
        if unknown:
            raise UsageError(f"a precision policy keeps {unknown[0]!r}", expected="names of operators")
        if self.ranges not in RANGES:
            raise UsageError(
                f"ranges by {self.ranges!r}",
                expected="one of " + ", ".join(RANGES),
                remedy=nearest(self.ranges, RANGES),
            )
        if self.ranges != RANGES[0] and not self.quantises:
            raise UsageError(
                f"ranges by {self.ranges!r} in a precision policy without int8",
                expected="ranges of values that are held in integers",
                remedy="add int8 to the precisions, or leave out `ranges`",
            )
        if self.precisions and self.keep.issuperset(OPS):
            raise UsageError(
                f"a precision policy of {', '.join(self.precisions)} that keeps every operator in float32",
                expected="some operator that may run in a lower precision",
                remedy="leave out `keep`, or the precisions",
            )

    @property
    def floats(self) -> tuple[str, ...]:
        """The element types among the precisions that are floats."""
        return tuple(name for name in self.precisions if name in NARROW)

    @property
    def quantises(self) -> bool:
        """True if kernels may compute on numbers of a byte, or on weights of fewer bits."""
        return any(name in self.precisions for name in (*BYTES, *PACKED))

    @property
    def is_exact(self) -> bool:
        """True if everything stays in the element type that the model states."""
        return not self.precisions and not self.arithmetic

    def allows(self, op: str, precision: str) -> bool:
        """Return whether an operator may run on operands, or make results, of a lower precision.

        What is neither element by element, nor movement, nor a product, nor a maximum, nor an average keeps float32.
        """
        declared = OPS.get(op)
        if declared is None or op in self.keep or precision not in self.precisions:
            return False
        if precision in PACKED:
            return declared.product and not declared.windowed
        if declared.sensitive and not declared.is_shipped:  # declared after the policies
            return False
        exact = declared.movement or declared.selects
        return declared.pointwise or exact or declared.product or declared.accumulates


#: Sensitive operators that kernels compute in float32 whatever their operands are held in.
_WIDENED = frozenset(name for name in SENSITIVE if OPS[name].accumulates)

#: Sensitive operators whose kernels on integers add up without rounding: averages over windows.
_AVERAGES = frozenset({"avg_pool", "global_avg_pool"})

#: The policies that have a name.
POLICIES: Mapping[str, PrecisionPolicy] = MappingProxyType(
    {
        "exact": PrecisionPolicy(),
        "tf32": PrecisionPolicy(arithmetic=("tf32",)),
        "mixed": PrecisionPolicy(("float16", *BYTES, *PACKED), ("tf32",), SENSITIVE - _AVERAGES),
        "int8": PrecisionPolicy((INTEGERS,), keep=SENSITIVE - _AVERAGES),
        "int4": PrecisionPolicy(PACKED),
        "float16": PrecisionPolicy(precisions=("float16",), arithmetic=("tf32",), keep=SENSITIVE - _WIDENED),
        "bfloat16": PrecisionPolicy(precisions=("bfloat16",), arithmetic=("tf32",)),
    }
)


def policy(given: str | PrecisionPolicy) -> PrecisionPolicy:
    """A policy by its name, or as it is; UsageError for a name that is none.

    >>> policy("exact").is_exact
    True
    """
    if isinstance(given, PrecisionPolicy):
        return given
    if not isinstance(given, str) or given not in POLICIES:
        raise UsageError(
            f"precision = {given!r}",
            expected="one of " + ", ".join(POLICIES) + ", or a PrecisionPolicy",
            remedy=nearest(given, POLICIES) or "precision='exact' keeps the element types of the model",
        )
    return POLICIES[given]


def rounding_error(op: str, way: Implementation) -> float:
    """The relative error of an operator run in a lower precision: by rounding its result, or its products' operands."""
    storing = 0.0 if OPS[op].movement or way.result.is_plain else ROUNDOFF.get(way.result.precision, 0.0)
    return storing + ROUNDOFF.get(way.arithmetic, 0.0)


def lowers(type: TensorType | None) -> bool:
    """Return whether a value of this type may be held in a lower precision: those of float32 alone.

    >>> lowers(TensorType.of("float32", (2,))), lowers(TensorType.of("int64", (2,)))
    (True, False)
    """
    return type is not None and type.dtype is DType.FLOAT32
