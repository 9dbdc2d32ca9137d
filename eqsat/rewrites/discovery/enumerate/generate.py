"""Candidate rules by exhaustive enumeration of terms over typed inputs."""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from eqsat.errors import UsageError
from eqsat.language.declaration.trial import try_out
from eqsat.language.ops import spec
from eqsat.language.terms.types import DType
from eqsat.rewrites.discovery.enumerate.build import SpaceBuilder
from eqsat.rewrites.discovery.enumerate.count import Counting
from eqsat.rewrites.discovery.enumerate.domain import DOMAINS, Domain, domain
from eqsat.rewrites.discovery.enumerate.equate import TALLIES, TOLERANCE, Finder, Retest, TermEquation, generality
from eqsat.rewrites.discovery.enumerate.forms import attribute_settings, load_operators, taking_part
from eqsat.rewrites.discovery.enumerate.instances import SubsumptionIndex
from eqsat.rewrites.discovery.enumerate.space import Block, Level, Space
from eqsat.rewrites.discovery.enumerate.term import NAMES, Apply, size, text, variables, whole
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.journal import Arrays, Follow, Parts, finished, silent

#: Applications that one part of the work evaluates.
_PART = 250_000


@dataclass(frozen=True, slots=True)
class GenerationSettings:
    """The extent of generation: operators (all that take part where None), their largest number, named domains.

    `imports` names modules, or files, that declare operators. Results depend on nothing else.
    """

    ops: tuple[str, ...] | None = None
    max_ops: int = 3
    seed: int = 0
    domains: tuple[str, ...] = tuple(DOMAINS)
    imports: tuple[str, ...] = ()
    tolerance: float = TOLERANCE

    def operators(self) -> tuple[str, ...]:
        """The operators that take part; UsageError where one cannot."""
        load_operators(self.imports)
        if self.max_ops < 1:
            raise UsageError(f"at most {self.max_ops} operators", expected="1 operator or more")
        names = taking_part(self.ops)
        for name in names:
            try_out(spec(name))
        return names


@dataclass
class Generated:
    """Candidates, short ones first, the counts of every stage, and the seconds it took."""

    candidates: tuple[CandidateEquation, ...]
    counts: dict[str, Any]
    seconds: dict[str, float]


@dataclass
class _Run:
    settings: GenerationSettings
    executor: Executor | None
    progress: Follow
    parts: Parts
    instances: SubsumptionIndex = field(default_factory=SubsumptionIndex)
    seconds: dict[str, float] = field(default_factory=dict)
    domains: dict[str, Any] = field(default_factory=dict)

    @contextmanager
    def timed(self, stage: str) -> Iterator[None]:
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[stage] = self.seconds.get(stage, 0.0) + time.perf_counter() - begun


def generate(
    settings: GenerationSettings,
    *,
    executor: Executor | None = None,
    progress: Follow | None = None,
    resume: Path | None = None,
) -> Generated:
    """Every equation between terms of at most `max_ops` operators, as candidates; the same for any executor.

    Work is done in this process without an executor. `resume` is a folder that holds finished parts until the end.
    """
    names = settings.operators()
    chosen = [domain(d) for d in settings.domains]
    run = _Run(settings, executor, progress or silent, Parts(resume, _subject(settings, names, chosen)))
    equations: list[TermEquation] = []
    for one in chosen:
        equations.extend(_in_domain(run, one))
    with run.timed("order"):
        general = _general_first(equations)
        candidates = tuple(candidate(e, f"generated-{i}") for i, e in enumerate(general, start=1))
    run.parts.clear()
    return Generated(candidates, _counts(run, names, candidates), dict(run.seconds))


def _subject(settings: GenerationSettings, names: Sequence[str], chosen: Sequence[Domain]) -> str:
    """A digest of all that the evaluation of a part depends on."""
    stated: list[Any] = [settings.max_ops, settings.seed, chosen]
    for name in names:
        declared = spec(name)
        stated += [name, declared.reference.__code__.co_code.hex()]
        stated += [sorted((k, _stable(v)) for k, v in setting.items()) for setting in attribute_settings(declared)]
    return hashlib.blake2b(repr(stated).encode(), digest_size=8).hexdigest()


def _stable(value: Any) -> str:
    return str(value.__qualname__) if callable(value) else repr(value)


@lru_cache(maxsize=1)
def space_of(settings: GenerationSettings, name: str) -> tuple[SpaceBuilder, list[Level], list[Block]]:
    """A domain's space up to one operator less than asked for, and the applications that have as many as asked for."""
    names, chosen = settings.operators(), domain(name)
    left_out = chosen.without if settings.ops is None else ()
    builder = SpaceBuilder(Space(chosen, [n for n in names if n not in left_out], settings.seed))
    levels = [builder.build(k) for k in range(1, settings.max_ops)]
    return builder, levels, builder.blocks(settings.max_ops)


