"""Looks at the claims of operators that proofs use on whole grids: ``python -m benchmarks.claims``.

A proof for every size uses what declarations say of operators: that they move elements, are linear in an operand, walk
an axis, have ranks of their own. Before it does it looks at samples. Here the same claims are looked at on all
instances of each operator, level by level up to sizes of 4 and ranks of 4 as long as there are not too many, nor too
many choices that do not fit: a claim that holds on samples and not on the grid would be a hole in all proofs that use
it. Of operators whose attributes are seldom right where they are chosen one by one, as the sizes of a split, attributes
and ranks are those of samples, and all sizes are looked at with each.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, cast

import click
from rich.console import Console
from rich.progress import track
from rich.table import Table

from eqsat.errors import EqsatError, RuleError
from eqsat.language.declaration import OpSpec
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import DType, TensorType
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.typings import Typings
from eqsat.rewrites.proof.axes.claims import keeps_inside, works_along_axes
from eqsat.rewrites.proof.bounded import levels
from eqsat.rewrites.proof.integers.wrapping import holds_what_fits, keeps_zeros
from eqsat.rewrites.proof.naturality.claims import OperatorInstance, copies, is_linear, keeps_rank, looked_at_on
from eqsat.rewrites.proof.opaque.claims import follows_form
from eqsat.rewrites.proof.opaque.recurrent import sees_products
from eqsat.rewrites.proof.opaque.signatures import (
    has_ranks_of_form,
    keeps_shape,
    refuses_several_types,
    takes_several_types,
)
from eqsat.rewrites.proof.opaque.windows import has_value_everywhere, selects_of_any_type
from eqsat.rewrites.rules.parser import parse_rules

RESULT = Path(__file__).parent / "results" / "claims.json"
#: Operands and attributes of one operator that are chosen for a level; of nine operands most do not fit.
_CHOICES = 200_000
#: Samples that attributes are taken from where choosing them finds nothing, and the largest size beside them.
_SAMPLES, _LARGEST = 400, 4
CLAIMS: dict[str, Callable[[OpSpec], bool]] = {
    "moves elements": copies,
    "keeps the rank": keeps_rank,
    "keeps the shape": keeps_shape,
    "follows its index form": follows_form,
    "has the ranks of its form": has_ranks_of_form,
    "takes several element types": takes_several_types,
    "refuses several element types": refuses_several_types,
    "works along named axes": works_along_axes,
    "keeps axes inside": keeps_inside,
    "holds whole numbers that fit": holds_what_fits,
    "keeps zeros": keeps_zeros,
    "sees products of its inputs": sees_products,
    "has a value everywhere": has_value_everywhere,
    "selects in every element type": selects_of_any_type,
    **{f"is linear in operand {place}": partial(is_linear, place=place) for place in range(4)},
}


class Grid:
    """The instances of operators within bounds, and how far they go."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.reached: dict[str, tuple[int, int]] = {}
        self.sampled: dict[str, int] = {}
        self.counts: dict[str, int] = {}

    def instances(self, declared: OpSpec, rng: Random) -> list[OperatorInstance]:
        """The instances of one operator of each level that has no more than the most, and the first of the next."""
        return list(self._listed(declared.name))

    @cache  # noqa: B019 - one grid a process
    def _listed(self, name: str) -> tuple[OperatorInstance, ...]:
        declared = spec(name)
        count = declared.min_operands if declared.max_operands is not None else 2
        found = self._chosen(declared, count) or self._sized(declared, count)
        self.counts[name] = len(found)
        return tuple(found.values())

    def _chosen(self, declared: OpSpec, count: int) -> dict[Any, OperatorInstance]:
        """The instances whose attributes are chosen one by one, level by level."""
        found = dict[Any, OperatorInstance]()
        names = [f"x{k}" for k in range(count)]
        call = f"{declared.name}({', '.join([*names, *(['**a'] if declared.attrs else [])])})"
        try:
            (rule,) = parse_rules(f"one: {call} => identity({call})", declared.name, origin="candidate")
        except RuleError:  # of an operator that graphs hold in another form, as a split
            return found
        for level in levels(rule):
            typings = Typings(rule, level, 0, budget=_CHOICES)
            for bindings, _ in typings:
                if len(found) == self._most:
                    break
                shapes = [cast(Drawn, bindings.tensors[one]).type.static for one in names]
                attrs = dict(bindings.attrs.get("a", {}))
                found.setdefault((*shapes, written(attrs)), (shapes, attrs))
            if len(found) == self._most or typings.spent:
                break
            if found:
                self.reached[declared.name] = (level.side, level.deep)
        return found

    def _sized(self, declared: OpSpec, count: int) -> dict[Any, OperatorInstance]:
        """The instances with attributes and ranks of samples, side by side."""
        rng, found = Random(declared.name), dict[Any, OperatorInstance]()
        samples = [declared.drawn(rng, [None] * count, {}) for _ in range(_SAMPLES)]
        ranked = [([len(shape) for shape in one[0]], dict(one[1])) for one in samples if one is not None]
        profiles = {(*ranks, written(attrs)): (ranks, attrs) for ranks, attrs in ranked}
        left = _CHOICES
        for side in range(1, _LARGEST + 1):
            for key, (ranks, attrs) in profiles.items():
                for sizes in itertools.product(range(1, side + 1), repeat=sum(ranks)):
                    if max(sizes, default=1) < side:
                        continue
                    numbers = iter(sizes)
                    shapes = [tuple(itertools.islice(numbers, rank)) for rank in ranks]
                    if fits(declared, shapes, attrs):
                        found[(*shapes, key)] = (shapes, attrs)
                    left -= 1
                    if len(found) == self._most or not left:
                        return found
            self.sampled[declared.name] = side
        return found


