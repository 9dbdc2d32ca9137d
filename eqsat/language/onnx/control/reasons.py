"""Why nodes that hold bodies stay where they are."""

from __future__ import annotations

from onnx import NodeProto

from eqsat.language.onnx.control.inference import Control
from eqsat.language.onnx.control.inlining import MOST_UNROLLED
from eqsat.language.onnx.control.scope import count
from eqsat.language.onnx.files.protos import subgraphs


def reason_for(node: NodeProto, found: Control | None) -> str | None:
    """Why an If, Loop or Scan is not replaced by what runs in it; None for other operators.

    `found` is what was read of its bodies, which are then optimised as graphs of their own.
    """
    if node.op_type not in ("If", "Loop", "Scan") or node.domain not in ("", "ai.onnx"):
        return None
    if found is None:
        return "holds bodies that cannot be typed as graphs of their own"
    if node.op_type == "If":
        return "which branch runs is known at run time; each is a graph of its own"
    nodes = sum(count(body) for body in subgraphs(node))
    if not isinstance(found.trips, int):
        return "how often it runs is known at run time; its body is a graph of its own"
    if found.trips * nodes > MOST_UNROLLED:
        return (
            f"more than the {MOST_UNROLLED} nodes that runs may be one after the other; its body is a graph of its own"
        )
    return "runs that cannot be one after the other; its body is a graph of its own"