def evaluate_part(settings: GenerationSettings, name: str, start: int, stop: int) -> Arrays:
    """Fingerprints and codes of the applications of `max_ops` operators numbered from `start` to before `stop`.

    Runs in any process: the terms of fewer operators are made anew where they are not there yet.
    """
    builder, _, blocks = space_of(settings, name)
    hashes, codes = builder.space.fingerprints(start, stop, blocks)
    return {"hashes": hashes, "codes": codes}


def _in_domain(run: _Run, chosen: Domain) -> list[TermEquation]:
    settings = run.settings
    run.progress(f"{chosen.name}: building", 0, 1)
    with run.timed("build"):
        builder, levels, blocks = space_of(settings, chosen.name)
    total = blocks[-1].start + blocks[-1].count if blocks else 0
    starts = range(0, total, _PART)
    done = 0

    def advance(_: str) -> None:
        nonlocal done
        done += 1
        run.progress(f"{chosen.name}: evaluating", done, len(starts))

    place = list(settings.domains).index(chosen.name)
    tasks = [(f"{place}-{s}", (settings, chosen.name, s, min(s + _PART, total))) for s in starts]
    with run.timed("evaluate"):
        results = list(finished(run.parts, evaluate_part, tasks, run.executor, advance))
        hashes = np.concatenate([np.empty(0, np.uint64), *(m["hashes"] for m in results)])
        codes = np.concatenate([np.empty(0, np.int64), *(m["codes"] for m in results)])
        del results
    run.progress(f"{chosen.name}: comparing", 0, 1)
    levels = [*levels, Level(blocks, hashes, codes)]
    finder = Finder(builder, Retest(chosen.variables(), settings.seed, settings.tolerance), run.instances)
    with run.timed("compare"):
        equations = finder.leaves()
        for number, level in enumerate(levels, start=1):
            equations += finder.level(number, level)
            equations += finder.joints(level, settings.max_ops)
            finder.retest.forget()
    with run.timed("count"):
        types = [builder.space.types[builder.space.values[i].type] for i in builder.space.leaves]
        counting = Counting(builder.space.forms, types, len(chosen.variables()))
        counted = [counting.counted(k) for k in range(1, settings.max_ops + 1)]
    run.domains[chosen.name] = {
        "inputs": len(builder.space.leaves),
        "forms": len(builder.space.forms),
        "graphs": [c.graphs for c in counted],
        "terms": [c.terms for c in counted],
        "evaluated": [len(level.hashes) for level in levels],
        **{name: finder.tally[name] for name in TALLIES},
    }
    return equations


def _general_first(equations: list[TermEquation]) -> list[TermEquation]:
    """The equations without those that turned out to be instances of others, which a later level may hold."""
    single = sorted((e for e in equations if len(e.left) == 1), key=lambda e: generality(e.left[0], e.right[0]))
    instances, general = SubsumptionIndex(), []
    for equation in single:
        left, right = equation.left[0], equation.right[0]
        if not instances.cover(left, right):
            instances.add(left, right)
            general.append(equation)
    seen = set()
    for equation in equations:
        if len(equation.left) > 1:
            line = candidate(equation, "x")
            key = (line.left, line.right, tuple(map(len, line.shapes.values())))
            if key not in seen:
                seen.add(key)
                general.append(equation)
    return general


def candidate(equation: TermEquation, name: str) -> CandidateEquation:
    """The equation in the syntax of rules."""
    bound = variables(*equation.left)
    names = dict(zip(bound, NAMES, strict=False))
    if len(equation.left) > 1 and isinstance(equation.right[0], Apply):
        right: tuple[str, ...] = (whole(equation.right[0], names),)
    else:
        right = tuple(text(t, names) for t in equation.right)
    return CandidateEquation(
        name=name,
        left=tuple(text(t, names) for t in equation.left),
        right=right,
        shapes={names[v]: v.type.static for v in bound},
        left_ops=size(*equation.left),
        right_ops=size(*equation.right),
        fingerprint=f"{equation.fingerprint:016x}",
        lossy=equation.lossy,
        dtypes={names[v]: v.type.dtype.value for v in bound if v.type.dtype is not DType.FLOAT32},
    )


def _counts(run: _Run, names: Sequence[str], candidates: Sequence[CandidateEquation]) -> dict[str, Any]:
    sizes = Counter(max(c.left_ops, c.right_ops) for c in candidates)
    return {
        "operators": list(names),
        "max_ops": run.settings.max_ops,
        "seed": run.settings.seed,
        "domains": run.domains,
        "graphs": sum(sum(d["graphs"]) for d in run.domains.values()),
        "terms": sum(sum(d["terms"]) for d in run.domains.values()),
        "pairs": sum(d["pairs"] for d in run.domains.values()),
        "candidates": len(candidates),
        "sizes": {str(n): sizes[n] for n in sorted(sizes)},
        "single": sum(len(c.left) == 1 for c in candidates),
        "several": sum(len(c.left) > 1 for c in candidates),
        "lossy": sum(c.lossy > 0 for c in candidates),
    }