def written(attrs: dict[str, Any]) -> str:
    """Attributes as text, the same for equal ones."""
    return json.dumps(attrs, sort_keys=True, default=str)


def fits(declared: OpSpec, shapes: list[Any], attrs: dict[str, Any]) -> bool:
    """True if an operator takes operands of these shapes, of the element types that it asks for or in float64."""
    kinds = [DType.of(declared.dtypes.get(place, DType.FLOAT64)) for place in range(len(shapes))]
    try:
        declared.result_types([TensorType(k, s) for k, s in zip(kinds, shapes, strict=True)], declared.complete(attrs))
    except EqsatError:
        return False
    return True


def verdicts(name: str, most: int | None) -> dict[str, Any]:
    """The claims that hold of one operator: on samples, or on its grid with how far that goes."""
    began = time.process_time()
    declared = spec(name)
    if most is None:
        return {"holds": sorted(_holding(declared))}
    grid = Grid(most)
    with looked_at_on(grid.instances):
        holds = sorted(_holding(declared))
    return {
        "holds": holds,
        "instances": grid.counts.get(name, 0),
        "reached": grid.reached.get(name, (0, 0)),
        "sampled": grid.sampled.get(name, 0),
        "seconds": round(time.process_time() - began, 2),
    }


def _holding(declared: OpSpec) -> Iterator[str]:
    for text, claim in CLAIMS.items():
        try:
            if claim(declared):
                yield text
        except (EqsatError, IndexError, LookupError):
            continue


def _told(record: dict[str, Any]) -> str:
    side, deep = record["reached"]
    return f"sizes up to {side}, {deep} at rank 4" if side else f"sizes up to {record['sampled']} of samples"


@click.command()
@click.argument("operators", nargs=-1)
@click.option("--most", default=1_000, show_default=True, help="Instances of one operator.")
@click.option("-o", "--output", type=click.Path(path_type=Path), default=RESULT, help=f"[{RESULT.name}]")
def main(operators: tuple[str, ...], most: int, output: Path) -> None:
    """Prints and writes which claims of OPERATORS, of all unless some are named, hold on samples and on grids."""
    names = [spec(name).name for name in operators]
    names = names or [name for name, one in OPS.items() if one.is_shipped and one.min_operands]
    context = multiprocessing.get_context("spawn")
    records = []
    with ProcessPoolExecutor(1, mp_context=context) as sampled, ProcessPoolExecutor(1, mp_context=context) as listed:
        ours = sampled.map(verdicts, names, [None] * len(names))
        theirs = listed.map(verdicts, names, [most] * len(names))
        pairs = zip(names, ours, theirs, strict=True)
        for name, one, other in track(pairs, "looking", len(names), console=Console(stderr=True)):
            lost = sorted(set(one["holds"]) - set(other["holds"]))
            # Of no instance nothing is said: attributes of this operator are too seldom right to be listed.
            refuted = lost if other["instances"] else []
            records.append({"operator": name, **other, "on samples": one["holds"], "on samples alone": refuted})
    wrong = [f"{record['operator']} {text}" for record in records for text in record["on samples alone"]]
    unlisted = [record["operator"] for record in records if not record["instances"]]
    far = Counter(_told(record) for record in records)
    told = {
        "operators": len(records),
        "claims": sum(len(record["on samples"]) for record in records),
        "instances": sum(record["instances"] for record in records),
        "most": most,
        "reached": dict(far.most_common()),
        "on samples alone": wrong,
        "without instances": unlisted,
    }
    output.write_text(json.dumps({**told, "records": records}, indent=1) + "\n")
    shown = Table("complete grid", "operators", title=f"{told['claims']} claims of {told['operators']} operators")
    for text, count in far.most_common():
        shown.add_row(text, str(count))
    Console().print(shown)
    Console().print(f"on samples alone: {', '.join(wrong) or 'none'}")
    Console().print(f"without instances: {', '.join(unlisted) or 'none'}")


if __name__ == "__main__":
    main()
