"""Whether a rule is false, decided without the verifier: both sides as ONNX models, run by ONNX's reference evaluator.

Instances are drawn as the verifier draws them, but none of its operator references computes anything here, other than
the constants that rules name (fill, eye, the kernels), which the exporter works out. A rule that differs anywhere is
false; one that never differs may be true.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np

from eqsat.errors import EqsatError, GraphError
from eqsat.language.graphs.builder import Builder
from eqsat.language.terms.pattern import Bindings
from eqsat.rewrites.conditions.expression import Undefined
from eqsat.rewrites.instances.extremes import integer_instance, nonfinite_instances
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.term import left_terms, output_types, right_terms

#: What the evaluator of onnx 1.23 computes wrongly: lrn normalises as many channels as there are batches, and
#: global_max_pool takes the maximum over other axes than the spatial ones unless there are two of these.
UNFAITHFUL = frozenset({"lrn", "global_max_pool"})
#: Operators for which it takes NaN for padding, which it leaves out of a window.
NAN_IS_PADDING = frozenset({"avg_pool", "max_pool"})
#: Relative difference in float64 above which two results are not the same.
_TOLERANCE = 1e-7


def falsity(rule: Rule, instances: int = 8, seed: int = 0) -> str | None:
    """How the sides of a rule differ on the first instance where they do; None where they never do or cannot be run.

    A right side that does not type, or whose types are others, differs. Every third instance is also tried with
    infinities, NaN and integers, as far as the conditions let them.
    """
    if rule.operators() & UNFAITHFUL:
        return None
    sampler = Sampler(rule, seed)
    for count in range(instances):
        bindings = sampler.draw(tries=1500)
        if bindings is None:
            return None
        tried = _variants(rule, bindings) if count % 3 == 0 else iter([("", bindings)])
        for name, one in tried:
            difference = _difference(rule, one, special=bool(name))
            if difference is not None:
                return f"{difference} {name}".strip()
    return None


def _variants(rule: Rule, bindings: Bindings) -> Iterator[tuple[str, Bindings]]:
    yield "", bindings
    whole = integer_instance(rule, bindings)
    more = nonfinite_instances(bindings)
    faithful = not rule.operators() & NAN_IS_PADDING
    for name, one in itertools.chain([("integers", whole)] if whole is not None else [], more):
        if rule.refused(one) is None and (faithful or not name.startswith("NaN")):
            yield f"with {name}", one


def _difference(rule: Rule, bindings: Bindings, special: bool) -> str | None:
    try:
        left = left_terms(rule, bindings)
        right = right_terms(rule, bindings)
    except Undefined:
        return None
    except GraphError as error:
        return None if special else f"the right side does not type: {error.what}"
    try:
        ours, theirs = computed(left, bindings), computed(right, bindings)
    except (EqsatError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None  # what ONNX does not have, or its evaluator not compute, says nothing
    if not (_as_typed(ours, left) and _as_typed(theirs, right)):
        return None  # the evaluator is known to err, as for integers times a fraction
    for a, b in zip(ours, theirs, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"{a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
        if not _equal(a, b, special):
            return "elements differ"
    return None


def _as_typed(arrays: list[Any], terms: list[Any]) -> bool:
    types = output_types(terms)
    return all(a.shape == t.static and a.dtype == t.dtype.numpy for a, t in zip(arrays, types, strict=True))


def _equal(a: Any, b: Any, special: bool) -> bool:
    if a.dtype.kind != "f":
        return bool(np.array_equal(a, b))
    known = np.isfinite(a) & np.isfinite(b)
    if special:
        rest = np.where(known, 0.0, a), np.where(known, 0.0, b)
        if not np.array_equal(*rest, equal_nan=True):
            return False
    elif (np.isfinite(a) != np.isfinite(b)).any():
        return False
    scale = max(1.0, float(np.abs(a[known]).max())) if known.any() else 1.0
    return not known.any() or float(np.abs(a[known] - b[known]).max()) / scale <= _TOLERANCE


def computed(terms: list[Any], bindings: Bindings) -> list[Any]:
    """The outputs of terms as ONNX's reference evaluator computes them."""
    from onnx.reference import ReferenceEvaluator

    from eqsat.language.onnx.write.exporter import to_model

    builder = Builder("side")
    known: dict[int, Any] = {
        id(o): builder.constant(o.array, o.type.dtype.value, name=f"value_{i}")
        for i, o in enumerate(operands(bindings))
    }

    def tensors(term: Any) -> list[Any]:
        if id(term) in known:
            return [known[id(term)]]
        values = builder.apply(term.op, *(None if o is None else tensors(o)[0] for o in term.operands), **term.attrs)
        return list(values) if isinstance(values, tuple) else [values]

    outputs = [t for term in terms for t in tensors(term)]
    for index, tensor in enumerate(outputs):
        builder.output(f"out_{index}", tensor)
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        values: list[Any] = ReferenceEvaluator(to_model(builder.build(), OPSET)).run(None, {})
    return [np.asarray(f) for f in values]


#: The version of the operators, the newest that the evaluator has in full.
OPSET = 21
