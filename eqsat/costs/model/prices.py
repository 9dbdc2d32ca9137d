"""The prices of operators on a device: measured where the table knows, else estimated."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self, TypeAlias

from eqsat.costs.devices.device import Device, DeviceArgument
from eqsat.costs.kernels.applications import Sizes, is_free
from eqsat.costs.kernels.fusion import FusedKey, FusedOperator, runs_as_one, shared
from eqsat.costs.kernels.generated import generated_work, is_generated
from eqsat.costs.kernels.implementations import Types, converting, is_view
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.kernels.precision import ROUNDOFF, is_product, rounding_error
from eqsat.costs.kernels.regions import stated
from eqsat.costs.kernels.work import Work, work_of
from eqsat.costs.model.asked import Application, CostFunction, asked
from eqsat.costs.model.borrowed import Borrowed
from eqsat.costs.model.cost import TERMS, Cost, average, check_objective
from eqsat.costs.model.fit import Fit
from eqsat.costs.model.sharing import Sharing, passing_bytes
from eqsat.costs.model.whole_graphs import WHOLE, Correction, correction, measured_graphs
from eqsat.costs.model.written import WrittenOut, cost_written
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.ops import OPS
from eqsat.language.terms import PLAIN, Graph, Implementation, State, TensorType
from eqsat.runtime.examples import SizePoint
from eqsat.runtime.programs.placement import is_strided

#: Weights of terms.
Objective: TypeAlias = Mapping[str, float]


class OperatorPrices:
    """Prices of operators on one device, at the sizes of named dims, as `CostModel` describes them."""

    _parts: tuple[tuple[float, Self], ...]
    #: Writes out the operators that a user declares, where the device's programs do.
    _written_out: WrittenOut | None = None

    def __init__(
        self,
        device: DeviceArgument = "onnxruntime-cpu",
        table: CostTable | None = None,
        objective: Objective | None = None,
        sizes: Mapping[str, int] | None = None,
        *,
        cost: CostFunction | None = None,
        threads: int = 1,
        corrected: bool = True,
    ) -> None:
        self.device = Device.of(device)
        self.objective: Objective = {"time": 1.0} if objective is None else objective
        self.cost = cost
        check_objective(self.objective)
        self.sizes = Sizes(sizes or {})
        if table is None:
            self.environment = Environment.current(self.device, threads)
        else:
            self.environment = table.environment(self.device, threads)
        self._own: Mapping[str, Entry] = table.entries(self.environment) if table is not None else {}
        self._correction = correction(measured_graphs(self._own)) if corrected and self.device.gpu else Correction()
        self._hot = False
        self._borrow(None)

    def writing_out(self, written_out: WrittenOut) -> Self:
        """The same model of operators that are written out by laws, where the device's programs are."""
        model = copy.copy(self)
        model._written_out = written_out if self.device.writes_out else None
        return model

    def borrowing(self, borrowed: Borrowed) -> Self:
        """The same model, not yet settled, with the entries of another environment where the table has none."""
        model = copy.copy(self)
        model._borrow(borrowed)
        return model

    def measured_anew(self, entries: Mapping[str, Entry]) -> Self:
        """The same model, settled as it is, with the entries that this environment has now."""
        model = copy.copy(self)
        model._own = entries
        model.measured = entries if self.borrowed is None else self.borrowed.beside(entries)
        model._fit, model._costs, model._fused = Fit(self.device, model.measured), {}, {}
        model._parts = tuple((share, part.measured_anew(entries)) for share, part in self._parts)
        return model

    def _borrow(self, borrowed: Borrowed | None) -> None:
        self.borrowed = borrowed
        self.measured: Mapping[str, Entry] = self._own if borrowed is None else borrowed.beside(self._own)
        self._sharing = Sharing(self.device, self._own if borrowed is None else borrowed.here)
        self._fit = Fit(self.device, self.measured)
        self._costs: dict[Any, Cost] = {}
        self._fused: dict[tuple[FusedOperator, ...], Cost | None] = {}
        self._parts = ()

    @property
    def library_plans(self) -> tuple[str, ...]:
        """The plans by which calls of libraries were measured to be fastest, as the table keeps them."""
        return tuple(sorted({e.plan for text, e in self._own.items() if e.plan and not text.startswith(WHOLE)}))

    def settle(self: Self, graph: Graph, points: Sequence[SizePoint] = ()) -> None:
        """Set the constants of the model, and the points it is costed at, before anything is costed.

        Where half of the nearest memory holds the constants, they stay there from run to run, and operators cost their
        hot times. At several points costs are means by their weights; memory is that of the largest.
        """
        self._hot = sum(c.nbytes for c in graph.constants.values()) <= self.device.near_bytes // 2
        if points:
            self.sizes = Sizes(max(points, key=lambda p: math.prod(p.sizes.values())).sizes)
        self._sharing = replace(self._sharing, passing=passing_bytes(graph, self.sizes))
        if len(points) > 1:
            self._parts = self._at_points(points)

    def _at_points(self, points: Sequence[SizePoint]) -> tuple[tuple[float, Self], ...]:
        total = math.fsum(p.weight for p in points)
        return tuple((p.weight / total, self.at(p.sizes)) for p in points)

    def at(self, sizes: Mapping[str, int]) -> Self:
        """The same model at one assignment of sizes."""
        model = copy.copy(self)
        model.sizes, model._costs, model._fused, model._parts = Sizes(sizes), {}, {}, ()
        return model

    def weighed(self, weights: Sequence[float]) -> None:
        """Give the points other weights; costs are means by these from then on."""
        total = math.fsum(weights)
        self._parts = tuple((w / total, model) for w, (_, model) in zip(weights, self._parts, strict=True))
        self._costs, self._fused = {}, {}

    @property
    def parts(self) -> tuple[tuple[float, Self], ...]:
        """The model at each of several points, with its share; itself alone where there is one."""
        return self._parts or ((1.0, self),)

    def node(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operand_types: Types,
        result_types: Types,
        const_operands: Sequence[bool],
        implementation: Implementation | None = None,
    ) -> Cost:
        """The cost of one operator; nothing for constants and for values that constants alone decide."""
        operands, results, const = tuple(operand_types), tuple(result_types), tuple(const_operands)
        question = (op, attrs, operands, results, const, implementation)
        try:
            known = self._costs.get(question)
        except TypeError:  # attributes given as a plain dict
            return self._cost(op, attrs, operands, results, const, implementation)
        if known is None:
            known = self._costs[question] = self._cost(op, attrs, operands, results, const, implementation)
        return known

    def price(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operand_types: Types,
        result_types: Types,
        const_operands: Sequence[bool],
        implementation: Implementation | None = None,
    ) -> float:
        """The price of one operator by the objective, or by the user's cost function."""
        cost = self.node(op, attrs, operand_types, result_types, const_operands, implementation)
        if self.cost is None:
            return self.weigh(cost)
        operands, results, const = tuple(operand_types), tuple(result_types), tuple(const_operands)
        return asked(self.cost, Application(op, attrs, operands, results, const, cost, implementation))

    def weigh(self, cost: Cost) -> float:
        """The price of a cost by the objective."""
        terms = ((weight, TERMS[term]) for term, weight in self.objective.items() if term in TERMS)
        return float(sum(weight * getattr(cost, name) for weight, name in terms))

    def constant(self, type: TensorType | None, state: State = PLAIN) -> Cost:
        """The cost of holding a constant in a state: its bytes, and the error of rounding it."""
        if type is None or type.shape is None:
            return Cost()
        stored = state.typed(type).at(self.sizes)
        return Cost(weight_bytes=stored.elements({}) * stored.dtype.itemsize, error=ROUNDOFF.get(state.precision, 0.0))

    def saved(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operands: Types,
        const: Sequence[bool],
        implementation: Implementation | None = None,
    ) -> float:
        """The seconds that an operator takes less after another of its kind has read its constants; 0 if unknown.

        A user's cost function knows no sharing.
        """
        if self.cost is not None or self._hot or True not in const:
            return 0.0
        if self._parts:
            parts = ((share, m.saved(op, attrs, operands, const, implementation)) for share, m in self._parts)
            return math.fsum(share * seconds for share, seconds in parts)
        key = self.key(op, attrs, operands, const, implementation)
        entry = self.measured.get(key.text) if key.is_measurable else None
        return 0.0 if entry is None else self._correction.factor * self._sharing.saved(key, entry)

    def conversion(self, type: TensorType, source: State, target: State) -> Cost:
        """The cost of bringing a value from one state to another that differs in layout or in precision.

        A cast where the precision differs, else a copy in another order of the elements.
        """
        op, attrs, before, after, way = converting(type, source, target)
        lowered = target.precision not in ("", source.precision)
        cost = self.node(op, attrs, [before], [after], [False], way)
        return replace(cost, error=ROUNDOFF[target.precision]) if lowered else cost

    def conversion_key(self, type: TensorType, source: State, target: State) -> OpKey:
        """The key a conversion is measured under."""
        op, attrs, before, _, way = converting(type, source, target)
        return self.key(op, attrs, [before], [False], way)

    def conversion_price(self, type: TensorType, cost: Cost) -> float:
        """The price of a conversion by the objective, or by the user's cost function of an operator named "convert"."""
        if self.cost is None:
            return self.weigh(cost)
        return asked(self.cost, Application("convert", {}, (type,), (type,), (False,), cost))

    @property
    def knows_fused(self) -> bool:
        """True if operators run as one kernel can have a cost here: estimated, or some of them measured."""
        return self.knows_fused_with("")

    def knows_fused_with(self, op: str) -> bool:
        """Return whether a kernel of this operator and others can have a cost here."""
        return self.device.fuses or any(" ; " in text and op in text for text in self.measured)

    def fused(self, members: Sequence[FusedOperator]) -> Cost | None:
        """The cost of operators run as one kernel: measured, or estimated where the device's backend fuses them.

        The estimate saves the write and the reads of what stays inside, and all launches but one. None where neither
        is known.
        """
        question = tuple(members)
        if question not in self._fused:
            self._fused[question] = self._fused_cost(members)
        return self._fused[question]

    def _fused_cost(self, members: Sequence[FusedOperator]) -> Cost | None:
        if self._parts:
            costs = [(share, model.fused(members)) for share, model in self._parts]
            known = [(share, cost) for share, cost in costs if cost is not None]
            return average(known) if len(known) == len(costs) else None
        key = self.fused_key(members)
        works = [self._work(m.op, k, m.results, m.implementation) for m, k in zip(members, key.members, strict=True)]
        inside = 0
        for member in members:
            for type, link in zip(member.operands, member.links, strict=True):
                if link is not None:
                    inside += self._held_bytes(type, members[link].implementation)
        for producer in members[:-1]:
            inside += self._held_bytes(producer.results[0], producer.implementation)
        flops, weights = sum(w.flops for w in works), sum(w.weight_bytes for w in works)
        moved = sum(w.bytes for w in works) - inside
        error = sum(rounding_error(m.op, m.implementation) for m in members)
        entry = self.measured.get(key.text) if self.measured else None
        if entry is not None:
            seconds, lent = self._correction.of(self._taken(entry), 1), self._is_lent(key.text)
            return Cost(seconds, flops, moved, 1, error=error, borrowed=lent)
        if not self.device.fuses or (self.device.strided and not runs_as_one(members)):
            return None
        launches = 1 + sum(w.launches - 1 for w in works)
        seconds = self._correction.of(self.device.fused(works, moved, weights), launches)
        return Cost(seconds, flops, moved, launches, error=error, estimated=True)

    def _held_bytes(self, type: TensorType | None, way: Implementation) -> int:
        """The bytes of an operator's results; 0 if their rank is unknown, as the bytes read and written then are."""
        if type is None or type.shape is None:
            return 0
        stored = way.result.typed(type).at(self.sizes)
        return stored.elements({}) * stored.dtype.itemsize

    def key(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operands: Types,
        const: Sequence[bool],
        way: Implementation | None = None,
    ) -> OpKey:
        """The key an operator run in some way is measured under; one on integers by that of the kernel it is."""
        if (kernel := stated(op, attrs, operands, const)) is not None:
            return self.key(kernel.op, kernel.attrs, kernel.operands, kernel.const, kernel.implementation)
        if way is None or way.is_plain:
            return OpKey.of(op, attrs, operands, const, self.sizes)
        typed = [None if t is None else s.typed(t) for t, s in zip(operands, way.operands, strict=True)]
        mixed = is_product(op) and way.result.precision != way.operands[0].precision
        key = OpKey.of(op, attrs, typed, const, self.sizes)
        layouts = [*(s.layout for s in way.operands), way.result.layout]
        return key.run(layouts, (way.result.precision or "float32") if mixed else "", way.arithmetic)

    def fused_key(self, members: Sequence[FusedOperator]) -> FusedKey:
        """The key operators run as one kernel are measured under."""
        keys = (self.key(m.op, m.attrs, m.operands, m.const, m.implementation) for m in members)
        return FusedKey(tuple(keys), tuple(m.links for m in members), shared([m.same for m in members]))

    def _cost(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operands: tuple[TensorType | None, ...],
        results: tuple[TensorType | None, ...],
        const: tuple[bool, ...],
        way: Implementation | None,
    ) -> Cost:
        if is_free(op, operands, const):
            return Cost()
        if (kernel := stated(op, attrs, operands, const)) is not None:
            made = kernel.operands, kernel.results, kernel.const
            return replace(self._cost(kernel.op, kernel.attrs, *made, kernel.implementation), error=0.0)
        if self._parts:
            return average(
                (share, model.node(op, attrs, operands, results, const, way)) for share, model in self._parts
            )
        declared = OPS.get(op)
        if declared is not None and declared.view:
            return Cost(seconds=0.0 if op == "identity" else self.device.view, estimated=True)
        if way is not None and is_view(op, attrs, operands, way):
            return Cost()
        if self.device.strided and is_strided(op):
            return Cost()
        key = self.key(op, attrs, operands, const, way)
        work = self._work(op, key, results, way)
        is_stated = declared is None or declared.is_shipped or is_generated(key, self._made(results, way), self.device)
        if self._written_out is not None and not is_stated:
            graph = None if key.text in self.measured else self._written_out(op, attrs, operands, results)
            if graph is not None:
                return cost_written(self.node, graph, const)
        error = 0.0 if way is None else rounding_error(op, way)
        entry = self.measured.get(key.text) if self.measured and key.is_measurable else None
        how = (op, attrs, operands, results, const, way, work)
        seconds = self._estimate(*how) if entry is None else self._taken(entry)
        taken = self._correction.of(seconds, work.launches)
        cost = Cost(taken, work.flops, work.bytes, work.launches, error=error, estimated=entry is None)
        return replace(cost, borrowed=True) if entry is not None and self._is_lent(key.text) else cost

    def _is_lent(self, text: str) -> bool:
        return self.borrowed is not None and text not in self._own

    def _taken(self, entry: Entry) -> float:
        """The time of a measured kernel where the model's constants lie."""
        return entry.hot if self._hot and entry.hot is not None else entry.seconds

    def _estimate(
        self,
        op: str,
        attrs: Mapping[str, Any],
        operands: Types,
        results: Types,
        const: Sequence[bool],
        way: Implementation | None,
        work: Work,
    ) -> float:
        """The fitted roofline; where the plain way was measured, its time scaled as the roofline says.

        Otherwise a way would be cheaper or dearer than the plain one by the error of an estimate.
        """
        seconds = self._fit.seconds(work)
        if way is None or way.is_plain or not self.measured:
            return seconds
        key = self.key(op, attrs, operands, const, None)
        entry = self.measured.get(key.text) if key.is_measurable else None
        if entry is None:
            return seconds
        return (
            self._taken(entry) * self.device.roofline(work) / self.device.roofline(self._work(op, key, results, None))
        )

    def _work(self, op: str, key: OpKey, results: Types, way: Implementation | None) -> Work:
        typed = self._made(results, way)
        work = work_of(op, key.attrs, key.operands, typed, key.const_operands)
        if not self._fit.knows(op) and (generated := generated_work(work, key, typed, self.device)) is not None:
            return generated
        return replace(work, dtype=key.arithmetic) if key.arithmetic else work

    def _made(self, results: Types, way: Implementation | None) -> list[TensorType | None]:
        """The types of results as they are held, at the model's sizes."""
        state = PLAIN if way is None else way.result
        return [None if t is None else state.typed(t).at(self.sizes) for t in results]
