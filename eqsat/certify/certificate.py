"""Certification by induction over claimed equalities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from eqsat.certify.compare import DRAWS, EXACT_ELEMENTS, agree_exactly, float_difference
from eqsat.certify.cone import Cone, positions
from eqsat.certify.folding import folded_error
from eqsat.certify.record import Certificate, CheckedRegion, Kind
from eqsat.errors import CertificateError, UncheckedError
from eqsat.language.ops import spec
from eqsat.language.ops.nn.endings import with_activations_apart
from eqsat.language.sizes.solve import sizing_of
from eqsat.language.terms import OPAQUE, Constant, DType, Graph, TensorType
from eqsat.system.deadline import check as check_time

#: A region of more arithmetic operations than this is drawn once: one draw errs with a probability of some 1e-5.
HEAVY = 2 * 10**7
#: Relative difference (of Euclidean norms) that float64 arithmetic in another order may leave.
TOLERANCE = 1e-8
#: The same in graphs of narrower floats, whose constants are rounded themselves: a rule that knows 0.70710677 for the
#: root of 1/2 means that root, and its right side differs by a few units of float32.
ROUNDED = 5e-7

#: Regions with a tensor of more elements than this are not run: several copies of it would take gigabytes.
LARGEST = 1 << 27
#: Depth of unclaimed values to which two expressions are compared node by node.
_DEPTH = 50

Pair = tuple[str, str]


@dataclass
class _Check:
    old: Graph
    new: Graph
    claims: Mapping[str, Sequence[str]]
    sizes: Sequence[Mapping[str, int]]
    seed: int
    folded: Graph
    old_positions: dict[str, int] = field(default_factory=dict)
    new_positions: dict[str, int] = field(default_factory=dict)
    settled: set[Any] = field(default_factory=set)

    def claimed(self, value: str) -> bool:
        return bool(self.claims.get(value))


def certify(
    old: Graph,
    new: Graph,
    folded: Graph,
    claims: Mapping[str, Sequence[str]],
    *,
    sizes: Sequence[Mapping[str, int]] = ({},),
    seed: int = 0,
) -> Certificate:
    """Check that `new` computes what `old` does, and that `folded` is `new` with its constants evaluated.

    `claims` maps values of the new graph to the values of the old one they are said to equal. Every claim is checked,
    those about inputs too: taking the new graph's values in order, one that applies the same operator to operands
    claimed equal follows from those claims, and any other is compared on random data. `sizes` are assignments of the
    named dims to check at. CertificateError names the value or the constant that differs, and by how much.
    """
    _check_folding(new, folded)
    old, new = (with_activations_apart(g, lambda n: f"{n.outputs[0]} before its activation") for g in (old, new))
    check = _Check(old, new, claims, sizes, seed, folded, positions(old), positions(new))
    _check_inputs(check)
    pending: list[Pair] = [(i, t) for i in new.inputs for t in claims.get(i, ()) if t != i]
    for value in (*new.constants, *(o for n in new.nodes for o in n.outputs)):
        check_time()
        same = _equal_constants if value in new.constants else _same_node
        pending += [(value, t) for t in claims.get(value, ()) if not same(check, value, t)]
    pending += [
        (value, old.outputs[name])
        for name, value in new.outputs.items()
        if not _equal(check, value, old.outputs[name]) and (value, old.outputs[name]) not in pending
    ]
    regions = [_check_region(check, group) for group in _grouped(check, pending)]
    error, count = folded_error(new, folded, check.new_positions)
    kinds = {r.kind for r in regions}
    kind = "identical" if not kinds else kinds.pop() if len(kinds) == 1 else "mixed"
    largest = max([error, *(r.error for r in regions)])
    return Certificate(kind, largest, tuple(regions), folded=count, sizes=tuple(sizes))


def assignments(graph: Graph, sizes: Mapping[str, int] | None = None) -> list[dict[str, int]]:
    """Assignments of a graph's named dims to check at: one of distinct sizes, near those given, and the smallest.

    Each is one that the operators accept; one empty assignment where there are no named dims. UncheckedError where none
    is known.
    """
    several = sizing_of(graph).several(sizes)
    if not several:
        raise UncheckedError(
            "no sizes of its named dims are known that all operators accept",
            where=graph.name,
            expected="sizes at which no tensor has a negative dim",
            remedy="say some: sizes={...}, or --size NAME=NUMBER",
        )
    return several


def _check_folding(new: Graph, folded: Graph) -> None:
    """CertificateError where `folded` is more than `new` with some of its values made constants."""
    nodes = {n.outputs: n for n in new.nodes}
    computed = {o for n in new.nodes for o in n.outputs}
    same = (folded.inputs, dict(folded.outputs)) == (new.inputs, dict(new.outputs))
    same = same and all(nodes.get(n.outputs) == n for n in folded.nodes)
    if same and all(v in computed or new.constants.get(v) is c for v, c in folded.constants.items()):
        return
    raise CertificateError(
        "the folded graph is another than the one that was chosen",
        where=new.name,
        expected="the same nodes, but for those that only constants decide",
        remedy="the original is unchanged; report this model",
    )


def _check_inputs(check: _Check) -> None:
    """CertificateError where two inputs are claimed to be one; a caller may feed them anything."""
    for name in check.new.inputs:
        other = next((t for t in check.claims.get(name, ()) if t != name and t in check.old.inputs), None)
        if other is not None:
            raise CertificateError(
                f"inputs {name!r} and {other!r} are taken for one",
                where=check.old.name,
                expected="claims that hold whatever a caller feeds",
                remedy="the original is unchanged; one of the rules that fired is unsound, or its conditions too weak",
                pairs=((name, other),),
            )


def _same_node(check: _Check, value: str, target: str, depth: int = 0) -> bool:
    """Return whether both values are the same output of one operator over operands claimed equal."""
    new, old = check.new.producers.get(value), check.old.producers.get(target)
    if new is None or old is None or (new.op, new.attrs) != (old.op, old.attrs):
        return False
    if len(new.inputs) != len(old.inputs) or new.outputs.index(value) != old.outputs.index(target):
        return False
    return all(_equal(check, a, b, depth) for a, b in zip(new.inputs, old.inputs, strict=True))


def _equal(check: _Check, a: str | None, b: str | None, depth: int = 0) -> bool:
    """Return whether two values are claimed equal, are one constant or input, or are made alike without a claim."""
    if a is None or b is None:
        return a is b
    if _equal_constants(check, a, b):
        return True
    if check.claimed(a):
        return b in check.claims[a]
    if a == b and a in check.new.inputs and b in check.old.inputs:
        return True
    return depth < _DEPTH and _same_node(check, a, b, depth + 1)


def _equal_constants(check: _Check, a: str, b: str) -> bool:
    one, two = check.new.constants.get(a), check.old.constants.get(b)
    if one is None or two is None:
        return False
    return one is two or (one.type == two.type and one.digest == two.digest)


def _grouped(check: _Check, pairs: Sequence[Pair]) -> list[list[Pair]]:
    """Claims whose regions in the new graph overlap, together, so that shared values are computed once.

    Values derived from constants alone join nothing: it costs little, and many regions share an epsilon.
    """
    group_of: dict[str, int] = {}
    leader = list(range(len(pairs)))
    derived = _derived(check.new)

    def find(index: int) -> int:
        while leader[index] != index:
            leader[index] = leader[leader[index]]
            index = leader[index]
        return index

    for index, pair in enumerate(pairs):
        check_time()
        cone = Cone(check.new, check.new_positions, [pair[0]], check.claimed)
        results = [o for n in cone.nodes for o in n.outputs if o and o not in derived]
        for value in results:
            leader[find(group_of.setdefault(value, index))] = index
    groups: dict[int, list[Pair]] = {}
    for index, pair in enumerate(pairs):
        groups.setdefault(find(index), []).append(pair)
    return list(groups.values())


def _derived(graph: Graph) -> set[str]:
    """The values that constants alone decide."""
    derived = set(graph.constants)
    for node in graph.nodes:
        if node.op != OPAQUE and all(v is None or v in derived for v in node.inputs):
            derived |= set(node.outputs)
    return derived


def _check_region(check: _Check, pairs: Sequence[Pair]) -> CheckedRegion:
    """Check claims on the smallest region that decides them, widened towards the inputs until one does."""
    opened: set[str] = set()
    tolerance = _tolerance(check, pairs)

    def closed(value: str) -> bool:
        return value not in opened and check.claimed(value)

    while True:
        check_time()
        new = Cone(check.new, check.new_positions, [a for a, _ in pairs], closed)
        targets = {t: v for v in sorted(new.leaves) for t in check.claims.get(v, (v,))}
        old = Cone(check.old, check.old_positions, [b for _, b in pairs], targets.__contains__)
        # Inputs that the new region no longer reads are the same in both graphs.
        targets |= {v: v for v in sorted(old.leaves) if v in check.old.inputs and v in check.new.inputs}
        inner = {v for v in new.leaves if v in check.new_positions}
        outcome: tuple[Kind, float] | None = None
        if all(v in targets for v in old.leaves) and not new.opaque and not old.opaque:
            _check_sizes(check, (old, new))
            outcome = _compare(check, old, new, targets, widest=not inner)
            if outcome is not None and outcome[1] <= tolerance:
                return CheckedRegion(
                    tuple(sorted({b for _, b in pairs})), *outcome, nodes=(len(old.nodes), len(new.nodes))
                )
        if not inner:
            raise _mismatch(check, pairs, outcome, tolerance)
        opened |= inner


def _check_sizes(check: _Check, cones: Sequence[Cone]) -> None:
    """UncheckedError for a region with a tensor too large to compute here several times over."""
    for cone in cones:
        for node in cone.nodes:
            for value in node.outputs:
                type = cone.graph.type(value)
                if isinstance(type, TensorType) and type.shape is not None:
                    count = max(type.elements(sizes) for sizes in check.sizes)
                    if count > LARGEST:
                        raise UncheckedError(
                            f"{value!r} has {count} elements, too many to check what changed around it",
                            where=check.old.name,
                            expected=f"at most {LARGEST}",
                        )


def _tolerance(check: _Check, pairs: Sequence[Pair]) -> float:
    types = [check.old.type(b) for _, b in pairs]
    return TOLERANCE if any(isinstance(t, TensorType) and t.dtype is DType.FLOAT64 for t in types) else ROUNDED


def _mismatch(
    check: _Check, pairs: Sequence[Pair], outcome: tuple[Kind, float] | None, tolerance: float
) -> CertificateError:
    names = ", ".join(repr(b) for _, b in pairs[:3])
    if outcome is None:
        return UncheckedError(
            f"{names} cannot be checked",
            where=check.old.name,
            expected="regions that random data can be run through, with some finite result",
        )
    return CertificateError(
        f"{names} differ from the original by {outcome[1]:.1e}",
        where=check.old.name,
        expected=f"a relative difference of at most {tolerance:.0e} in float64 on random data",
        remedy="the original is unchanged; one of the rules that fired is unsound, or its conditions are too weak",
        pairs=tuple(pairs),
    )


def _compare(
    check: _Check, old: Cone, new: Cone, targets: Mapping[str, str], widest: bool
) -> tuple[Kind, float] | None:
    """The kind of check a region passed and its error; None where random data cannot decide."""
    key = _form(check, old, new, targets)
    if key in check.settled:
        return "exact", 0.0
    graphs = old.subgraph, new.subgraph
    # Arithmetic modulo a prime knows nothing of infinities and NaN, neither given nor derived.
    finite = all(c.is_finite for g in graphs for c in g.constants.values())
    constants = [check.folded.constants.get(o) for n in new.nodes for o in n.outputs]
    finite = finite and all(c is None or c.is_finite for c in constants)
    draws = DRAWS if max(map(_work, graphs)) <= HEAVY else 1
    if finite and all(agree_exactly(*graphs, targets, sizes, check.seed, draws) for sizes in check.sizes):
        check.settled.add(key)
        return "exact", 0.0
    errors = [float_difference(*graphs, targets, sizes, check.seed, draws, widest) for sizes in check.sizes]
    known = [e for e in errors if e is not None]
    return ("float64", max(known)) if known else None


def _work(graph: Graph) -> int:
    """Arithmetic operations of a region of static shapes; 0 where it has named dims, which are checked small."""
    total: Any = 0
    for node in graph.nodes:
        declared = spec(node.op)
        types = [graph.type(v) if v is not None else None for v in node.inputs]
        outputs = [v for v in node.outputs if v]
        results = [t for t in map(graph.type, outputs) if isinstance(t, TensorType)]
        if declared.flops is not None and all(v is None or _is_ranked(graph.type(v)) for v in (*node.inputs, *outputs)):
            total = total + declared.flops(
                [t if isinstance(t, TensorType) else None for t in types], results, node.attrs
            )
    return total if isinstance(total, int) else 0


def _is_ranked(type: object) -> bool:
    return isinstance(type, TensorType) and type.shape is not None


def _form(check: _Check, old: Cone, new: Cone, targets: Mapping[str, str]) -> Any:
    """A key equal for regions of equal form over equally typed values.

    An exact check of one settles all: it draws the large weights at random; small constants are in the key.
    """
    numbers: dict[Any, int] = {}

    def name(side: str, value: str | None, graph: Graph) -> Any:
        if value is None:
            return None
        constant = graph.constants.get(value)
        if constant is not None:
            shown: Any = constant.digest if _keeps_value(constant) else constant.type
            return numbers.setdefault(id(constant), len(numbers)), shown
        if side == "old" and value in old.leaves:
            side, value, graph = "new", targets[value], check.new
        return numbers.setdefault((side, value), len(numbers)), graph.type(value)

    def rows(side: str, cone: Cone) -> Any:
        graph = cone.graph
        return tuple(
            (n.op, n.attrs, *(tuple(name(side, v, graph) for v in vs) for vs in (n.inputs, n.outputs)))
            for n in cone.nodes
        )

    body = rows("new", new), rows("old", old)
    return (
        body,
        tuple(name("new", v, check.new) for v in new.values),
        tuple(name("old", v, check.old) for v in old.values),
    )


def _keeps_value(constant: Constant) -> bool:
    count = int(np.prod(constant.type.static, dtype=np.int64))
    return count <= EXACT_ELEMENTS or not constant.type.dtype.is_float
