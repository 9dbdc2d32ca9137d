"""The record of a check: its regions, how each was checked, and the largest difference."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from eqsat.certify.compare import DRAWS
from eqsat.language.arithmetic.residues import PRIME
from eqsat.moved import FormerDict

#: How a region was checked.
Kind: TypeAlias = Literal["exact", "float64"]


@dataclass(frozen=True)
class CheckedRegion(FormerDict):
    """One checked region: the old values it makes, how it was checked, the largest difference, nodes (old, new)."""

    values: tuple[str, ...]
    kind: Kind
    error: float
    nodes: tuple[int, int]


@dataclass(frozen=True)
class Certificate:
    """The certificate of a result: how it was checked.

    `kind` is "identical" where nothing changed, "exact" or "float64" where all regions were checked so, else "mixed";
    `error` is the largest relative difference of any float64 check, folded constants included; each region saw `draws`
    draws (one if it is heavy) at each of `sizes`. `stated` is the largest relative difference of an output that other
    layouts and precisions made, None where there are none.
    """

    kind: str
    error: float
    regions: tuple[CheckedRegion, ...] = ()
    folded: int = 0
    draws: int = DRAWS
    sizes: tuple[Mapping[str, int], ...] = ()
    stated: float | None = None

    def __str__(self) -> str:
        states = "" if self.stated is None else f"; layouts and precisions move outputs by {self.stated:.1e} at most"
        if self.kind == "identical":
            return f"nothing changed{states}"
        exact = sum(r.kind == "exact" for r in self.regions)
        parts = [f"{exact} exact mod {PRIME}"] if exact else []
        if len(self.regions) > exact:
            parts.append(f"{len(self.regions) - exact} in float64")
        plural = "s" * (len(self.regions) != 1)
        text = f"{len(self.regions)} region{plural}: {', '.join(parts)}"
        if self.folded:
            text += f"; {self.folded} folded constants"
        return f"{text}; largest difference {self.error:.1e}{states}"
