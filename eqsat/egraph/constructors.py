"""The names of operators in egglog."""

from __future__ import annotations

from eqsat.language.ops import OPS


def constructor_name(op: str, arity: int) -> str:
    """The name in egglog of an operator of this many operands.

    Pointwise operators of one arity are one constructor there, and so are reductions, told apart by the number that
    stands for their attributes: the work egglog does grows with the number of tables and of queries.
    """
    declared = OPS.get(op)
    if declared is not None and declared.pointwise:
        return f"op_pointwise_{arity}"
    return f"op_reduce_{arity}" if op.startswith("reduce_") else f"op_{op}_{arity}"


def presence_name(op: str) -> str:
    """The relation that holds the classes with an e-node of a variadic operator."""
    return f"has_{op}"


def is_variadic(op: str) -> bool:
    """True if an operator takes any number of operands."""
    return op in OPS and OPS[op].max_operands is None
