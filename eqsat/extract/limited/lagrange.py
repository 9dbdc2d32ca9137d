"""Choices within limits by prices: the price of a limited resource rises until the cheapest choice can afford it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from eqsat.extract.problem.limits import exceeds
from eqsat.extract.problem.problem import Problem
from eqsat.extract.problem.program import Choice, ExtractionProgram, cheapest_trees, closure
from eqsat.extract.solvers.greedy import cheapest_dags

ROUNDS = 24
"""Changes of the prices."""

EASE = 0.6
"""Factor of the price of a resource whose limit is kept; the price of one whose limit is broken is doubled."""


@dataclass(slots=True)
class Demand:
    """A limit on a program: the amount that every option uses."""

    name: str
    most: float
    amounts: list[float]
    total: float = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.amounts)

    def used(self, choice: Choice) -> float:
        """The amount that a choice uses, summed in a fixed order."""
        return float(sum(self.amounts[option] for option in sorted(choice.values())))

    def broken(self, choice: Choice) -> bool:
        """Return whether a choice uses more than there is."""
        return exceeds(self.used(choice), self.most)


def demands_of(problem: Problem) -> list[Demand]:
    """The finite limits of a problem, on its program; those that no choice can break are left out."""
    count = len(problem.conversions)
    demands = [Demand(limit.name, limit.most, limit.amounts(count)) for limit in problem.limits]
    return [demand for demand in demands if exceeds(demand.total, demand.most)]


class Prices:
    """Prices of several resources, which rise and fall with how the last choice kept the limits.

    `pressing` is a resource without a limit of its own, such as the bytes of all values for peak memory.
    """

    def __init__(
        self, program: ExtractionProgram, demands: Sequence[Demand], pressing: Sequence[float] | None = None
    ) -> None:
        self.costs = program.costs
        self.demands = list(demands)
        self.pressing = pressing
        typical = max(sum(self.costs) / max(len(self.costs), 1), 1e-300)
        self.prices = [0.0] * len(self.demands)
        self.first = [typical * len(self.costs) / d.total if d.total > 0 else 0.0 for d in self.demands]
        whole = sum(pressing) if pressing is not None else 0.0
        self.press, self.first_press = 0.0, typical * len(self.costs) / whole if whole > 0 else 0.0

    def weights(self) -> list[float]:
        """The cost of every option, the cost of its resources included."""
        weights = list(self.costs)
        for price, demand in zip(self.prices, self.demands, strict=True):
            if price > 0:
                weights = [w + price * a for w, a in zip(weights, demand.amounts, strict=True)]
        if self.press > 0 and self.pressing is not None:
            weights = [w + self.press * a for w, a in zip(weights, self.pressing, strict=True)]
        return weights

    def change(self, broken: Sequence[bool], pressed: bool) -> None:
        """Raise the prices of limits that were broken and lower those of the others."""
        for index, over in enumerate(broken):
            price = self.prices[index]
            self.prices[index] = max(2 * price, 0.1 * self.first[index]) if over else EASE * price
        self.press = max(2 * self.press, 0.1 * self.first_press) if pressed else EASE * self.press


def greedy_choice(program: ExtractionProgram, weights: list[float], *, shared: bool = True) -> Choice:
    """A closed greedy choice under other costs; they count a shared goal once if `shared`, else once a user."""
    if shared:
        choice = cheapest_dags(dataclasses.replace(program, costs=weights))
    else:
        choice = cheapest_trees(program, weights)[0]
    return closure(program, choice, program.roots)


def priced_choices(
    program: ExtractionProgram,
    prices: Prices,
    take: Callable[[Choice], bool | None],
    stop: Callable[[], bool],
    rounds: int = ROUNDS,
) -> None:
    """Offer greedy choices under changing prices to `take`.

    `take` returns whether peak memory was exceeded, or None where that was not looked at.
    """
    for _ in range(rounds):
        weights = prices.weights()
        used = [greedy_choice(program, weights), greedy_choice(program, weights, shared=False)]
        pressed = [take(choice) for choice in used]
        broken = [[d.broken(choice) for d in prices.demands] for choice in used]
        best = min(range(2), key=lambda i: (sum(broken[i]), bool(pressed[i]), i))
        if not any(broken[best]) and not pressed[best] and not any(prices.prices) and not prices.press:
            return
        prices.change(broken[best], bool(pressed[best]))
        if stop():
            return
