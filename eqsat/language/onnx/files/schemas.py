"""The schemas of ONNX's operators, and which of our operators are declared as one of them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from onnx import defs, helper

from eqsat.language.declaration import REQUIRED, OpSpec
from eqsat.language.ops import OPS


def declared_as(onnx: str) -> str | None:
    """The operator declared as one of ONNX's, the first where there are several; None where there is none.

    >>> declared_as("Conv"), declared_as("NonZero")
    ('conv', None)
    """
    return _by_onnx(tuple(OPS)).get(onnx)


@lru_cache(maxsize=4)
def _by_onnx(declared: tuple[str, ...]) -> Mapping[str, str]:
    """Operators by the ONNX operators that they are declared as, anew whenever others are declared."""
    return {one.onnx: one.name for one in reversed(list(OPS.values())) if one.onnx is not None}


def schemas(onnx: str) -> tuple[defs.OpSchema, ...]:
    """The schemas of an operator of ONNX's own domain, the newest last."""
    return _schemas().get(onnx, ())


@cache
def _schemas() -> Mapping[str, tuple[defs.OpSchema, ...]]:
    """The schemas of ONNX's own domain by operator: listing them all takes some milliseconds."""
    by_name: dict[str, list[defs.OpSchema]] = {}
    for schema in defs.get_all_schemas_with_history():
        if not schema.domain:
            by_name.setdefault(schema.name, []).append(schema)
    return {name: tuple(sorted(found, key=lambda s: s.since_version)) for name, found in by_name.items()}


@cache
def defaults(onnx: str) -> Mapping[str, Any]:
    """The attributes of an ONNX operator with their defaults, REQUIRED where there is none."""
    values: dict[str, Any] = {}
    for name, attribute in schemas(onnx)[-1].attributes.items():
        value = helper.get_attribute_value(attribute.default_value) if attribute.default_value.name else REQUIRED
        values[name] = value.decode() if isinstance(value, bytes) else value
    return values


def is_derived(declared: OpSpec) -> bool:
    """True if the rows follow: ONNX's operator takes the same operands, and has each attribute under the same name.

    >>> is_derived(OPS["leaky_relu"]), is_derived(OPS["conv"])
    (True, False)
    """
    if declared.onnx is None or not schemas(declared.onnx):
        return False
    schema = schemas(declared.onnx)[-1]
    count = schema.max_input if declared.max_operands is None else declared.max_operands
    return set(declared.attrs) <= set(schema.attributes) and (is_chained(declared) or count == schema.max_input)


def is_chained(declared: OpSpec) -> bool:
    """True if ONNX's operator takes any number of operands, and ours two of them at a time."""
    variadic = any(
        i.option == defs.OpSchema.FormalParameterOption.Variadic for i in schemas(declared.onnx or "")[-1].inputs
    )
    return variadic and declared.min_operands == declared.max_operands == 2


def is_reduction(declared: OpSpec) -> bool:
    """True if an operator reduces the axes that its attributes name, and ONNX has one that does."""
    return declared.onnx is not None and set(declared.attrs) == {"axes", "keepdims"}


@cache
def axes_are_inputs_since(onnx: str) -> int:
    """The opset from which on the axes of a reduction are an operand."""
    return int(min(s.since_version for s in schemas(onnx) if len(s.inputs) == 2))
