"""Kernels that an integer program would be offered for an e-graph, as keys that can be measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.applications import is_free
from eqsat.costs.kernels.fusion import FusedKey, FusedOperator, Key
from eqsat.costs.kernels.implementations import Choices, is_view
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import is_product
from eqsat.costs.model.cost import Cost
from eqsat.costs.model.model import CostModel
from eqsat.egraph.snapshot import Snapshot
from eqsat.extract.tensors.heads import members
from eqsat.extract.tensors.pricing import KernelOption, Pricing
from eqsat.extract.tensors.tensors import TensorProblem, tensor_problem
from eqsat.language.ops import OPS
from eqsat.language.terms.graph import OPAQUE


@dataclass(frozen=True)
class Candidates:
    """Operators as graphs state them, the same in other layouts and precisions with conversions, and fused kernels."""

    plain: tuple[OpKey, ...]
    stated: tuple[OpKey, ...]
    fused: tuple[FusedKey, ...]

    def __iter__(self) -> Iterator[Key]:
        yield from self.plain
        yield from self.fused
        yield from self.stated


def candidates(
    snapshot: Snapshot, device: Device, choices: Choices, sizes: Mapping[str, int] | None = None, most_fused: int = 64
) -> Candidates:
    """The kernels worth measuring for an e-graph on a device, each once, as keys on known shapes.

    Layouts in which nothing can save a copy are left out, as they are from the program. Fused kernels are at most
    `most_fused`: those of the original graph first, then the one that makes each class at the least estimated cost, and
    among those the ones that save most. On a device whose backend is not known to fuse they are products followed by
    operators element by element.
    """
    model = CostModel(device, sizes=sizes) if device.fuses else _Estimates(replace(device, fuses=True), sizes=sizes)
    extraction = tensor_problem(snapshot, model, choices=choices, contrib=device.is_onnxruntime)
    return _KeyList(extraction, model).listed(most_fused)


class _Estimates(CostModel):
    """Estimates of operators, and of every chain worth measuring, for the times that are not known yet."""

    def fused(self, members: Sequence[FusedOperator]) -> Cost | None:
        first, *rest = (m.op for m in members)
        after = is_product(first) and all(OPS[op].pointwise for op in rest)
        return super().fused(members) if after or "attention" in rest else None


class _KeyList:
    def __init__(self, extraction: TensorProblem, model: CostModel) -> None:
        self.extraction, self.model = extraction, model
        self.nodes = extraction.snapshot.nodes
        self.pricing = Pricing(extraction.snapshot, model)

    def listed(self, most_fused: int) -> Candidates:
        single = (option for option in self.extraction.options if option.split is None and not option.fetch)
        options = [option for option in single if len(option.positions) == 1]
        plain = [option for option in options if all(one.is_plain for one in option.implementations)]
        others = [option for option in options if not all(one.is_plain for one in option.implementations)]
        given = _distinct((*self._operators(plain), *self._splits()))
        # A copy into another layout may be a transpose that a graph states.
        stated = _distinct((*self._operators(others), *self._conversions()))
        beside = tuple(key for key in stated if key not in given)
        return Candidates(tuple(given), beside, self._fused(most_fused))

    def _operators(self, options: list[KernelOption]) -> Iterator[OpKey]:
        """The keys of single operators that run something."""
        for option in options:
            node = self.nodes[option.positions[0]]
            declared = OPS.get(node.op)
            if declared is None or node.op == OPAQUE or declared.view:
                continue
            operands, const = self.pricing.types(node), self.pricing.constants(node)
            how = option.implementations[0] if option.implementations else None
            if is_free(node.op, operands, const) or (how is not None and is_view(node.op, node.attrs, operands, how)):
                continue
            yield self.model.key(node.op, node.attrs, operands, const, how)

    def _splits(self) -> Iterator[OpKey]:
        for split in (option.split for option in self.extraction.options if option.split is not None):
            yield self.model.key("split", split.attrs, [self.pricing.type(split.source)], [False])

    def _conversions(self) -> Iterator[OpKey]:
        for conversion in self.extraction.problem.conversions:
            type = self.pricing.type(self.extraction.leaders[conversion.eclass])
            states = self.extraction.states
            if type is not None:
                yield self.model.conversion_key(type, states[conversion.source], states[conversion.target])

    def _fused(self, most: int) -> tuple[FusedKey, ...]:
        """Attention as one operator, then chains, each after those that it goes on from, one by one."""
        keys: dict[FusedKey, None] = {}
        for option in sorted(self._ranked(), key=lambda option: not self._attends(option)):
            if len(keys) >= most:
                break
            operators = members(
                self.extraction.snapshot, self.pricing, option.positions, option.implementations, option.links
            )
            for length in range(len(operators) if self._attends(option) else 2, len(operators) + 1):
                key = self.model.fused_key(operators[:length])
                if len(keys) < most and all(m.is_measurable for m in key.members):
                    keys.setdefault(key)
        return tuple(keys)

    def _attends(self, option: KernelOption) -> bool:
        return any(self.nodes[position].op == "attention" for position in option.positions)

    def _ranked(self) -> list[KernelOption]:
        """Chains of the original graph, plain ones, the cheapest of each class, and those that save most, first."""
        fused = [option for option in self.extraction.options if option.split is None and len(option.positions) > 1]
        places: dict[int, int] = {}
        ranks: list[tuple[bool, bool, int, float, int, KernelOption]] = []
        for option in sorted(fused, key=lambda option: (option.cost.seconds, option.positions)):
            given = all(self.nodes[position].original is not None for position in option.positions)
            plain = all(one.is_plain for one in option.implementations)
            eclass = self.nodes[option.positions[-1]].eclass
            place = places[eclass] = places.get(eclass, -1) + 1
            alone = sum(
                self.pricing.operator(position, how)[1].seconds
                for position, how in zip(option.positions, option.implementations, strict=True)
            )
            ranks.append((not given, not plain, place, option.cost.seconds - alone, len(ranks), option))
        return [option for *_, option in sorted(ranks)]


def _distinct(keys: tuple[OpKey, ...]) -> dict[OpKey, None]:
    """The keys on known shapes, each once, in their order."""
    return dict.fromkeys(key for key in keys if key.is_measurable)
