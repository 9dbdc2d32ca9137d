"""Costs borrowed from another environment: its entries, scaled by the kernels that were measured in both."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property

import numpy as np

from eqsat.costs.devices.device import Device
from eqsat.costs.kernels.bottleneck import WEIGHTS, bottleneck, constant_bytes
from eqsat.costs.kernels.fusion import FUSED, FusedKey
from eqsat.costs.kernels.key import OpKey, is_on_integers
from eqsat.costs.model.whole_graphs import WHOLE
from eqsat.costs.table.entry import Entry
from eqsat.costs.table.environment import Environment
from eqsat.costs.table.nearest import nearest
from eqsat.costs.table.table import CostTable

#: The resolution of a measurement: shorter times are taken for this long, so that ratios exist.
_LEAST_SECONDS = 1e-9


def _is_lent(text: str) -> bool:
    """Return whether an entry of one processor says anything of another."""
    return not text.startswith(WHOLE) and not is_on_integers(text)


class Borrowed(Mapping[str, Entry]):
    """The entries of `source`, another environment, by the text of their keys, each scaled to this one when read.

    A scale is the median of here/there over the kernels with the same bottleneck that were measured in both, or over
    all of them where none has it; 1 where no kernel was measured in both. `scales` has those that are known.
    """

    def __init__(
        self, device: Device, source: Environment, there: Mapping[str, Entry], here: Mapping[str, Entry]
    ) -> None:
        self.device, self.source = device, source
        #: The entries as they were measured there.
        self.unscaled = {text: entry for text, entry in there.items() if _is_lent(text)}
        #: The entries that were measured here.
        self.here = {text: entry for text, entry in here.items() if _is_lent(text)}
        self._scaled: dict[str, Entry] = {}

    @classmethod
    def of(
        cls, table: CostTable, device: Device, environment: Environment, *, anywhere: bool = False
    ) -> Borrowed | None:
        """The entries of the nearest environment; None where there is none.

        Nor are there any for a GPU: where it has none of its own, the table's environment is another's.

        With `anywhere` they are the same on any machine: neither their choice nor a scale depends on this one.
        """
        source = None if device.gpu else nearest(table, environment, anywhere=anywhere)
        if source is None:
            return None
        return cls(device, source, table.entries(source), {} if anywhere else table.measured_here(environment))

    def scaled(self, here: Mapping[str, Entry]) -> Borrowed:
        """The same entries, scaled by others that were measured here."""
        return Borrowed(self.device, self.source, self.unscaled, here)

    @cached_property
    def _ratios(self) -> Mapping[str, list[float]]:
        """By bottleneck, here/there of the kernels that were measured in both."""
        ratios: dict[str, list[float]] = {}
        for text in sorted(self.unscaled.keys() & self.here.keys()):
            if FUSED not in text:
                here, there = (max(e.seconds, _LEAST_SECONDS) for e in (self.here[text], self.unscaled[text]))
                ratios.setdefault(bottleneck(OpKey.parse(text), self.device), []).append(here / there)
        return ratios

    @cached_property
    def scales(self) -> Mapping[str, float]:
        """By bottleneck, how many times as long kernels take here."""
        return {name: float(np.median(self._ratios[name])) for name in sorted(self._ratios)}

    def missed(self) -> list[float]:
        """The factors by which scaled times miss those that were measured here, each by a scale of the others alone."""
        factors = []
        for ratios in self._ratios.values():
            for place, ratio in enumerate(ratios):
                others = ratios[:place] + ratios[place + 1 :]
                if others:
                    factors.append(math.exp(abs(math.log(ratio / float(np.median(others))))))
        return factors

    @cached_property
    def _other_scale(self) -> float:
        return float(np.median(list(self.scales.values()))) if self.scales else 1.0

    @cached_property
    def _warmth(self) -> float | None:
        """The median of hot/cold over kernels bound by their constants here; None where none is known."""
        ratios = [
            entry.hot / max(entry.seconds, _LEAST_SECONDS)
            for text, entry in self.here.items()
            if entry.hot is not None and FUSED not in text and bottleneck(OpKey.parse(text), self.device) == WEIGHTS
        ]
        return float(np.median(ratios)) if ratios else None

    def __getitem__(self, text: str) -> Entry:
        if text not in self._scaled:
            self._scaled[text] = self._scale(text, self.unscaled[text])
        return self._scaled[text]

    def __iter__(self) -> Iterator[str]:
        return iter(self.unscaled)

    def __len__(self) -> int:
        return len(self.unscaled)

    def __contains__(self, text: object) -> bool:
        return text in self.unscaled

    def beside(self, own: Mapping[str, Entry]) -> Mapping[str, Entry]:
        """These entries, and those of the environment's own in the place of the same keys."""
        return _Beside(own, self)

    @property
    def description(self) -> str:
        """The environment that the entries come from, and their scales, as one line."""
        return f"{self.source.cpu}, {self.source.runtime}, {self.factors}"

    @property
    def factors(self) -> str:
        """The scales as text."""
        scales = ", ".join(f"{name} {scale:.2g}" for name, scale in self.scales.items())
        return f"times {scales}" if scales else "not scaled"

    def _scale(self, text: str, entry: Entry) -> Entry:
        if not self.scales:
            return entry
        key = FusedKey.parse(text).members[0] if FUSED in text else OpKey.parse(text)
        bound = bottleneck(key, self.device)
        scale = self.scales.get(bound, self._other_scale)
        hot = None if entry.hot is None else scale * entry.hot
        if hot is None and bound == WEIGHTS and self._warmth is not None and constant_bytes(key):
            hot = scale * entry.seconds * min(self._warmth, 1.0)
        return replace(entry, seconds=scale * entry.seconds, p10=scale * entry.p10, p90=scale * entry.p90, hot=hot)


class _Beside(Mapping[str, Entry]):
    """Entries with others beside them, for keys that the first lack; read one at a time, since most never are."""

    def __init__(self, first: Mapping[str, Entry], others: Mapping[str, Entry]) -> None:
        self._first, self._others = first, others

    def __getitem__(self, text: str) -> Entry:
        entry = self._first.get(text)
        return self._others[text] if entry is None else entry

    def __contains__(self, text: object) -> bool:
        return text in self._first or text in self._others

    def __iter__(self) -> Iterator[str]:
        yield from self._first
        yield from (text for text in self._others if text not in self._first)

    def __len__(self) -> int:
        return len(self._first.keys() | self._others.keys())
