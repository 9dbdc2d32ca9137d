"""The settings of a run: its options, and the values they take on a device and for a model."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from eqsat.costs.devices.device import DEVICES, Device
from eqsat.costs.kernels.implementations import Choices
from eqsat.costs.kernels.precision import DEFAULT_ERROR, PACKED, POLICIES, PrecisionPolicy, policy
from eqsat.costs.model.model import CostModel
from eqsat.costs.table.table import CostTable
from eqsat.egraph.saturation import Limits
from eqsat.errors import UsageError
from eqsat.language.graphs.packed import PACKED_PRODUCTS
from eqsat.language.terms.blocks import PACKINGS
from eqsat.language.terms.graph import Graph
from eqsat.language.terms.state import State
from eqsat.options.checks import layouts_of
from eqsat.options.options import Options
from eqsat.quantisation.data import CalibrationData, read_calibration
from eqsat.rewrites.rules.definitions import written_out
from eqsat.runtime.backend import BACKENDS
from eqsat.runtime.examples import SizePoint
from eqsat.system.deadline import Deadline

#: The relative error of rounding to float32.
_ROUNDING = 2.0**-24
#: The share of the time limit that a run grows in.
SATURATE = 0.4


@dataclass(frozen=True)
class Settings:
    """Options with the values they take on the device of `costs`, which come from `table`, None once they are scaled.

    `points` are the sizes that the model is costed and measured at; `contrib` says whether a result may be written in
    operators of ONNX Runtime's own.
    """

    options: Options
    costs: CostModel
    table: CostTable | None
    choices: Choices
    limits: Limits
    deadline: Deadline
    points: Sequence[SizePoint] = ()
    contrib: bool = False

    @classmethod
    def of(cls, options: Options, growing: float = SATURATE) -> tuple[Settings, list[str]]:
        """The settings for options, of whose time a share is for growing, and warnings about costs.

        CostError for a device or a table that cannot be used.
        """
        _check_budget(options)
        table = options.opened_table()
        costs = CostModel(options.device, table, options.objective, cost=options.cost, threads=options.threads)
        costs = costs.writing_out(written_out)
        choices, warnings = choices_for(costs.device, options.layouts, options.precision, portable=options.portable)
        if not choices.policy.is_exact:
            _check_runtime(costs.device)
        if (stand_in := table.stand_in(costs.environment, costs.device)) is not None:
            warnings.append(stand_in)
        time_limit = options.time_limit if options.steps is None else math.inf
        settings = cls(
            options,
            costs,
            table,
            choices,
            limits_for(options.node_limit, time_limit, growing),
            Deadline(options.time_limit, steps=options.steps, asked=options.should_stop),
            contrib=not options.portable and options.buckets is None and costs.device.is_onnxruntime,
        )
        return settings, warnings

    def reading(self, graph: Graph) -> Settings:
        """The same settings with the calibration data for a graph read; UsageError for data that do not fit it."""
        given = self.options.calibration
        if given is None or isinstance(given, CalibrationData):
            return self
        data = read_calibration(given, graph)
        return replace(self, options=replace(self.options, calibration=data))

    @property
    def data(self) -> CalibrationData | None:
        """The calibration data, once they are read."""
        given = self.options.calibration
        return given if isinstance(given, CalibrationData) else None

    @property
    def device(self) -> Device:
        """The device whose costs count."""
        return self.costs.device

    @property
    def boundary(self) -> Mapping[str, State]:
        """The states of inputs and outputs that are not row-major in their own type."""
        return self.options.boundary or {}

    @property
    def packings(self) -> Mapping[str, Collection[str]]:
        """The forms in which weights may be packed, each with the operators that may read such.

        Only ONNX Runtime's own operator reads them: there are none where the result is to run elsewhere.
        """
        if self.options.portable:
            return {}
        allows = self.choices.policy.allows
        return {
            name: [op for op in PACKED_PRODUCTS if allows(op, PACKINGS[name].kind)] for name in self.device.packings
        }

    @property
    def is_plain(self) -> bool:
        """True if all inputs and outputs are row-major in their own types."""
        return all(state.is_plain for state in self.boundary.values())

    @property
    def bounds(self) -> Mapping[str, float]:
        """The most of each term that is limited."""
        return {term: float(most) for term, most in (self.options.limits or {}).items()}

    @property
    def budget(self) -> float | None:
        """The most that an output may move in a lower precision, as it was asked for."""
        return self.bounds.get("error")

    @property
    def drift(self) -> float:
        """The error of an output that is accepted of a result in a lower precision."""
        return DEFAULT_ERROR if self.budget is None else self.budget

    @property
    def sizes(self) -> Mapping[str, int]:
        """The least size that was asked for of each named dim."""
        return {name: min(shares) for name, shares in self.options.asked_sizes.items()}

    @property
    def is_stopped(self) -> bool:
        """True if the caller asked for an end."""
        return self.options.should_stop is not None and self.options.should_stop()

    @property
    def backend(self) -> str:
        """The backend of the device."""
        return self.device.backend

    @property
    def portable_backend(self) -> str:
        """The backend that outputs are compared on: the device's, or ONNX Runtime where that is not here."""
        here = self.device.is_here and not self.device.gpu and BACKENDS[self.backend].available() is None
        return self.backend if here else "onnxruntime"

    @property
    def exact(self) -> Settings:
        """The same, in the precision of the model."""
        return replace(self, choices=replace(self.choices, policy=POLICIES["exact"]))


