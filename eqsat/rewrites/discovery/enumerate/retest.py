"""Second tests of equal fingerprints: fresh elements modulo the prime, and floats."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from eqsat.language.arithmetic.floats import Floats
from eqsat.language.ops import spec
from eqsat.language.terms.types import TensorType
from eqsat.rewrites.discovery.enumerate.arithmetic import ResidueArithmetic
from eqsat.rewrites.discovery.enumerate.term import Apply, InputVariable, Term

#: Largest difference of two sides in float32 on [-1, 1], relative to elements above 1.
TOLERANCE = 1e-5
_DRAWS = 2


class Retest:
    """A second evaluation of terms, on inputs that the fingerprints have not seen."""

    def __init__(self, variables: Sequence[TensorType], seed: int, tolerance: float = TOLERANCE) -> None:
        self.tolerance = tolerance
        self._residues = [ResidueArithmetic(seed + 1 + i) for i in range(_DRAWS)]
        self._floats = Floats()
        self._tables: list[dict[Term, list[Any]]] = [{} for _ in range(_DRAWS + 1)]
        rng = np.random.Generator(np.random.PCG64([seed, 11]))
        self._inputs: list[list[Any]] = [
            [a.draw(t, 1, i)[0] for i, t in enumerate(variables)] for a in self._residues
        ] + [[rng.uniform(-1, 1, t.static).astype(np.float32) for t in variables]]

    def differs(self, one: Term, other: Term) -> bool:
        """Return whether the two are different on fresh elements modulo the prime."""
        if one.type != other.type:
            return True
        return any(not np.array_equal(self._value(i, one), self._value(i, other)) for i in range(_DRAWS))

    def loss(self, one: Term, other: Term) -> float:
        """By how much the two differ in float32 on [-1, 1]; 0.0 where that is within the tolerance."""
        a, b = self._value(_DRAWS, one), self._value(_DRAWS, other)
        with np.errstate(invalid="ignore"):
            gap = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a.astype(np.float64) - b))
        gap = np.where(np.isnan(gap), np.inf, gap)
        scale = max(1.0, float(np.abs(a[np.isfinite(a)]).max(initial=0.0)))
        worst = float(gap.max(initial=0.0))
        return worst if worst > self.tolerance * scale else 0.0

    def forget(self) -> None:
        """Drop the results computed so far."""
        for table in self._tables:
            table.clear()

    def _value(self, draw: int, term: Term) -> Any:
        if isinstance(term, InputVariable):
            return self._inputs[draw][term.index]
        # Parts of one application are found under its first.
        table = self._tables[draw]
        key = term if not term.part else Apply(term.label, term.operands, term.type, 0, term.parts)
        if key not in table:
            operands = [self._value(draw, o) for o in term.operands]
            types = [o.type for o in term.operands]
            results = spec(term.label.op).result_types(types, term.label.attrs)
            if draw < _DRAWS:
                table[key] = self._residues[draw].one(term.label, types, results, operands)
            else:
                space = self._floats.namespace(list(types), list(results))
                made = spec(term.label.op).reference(space, *operands, **term.label.attrs)
                outputs = list(made) if isinstance(made, tuple) else [made]
                table[key] = [self._floats.finish(o, t) for o, t in zip(outputs, results, strict=True)]
        return table[key][term.part]
