"""The options of a run that say what it minimises, on which device and in which states of values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eqsat.options import checks, choices
from eqsat.options.meanings import stated as _meaning

# A command line reads the options before it knows what to do: nothing heavy is imported here.
if TYPE_CHECKING:
    from eqsat.costs.devices.device import DeviceArgument
    from eqsat.costs.kernels.precision import PrecisionPolicy
    from eqsat.costs.model.asked import CostFunction
    from eqsat.costs.model.prices import Objective
    from eqsat.language.terms.state import State
    from eqsat.quantisation.forms import CalibrationArgument


@dataclass(frozen=True, kw_only=True)
class CostOptions:
    """The costs to minimise, the device, and the layouts and precisions to choose from."""

    device: DeviceArgument = field(
        default="onnxruntime-cpu",
        metadata=_meaning(
            checks.device,
            'the device whose costs count, "cuda" for the GPU that is here, or the path of a file of one\'s own',
            flag="--device",
            help="The device whose costs to minimise.",
            choices=choices.devices,
        ),
    )
    objective: Objective | None = field(
        default=None,
        metadata=_meaning(
            checks.objective,
            "the weights of the terms of the cost: time (seconds), flops, bytes, launches, weight_memory and "
            "peak_memory (bytes), error (relative); time alone if left out",
            since="explore",
            flag="--objective",
            kind="weights",
            choices=choices.terms,
            help="Term to minimise, with its weight; may be repeated.",
        ),
    )
    cost: CostFunction | None = field(
        default=None,
        metadata=_meaning(
            checks.called,
            "a function from an Application of one operator to its cost, in place of an objective",
            since="explore",
        ),
    )
    limits: Mapping[str, float | str] | None = field(
        default=None,
        metadata=_meaning(
            checks.limits,
            'the most of each term, such as {"peak_memory": "8 GB", "launches": 40}',
            flag="--limit",
            kind="limits",
            choices=choices.terms,
            help="Limit of a term, as launches=40; may be repeated.",
        ),
    )
    layouts: str | Sequence[str] = field(
        default="auto",
        metadata=_meaning(
            checks.layouts,
            'the layouts that values may be held in, "auto" for all that the device has kernels for',
            flag="--layouts",
            kind="layouts",
            help="Layouts that values may be held in.",
            choices=choices.layouts,
        ),
    )
    precision: str | PrecisionPolicy = field(
        default="exact",
        metadata=_meaning(
            checks.precision,
            '"exact", the model\'s element types, "tf32", "mixed", "int8", "int4", "float16", "bfloat16", or a policy',
            flag="--precision",
            help="Policy of precision.",
            choices=choices.precisions,
        ),
    )
    calibration: CalibrationArgument | None = field(
        default=None,
        metadata=_meaning(
            checks.calibration,
            "inputs that a lower precision is chosen and judged on: dicts of arrays by input name, one such dict, or "
            "the path of an .npz file or of a folder of .npy files",
            flag="--calibration",
            kind="data",
            help="Inputs that a lower precision is chosen and judged on: an .npz file, or a folder of .npy files.",
        ),
    )
    boundary: Mapping[str, State] | None = field(
        default=None,
        metadata=_meaning(
            checks.boundary,
            "the states of inputs and outputs that are not row-major in their own type",
            since="explore",
        ),
    )
