"""Rows of the import and export tables that follow from declarations: from `onnx=`, the operands and the attributes."""

from __future__ import annotations

from typing import Any

from eqsat.language.declaration import REQUIRED, OpSpec
from eqsat.language.onnx.files.schemas import defaults, is_chained
from eqsat.language.onnx.read.importing import Call, Importer, Unsupported
from eqsat.language.onnx.write.exporting import ExportTarget
from eqsat.language.ops import OPS


def import_same(call: Call) -> None:
    """Read an operator with the same operands and attributes."""
    declared, stated = OPS[call.op], defaults(call.node.op_type)
    values = {}
    for name, ours in declared.attrs.items():
        value = call.attrs.get(name, stated[name])
        value = ours if value is REQUIRED else value
        if value is REQUIRED:
            raise Unsupported(f"attribute {name} is missing")
        values[name] = value if ours is REQUIRED or ours is None else type(ours)(value)
    call.emit(call.op, *(call.optional(i) for i in range(call.arity)), **values)


def stated(call: Call, op: str, **names: str) -> dict[str, Any]:
    """The attributes of one of our operators as a node states them, some by ONNX's names; axes count from the left.

    KeyError where one without a default is missing.
    """
    declared, attrs = OPS[op], dict[str, Any]()
    theirs = defaults(declared.onnx or "")
    for name, ours in declared.attrs.items():
        known = names.get(name, name)
        default = theirs.get(known, REQUIRED)
        default = ours if default is REQUIRED else default
        if name == "axis":
            attrs[name] = call.axis(None if default is REQUIRED else default)
        else:
            value = call.attrs[known] if default is REQUIRED else call.attrs.get(known, default)
            attrs[name] = bool(value) if isinstance(ours, bool) else value
    return attrs


def import_as(op: str | None = None, **names: str) -> Importer:
    """Read an operator with the same operands, none of them missing, and attributes as `stated` has them."""

    def translate(call: Call) -> None:
        declared = OPS[call.op if op is None else op]
        least, most = declared.min_operands, declared.max_operands
        count = call.arity if most is None else most
        operands = (call.value(i) if i < least or most is None else call.optional(i) for i in range(count))
        call.emit(declared.name, *operands, **stated(call, declared.name, **names))

    return translate


#: Names of ONNX's for attributes of a product of matrices.
GEMM = {"trans_a": "transA", "trans_b": "transB"}

#: Reads an operator with the same operands and attributes; axes are then counted from the left.
import_plain = import_as()


def import_chain(op: str | None = None) -> Importer:
    """Read an operator of any number of operands as a chain of binary ones."""

    def translate(call: Call) -> None:
        name = call.op if op is None else op
        if call.arity == 1:
            return call.emit("identity", call.value(0))
        total = call.value(0)
        for i in range(1, call.arity - 1):
            total = call.make(name, total, call.value(i))
        return call.emit(name, total, call.value(call.arity - 1))

    return translate


def derived_importer(declared: OpSpec) -> Importer:
    """The importer that follows from a declaration."""
    return import_chain() if is_chained(declared) else import_same


def export_same(target: ExportTarget) -> None:
    """Write an operator with the same operands and attributes, those left out that are ONNX's default.

    Floats are always written: ONNX holds its defaults of them in 32 bits, and has changed some between opsets.
    """
    stated = defaults(target.onnx)
    values = {n: int(v) if isinstance(v, bool) else v for n, v in target.attrs.items()}
    target.emit(
        target.onnx, *target.inputs, **{n: v for n, v in values.items() if isinstance(v, float) or v != stated[n]}
    )
