"""Recurrent layers as statements: the products of all steps, then a loop over the steps."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from eqsat.language.ops.recurrent import LayerActivations
from eqsat.language.terms import DType, Node
from eqsat.runtime.kernels.expressions.coordinates import AffineIndex, Coords
from eqsat.runtime.kernels.expressions.expression import Expr, computed, convert, number
from eqsat.runtime.kernels.expressions.operations import FUNCTIONS
from eqsat.runtime.kernels.expressions.scalar import ARITHMETIC, given, operand
from eqsat.runtime.kernels.nests.computation import Coordinate
from eqsat.runtime.kernels.nests.groups.statements import GroupStatements

_add, _subtract, _multiply, _where = (FUNCTIONS[n] for n in ("add", "subtract", "multiply", "where"))


class _Recurrence(ABC):
    """A layer under construction: its operands, its states, and the cell of one direction."""

    gates: int
    #: The places of the first states among operands, and of lengths.
    first_states: tuple[int, ...] = (5,)

    def __init__(self, body: GroupStatements, node: Node) -> None:
        self.body, self.node, self.attrs = body, node, node.attrs
        self.layer = LayerActivations(ARITHMETIC, self.gates, node.attrs)
        self.x, self.w, self.r = (given(node, place) for place in range(3))
        self.bias, self.lens = operand(node, 3), operand(node, 4)
        lead = body.shape(self.x)[:2]
        self.steps, self.batch = lead[::-1] if self.attrs["layout"] else lead
        self.size = body.shape(self.r)[2]
        self.dtype = computed(body.group.types[self.x].dtype)
        self.filters, self.recurrent = self._turned(self.w), self._turned(self.r)

    def run(self) -> None:
        """Add the statements of all directions."""
        body = self.body
        landings: list[str | None] = [body.landing(v).buffer if v else None for v in self.node.outputs]
        landings += [None] * (1 + len(self.first_states) - len(landings))
        every, last = landings[0], landings[1:]
        for direction in range(self.layer.directions):
            self.direction = direction
            self.inputs = self._inputs()
            self.states = [self._first(place) for place in self.first_states]
            is_backward = self.attrs["direction"] == "reverse" or direction == 1
            with body.repeated(self.steps) as turn:
                self.step = turn * -1 + (self.steps - 1) if is_backward else turn
                self.cell()
                if every is not None:
                    self._store(every)
            for state, target in zip(self.states, last, strict=True):
                if target is not None:
                    self._store_last(state, target)

    @abstractmethod
    def cell(self) -> None:
        """Add the statements of one step, which update the states."""

    # ---- parts of a step --------------------------------------------------------------------------------------------

    def product(self, state: str, first: int, count: int) -> str:
        """A buffer with the products of a state and the rows of some gates, from a gate on."""
        body, size = self.body, self.size
        made = body.temporary(self.dtype, (self.batch, count * size))

        def term(at: Coords, k: Coords) -> Expr:
            weight = body.read(self.recurrent, (AffineIndex.number(self.direction), *k, at[1] + first * size))
            return _multiply(body.read(state, (at[0], *k)), weight)

        body.fill(made, term, (size,), "+")
        return made

    def gate(self, at: Coords, gate: int) -> Expr:
        """The part of a gate that the input of this step gives, with its bias."""
        batch, unit = at
        place = unit + gate * self.size
        row = batch * self.steps + self.step if self.attrs["layout"] else self.step * self.batch + batch
        return self.body.read(self.inputs, (row, place))

    def parameter(self, name: str, place: AffineIndex) -> Expr:
        """An element of an operand by direction."""
        return convert(self.body.value(name, (AffineIndex.number(self.direction), place)), self.dtype)

    def active(self, x: Expr, which: int) -> Expr:
        """An activation, its operand clipped where asked for."""
        made: Expr = self.layer.active(x, which, self.direction)
        return made

    def update(self, state: str, value: Callable[[Coords], Expr]) -> None:
        """Give a state its next value, in sequences that have not ended."""
        body = self.body

        def after(at: Coords, _: Coords) -> Expr:
            made = value(at)
            return made if self.lens is None else _where(self._goes_on(at[0]), made, body.read(state, at))

        body.fill(state, after)

    # ---- around the steps -------------------------------------------------------------------------------------------

    def _turned(self, name: str) -> str:
        """The rows of all gates as columns, which lie side by side: turned once where they are constants."""
        body, (directions, rows, width) = self.body, self.body.shape(name)

        def fill(made: str) -> None:
            body.fill(made, lambda at, _: convert(body.value(name, (at[0], at[2], at[1])), self.dtype))

        return body.prepared(self.dtype, (directions, width, rows), [name], fill)

    def _inputs(self) -> str:
        """The products of the inputs of all steps, with the bias of the input."""
        body, (one, two, width) = self.body, self.body.shape(self.x)
        source = body.in_memory(self.x, (one * two, width))
        made = body.temporary(self.dtype, (one * two, self.gates * self.size))

        def term(at: Coords, k: Coords) -> Expr:
            weight = body.read(self.filters, (AffineIndex.number(self.direction), *k, at[1]))
            return _multiply(convert(body.read(source, (at[0], *k)), self.dtype), weight)

        body.fill(made, term, (width,), "+")
        if self.bias is not None:
            body.fill(made, lambda at, _: _add(body.read(made, at), self.input_bias(at[1])))
        return made

    def input_bias(self, place: AffineIndex) -> Expr:
        """The bias of all gates that does not depend on states: that of the input and that of the state."""
        assert self.bias is not None
        own, other = self.parameter(self.bias, place), self.parameter(self.bias, place + self.gates * self.size)
        return _add(own, other)

    def _first(self, place: int) -> str:
        """A buffer with a first state; zeros where it is left out."""
        name, state = operand(self.node, place), self.body.temporary(self.dtype, (self.batch, self.size))

        def element(at: Coords, _: Coords) -> Expr:
            if name is None:
                return number(0, self.dtype)
            return convert(self.body.value(name, self._of_state(at)), self.dtype)

        self.body.fill(state, element)
        return state

    def _of_state(self, at: Coords) -> Coords:
        """The coordinates of an element among the states of all directions."""
        direction = AffineIndex.number(self.direction)
        return (at[0], direction, at[1]) if self.attrs["layout"] else (direction, *at)

    def _goes_on(self, batch: AffineIndex) -> Expr:
        """The truth that a sequence has this step."""
        return FUNCTIONS["less"](Coordinate.of(self.step, DType.INT64), self._length(batch))

    def _length(self, batch: AffineIndex) -> Expr:
        assert self.lens is not None
        return convert(self.body.value(self.lens, (batch,)), DType.INT64)

    def _store(self, target: str) -> None:
        """Write the hidden state of this step; zeros behind the end of a sequence."""
        direction, zero = AffineIndex.number(self.direction), number(0, self.dtype)

        def shown(at: Coords, _: Coords) -> Expr:
            hidden = self.body.read(self.states[0], at)
            return hidden if self.lens is None else _where(self._goes_on(at[0]), hidden, zero)

        def place(at: Coords) -> Coords:
            lead = (at[0], self.step) if self.attrs["layout"] else (self.step, direction, at[0])
            return (*lead, direction, at[1]) if self.attrs["layout"] else (*lead, at[1])

        self.body.fill(target, shown, sizes=(self.batch, self.size), place=place)

    def _store_last(self, state: str, target: str) -> None:
        """Write a last state; that of a sequence without steps is 0."""
        zero = number(0, self.dtype)

        def final(at: Coords, _: Coords) -> Expr:
            value = self.body.read(state, at)
            if self.lens is None:
                return value
            return _where(FUNCTIONS["greater"](self._length(at[0]), number(0, DType.INT64)), value, zero)

        self.body.fill(target, final, sizes=(self.batch, self.size), place=self._of_state)


class _Lstm(_Recurrence):
    """Long short-term memory, whose gates are i, o, f and c."""

    gates, first_states = 4, (5, 6)

    def cell(self) -> None:
        """The memory, then what is shown of it."""
        hidden, memory = self.states
        products = self.product(hidden, 0, 4)
        peepholes = operand(self.node, 7)

        def summed(at: Coords, gate: int) -> Expr:
            own = self.body.read(products, (at[0], at[1] + gate * self.size))
            return _add(self.gate(at, gate), own)

        def opened(at: Coords, gate: int) -> Expr:
            x = summed(at, gate)
            if peepholes is not None:  # that of the output looks at the memory after its update
                weight = self.parameter(peepholes, at[1] + gate * self.size)
                x = _add(x, _multiply(weight, self.body.read(memory, at)))
            return self.active(x, 0)

        def remembered(at: Coords) -> Expr:
            entering = opened(at, 0)
            kept = _subtract(number(1, self.dtype), entering) if self.attrs["input_forget"] else opened(at, 2)
            old = self.body.read(memory, at)
            return _add(_multiply(kept, old), _multiply(entering, self.active(summed(at, 3), 1)))

        def shown(at: Coords) -> Expr:
            value: Expr = self.layer.shown(self.body.read(memory, at), 2, self.direction)
            return _multiply(opened(at, 1), value)

        self.update(memory, remembered)
        self.update(hidden, shown)


class _Gru(_Recurrence):
    """Gated recurrent units, whose gates are z, r and h."""

    gates = 3

    def input_bias(self, place: AffineIndex) -> Expr:
        """The bias of the input alone: that of the state is added to its products."""
        assert self.bias is not None
        return self.parameter(self.bias, place)

    def cell(self) -> None:
        """The hidden state, between what it was and what is new."""
        (hidden,) = self.states
        is_linear = bool(self.attrs["linear_before_reset"])
        products = self.product(hidden, 0, 3 if is_linear else 2)

        def product(buffer: str, at: Coords, place: int, gate: int) -> Expr:
            own = self.body.read(buffer, (at[0], at[1] + place * self.size))
            if self.bias is None:
                return own
            return _add(own, self.parameter(self.bias, at[1] + (3 + gate) * self.size))

        def opened(at: Coords, gate: int) -> Expr:
            return self.active(_add(self.gate(at, gate), product(products, at, gate, gate)), 0)

        def state(at: Coords) -> Expr:
            return self.body.read(hidden, at)

        if is_linear:

            def candidate(at: Coords) -> Expr:
                return _multiply(opened(at, 1), product(products, at, 2, 2))

        else:
            reset = self.body.temporary(self.dtype, (self.batch, self.size))
            self.body.fill(reset, lambda at, _: _multiply(opened(at, 1), state(at)))
            again = self.product(reset, 2, 1)

            def candidate(at: Coords) -> Expr:
                return product(again, at, 0, 2)

        def after(at: Coords) -> Expr:
            new, update = self.active(_add(self.gate(at, 2), candidate(at)), 1), opened(at, 0)
            rest = _subtract(number(1, self.dtype), update)
            return _add(_multiply(rest, new), _multiply(update, state(at)))

        self.update(hidden, after)


class _Rnn(_Recurrence):
    """The plain recurrence."""

    gates = 1

    def cell(self) -> None:
        """The hidden state, from the one before it."""
        products = self.product(self.states[0], 0, 1)
        self.update(self.states[0], lambda at: self.active(_add(self.gate(at, 0), self.body.read(products, at)), 0))


def _layer(kind: type[_Recurrence]) -> Callable[[GroupStatements, Node], None]:
    return lambda body, node: kind(body, node).run()


#: Recurrent layers.
RECURRENCES: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    "lstm": _layer(_Lstm),
    "gru": _layer(_Gru),
    "rnn": _layer(_Rnn),
}