def _check_budget(options: Options) -> None:
    """UsageError for a limit of error above 0 that rounding to float32 alone may pass."""
    most = (options.limits or {}).get("error")
    if most is not None and 0 < float(most) < _ROUNDING:
        raise UsageError(
            f"limits: error = {float(most):g}",
            expected=f"0, for no lower precision, or at least {_ROUNDING:.1g}: rounding to float32 makes as much",
        )


def _check_runtime(device: Device) -> None:
    """UsageError for a lower precision on a CPU whose runtime is not installed: its kernels are measured here."""
    reason = None if device.gpu else BACKENDS[device.backend].available()
    if reason is not None:
        what, _, how = reason.partition("; ")
        raise UsageError(
            f"a lower precision on {device.name}: {what}",
            expected="a runtime whose kernels can be measured here",
            remedy=how or "precision='exact' keeps the element types of the model",
        )


def limits_for(node_limit: int, time_limit: float, share: float = SATURATE) -> Limits:
    """The limits of growing where growing and choosing together may take so many seconds."""
    return Limits(nodes=node_limit, seconds=share * time_limit)


def choices_for(
    device: Device, layouts: str | Sequence[str], precision: str | PrecisionPolicy, *, portable: bool = False
) -> tuple[Choices, list[str]]:
    """The layouts and precisions to choose from on a device, and warnings of those that a policy allows in vain.

    UsageError where the device has none of the precisions that are asked for, or none that is `portable`.
    "mixed" is whatever the device has: of element types of 16 bits float16, or else bfloat16.
    """
    names = layouts_of(layouts, device.layouts, device.name)
    wanted = policy(precision)
    if precision == "mixed" and "float16" not in device.precisions:
        wanted = replace(wanted, precisions=("bfloat16", *wanted.precisions[1:]))
    runs = [p for p in device.precisions if not (portable and p in PACKED)]
    left = [p for p in (*wanted.precisions, *wanted.arithmetic) if p not in runs]
    known = replace(
        wanted,
        precisions=tuple(p for p in wanted.precisions if p not in left),
        arithmetic=tuple(p for p in wanted.arithmetic if p not in left),
    )
    lowers = bool(wanted.precisions) and not known.precisions
    if lowers and known.is_exact:
        others = sorted(DEVICES.usable().values(), key=lambda one: not one.is_here)
        having = [one.name for one in others if set(wanted.precisions) & set(one.precisions)]
        remedy = f"device={having[0]!r} has such kernels" if having else ""
        if set(wanted.precisions) & set(device.precisions):
            remedy = "leave portable out: its kernels are ONNX Runtime's own"
        asked = precision if isinstance(precision, str) else ", ".join(wanted.precisions)
        raise UsageError(
            f"precision = {asked!r} on {device.name}",
            expected="one that it has kernels for: exact" + "".join(f", {p}" for p in runs),
            remedy=remedy,
        )
    quiet = isinstance(precision, str) and not known.is_exact
    warnings = [f"{device.name} has no speed of its own for {', '.join(left)}: left out"] if left and not quiet else []
    return Choices(names, known), warnings
