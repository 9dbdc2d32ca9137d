"""Chains of statements: a statement, and those that follow it at the same elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from eqsat.runtime.kernels.expressions.coordinates import AffineIndex
from eqsat.runtime.kernels.expressions.expression import Expr
from eqsat.runtime.kernels.nests.computation import ElementRead, KernelStatement, rebuilt
from eqsat.runtime.kernels.nests.scheduling.values import own_element
from eqsat.runtime.kernels.nests.tree import Assign, Node


@dataclass(frozen=True)
class StatementChain:
    """A statement and those that follow it at the same elements, element by element.

    Of the targets, `stored` ones are written to memory; others are read by the chain alone.
    """

    first: KernelStatement
    following: tuple[KernelStatement, ...]
    stored: frozenset[str]


def from_registers(statement: KernelStatement, held: Mapping[str, ElementRead]) -> Expr:
    """The value of a statement whose chain holds elements of its operands in registers."""

    def change(one: Expr) -> Expr | None:
        if isinstance(one, ElementRead) and one.buffer in held:
            return held[one.buffer]
        return None

    return rebuilt(statement.value, change)


def following_nodes(
    chain: StatementChain,
    first: ElementRead,
    register: Callable[[str], tuple[Node, ElementRead]],
    each: Callable[[Assign], Node],
    at: Mapping[str, AffineIndex],
) -> list[Node]:
    """The statements after the first of a chain, on registers, and the stores of targets.

    `first` holds the elements of the first target, `register` makes more by name, and `each` assigns at all elements.
    """
    held: dict[str, ElementRead] = {chain.first.target: first}
    last = {one.target: number for number, one in enumerate((chain.first, *chain.following), -1)}

    def stored(one: KernelStatement, number: int) -> list[Node]:
        # As soon as they are known, so that few registers are held.
        is_last = one.target in chain.stored and last[one.target] == number
        return [each(Assign(own_element(one), held[one.target], "", at))] if is_last else []

    nodes: list[Node] = stored(chain.first, -1)
    for number, one in enumerate(chain.following):
        local, made = register(f"acc_{number}")
        nodes += [local, each(Assign(made, from_registers(one, held), "", at))]
        if one.reduction and not one.is_fresh:
            nodes.append(each(Assign(made, held.get(one.target, own_element(one)), one.reduction, at)))
        held[one.target] = made
        nodes += stored(one, number)
    return nodes
