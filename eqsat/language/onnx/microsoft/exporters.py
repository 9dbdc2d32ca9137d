"""Export of operators that only ONNX Runtime has."""

from __future__ import annotations

from collections.abc import Mapping

from eqsat.language.onnx.microsoft import grouped
from eqsat.language.onnx.write.exporting import Exporter, ExportTarget

DOMAIN = "com.microsoft"


def _matmul_packed(target: ExportTarget) -> None:
    attrs, inputs = target.attrs, list(target.inputs)
    # The fifth operand of ONNX Runtime's is an order of columns, which ours has not.
    operands = [*inputs[:4], "", inputs[4]] if len(inputs) > 4 else inputs
    target.model.add(
        "MatMulNBits",
        operands,
        target.outputs,
        target.node.name,
        domain=DOMAIN,
        K=attrs["k"],
        N=attrs["n"],
        bits=attrs["bits"],
        block_size=attrs["block"],
        **({"accuracy_level": attrs["level"]} if attrs["level"] else {}),
    )


EXPORTS: Mapping[str, Exporter] = {"grouped_attention": grouped.write, "matmul_packed": _matmul_packed}
