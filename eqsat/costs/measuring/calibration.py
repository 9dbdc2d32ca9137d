"""A few operators of another environment's table measured here, by which its other times are scaled."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.bottleneck import WEIGHTS, bottleneck, constant_bytes
from eqsat.costs.kernels.fusion import FUSED
from eqsat.costs.kernels.key import OpKey
from eqsat.costs.measuring.measure import measure
from eqsat.costs.model.whole_graphs import WHOLE
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.table import CostTable
from eqsat.language.ops import OPS
from eqsat.system.deadline import TimeUp

#: Operators that are measured of each bottleneck: spread over those there are from the shortest to the longest.
EACH = 4
#: Operators that take longer, or have larger constants, are none of them.
_LONGEST_SECONDS, _LARGEST_BYTES = 4e-3, 32 << 20


def probes(there: Mapping[str, Entry], device: Device) -> tuple[OpKey, ...]:
    """The operators by which a table is scaled to another machine: of each bottleneck a few, one of each in turn.

    Those bound by their constants are spread by the bytes of these, others by their times.
    """
    groups: dict[str, list[tuple[float, str, OpKey]]] = {}
    for text in sorted(there):
        if text.startswith(WHOLE) or FUSED in text or there[text].seconds > _LONGEST_SECONDS:
            continue
        key = OpKey.parse(text)
        if key.op not in OPS or key.layouts or key.result or key.arithmetic or constant_bytes(key) > _LARGEST_BYTES:
            continue
        bound = bottleneck(key, device)
        size = float(constant_bytes(key)) if bound == WEIGHTS else there[text].seconds
        groups.setdefault(bound, []).append((size, text, key))
    return tuple(key for row in itertools.zip_longest(*map(_spread, groups.values())) for key in row if key is not None)


def _spread(group: list[tuple[float, str, OpKey]]) -> Iterator[OpKey]:
    """At most EACH of a group in equal distances, the longest among them first."""
    ranked = sorted(group, key=lambda one: one[:2])
    last = len(ranked) - 1
    places = dict.fromkeys(round(last * i / max(EACH - 1, 1)) for i in reversed(range(EACH)))
    yield from (ranked[place][2] for place in places)


def calibrate(
    table: CostTable,
    environment: Environment,
    keys: Sequence[OpKey],
    progress: Callable[[int, int], None],
    ended: Callable[[], bool],
) -> int:
    """Measure operators here for the scales of a table, and return the number that are left.

    They are kept as this environment's calibration, each as soon as it is measured, and are costs of nothing else.
    Before each, `progress` is told how many are done and how many there are, and `ended` is asked. An operator that
    ONNX Runtime refuses, or that there is no memory for, is passed over. CostError where the table cannot be written.
    """
    for done, key in enumerate(keys):
        if ended():
            return len(keys) - done
        progress(done, len(keys))
        try:
            entry = measure(key, threads=environment.threads)
        except TimeUp:
            raise
        except Exception:  # noqa: BLE001 - such as too little memory; the scales can do without one operator
            continue
        table.put(environment.calibration, key, entry)
    return 0
