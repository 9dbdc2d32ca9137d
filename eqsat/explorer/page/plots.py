"""The growth of an e-graph as a figure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from eqsat.explorer.view.views import GrowthView
from eqsat.system.figure import figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Rules with a colour of their own; the rest are drawn together.
TOP_RULES = 12
_OTHERS = "others"
#: Okabe and Ito's colours first, which colour-blind people tell apart.
_COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442"),
    *("#6f4fa1", "#8c6d46", "#7fbf7b", "#c0485f", "#3a8f9f", "#9aa5b4"),
)


def growth_figure(growth: Sequence[GrowthView]) -> Figure:
    """E-nodes and e-classes over time, and how often each rule fired in each step.

    The rules that fired most have a colour each; the others share one. Raises MissingExtraError without matplotlib.
    """
    drawn = figure(9, 6.4)
    above, below = drawn.subplots(2, 1)
    _sizes(above, growth)
    _firings(below, growth)
    return drawn


def top_rules(growth: Sequence[GrowthView], most: int = TOP_RULES) -> list[str]:
    """The rules that fired most, most first, then "others" where there are more.

    >>> top_rules([GrowthView("grow", 3, 2, 0.1, {"a": 1, "b": 2, "c": 1})], most=2)
    ['b', 'a', 'others']
    """
    counts: Counter[str] = Counter()
    for step in growth:
        counts.update(step.fired)
    names = [name for name, count in counts.most_common() if count]
    return names if len(names) <= most else [*names[:most], _OTHERS]


def _sizes(axes: Axes, growth: Sequence[GrowthView]) -> None:
    seconds = [step.seconds for step in growth]
    axes.plot(seconds, [step.nodes for step in growth], marker="o", markersize=3.5, color=_COLOURS[0], label="e-nodes")
    axes.plot(
        seconds, [step.classes for step in growth], marker="o", markersize=3.5, color=_COLOURS[1], label="e-classes"
    )
    axes.set(xlabel="seconds since the start", ylabel="in the e-graph")
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False)
    _plain(axes)


def _firings(axes: Axes, growth: Sequence[GrowthView]) -> None:
    from matplotlib.ticker import MaxNLocator

    names = top_rules(growth)
    steps = range(len(growth))
    sums = [0] * len(growth)
    for number, name in enumerate(names):
        heights = [_fired(step, name, names) for step in growth]
        axes.bar(steps, heights, bottom=sums, width=0.76, color=_COLOURS[number], label=name)
        sums = [low + height for low, height in zip(sums, heights, strict=True)]
    axes.set(xlabel="step", ylabel="firings")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if names:
        axes.legend(frameon=False, fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    _plain(axes)


def _fired(step: GrowthView, name: str, names: Sequence[str]) -> int:
    if name == _OTHERS and name not in step.fired:
        return sum(count for rule, count in step.fired.items() if rule not in names)
    return step.fired.get(name, 0)


def _plain(axes: Axes) -> None:
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
