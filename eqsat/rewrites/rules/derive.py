"""Laws that follow from how operators are declared, and those that declarations state."""

from __future__ import annotations

import linecache
from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import cache

from eqsat.errors import RuleError
from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.declaration.spec import OpSpec
from eqsat.language.ops import OPS
from eqsat.rewrites.conditions.syntax import TOO_LARGE
from eqsat.rewrites.rules.parser import parse_rules, rule_sources
from eqsat.rewrites.rules.rule import Rule
from eqsat.rewrites.rules.ruleset import RuleSource
from eqsat.rewrites.schemas.affine import affine_laws
from eqsat.rewrites.schemas.axes import axis_laws
from eqsat.rewrites.schemas.constants import constant_laws
from eqsat.rewrites.schemas.linear import linear_laws
from eqsat.rewrites.schemas.operator import Operator, Statement
from eqsat.rewrites.schemas.parallel import parallel_laws
from eqsat.rewrites.schemas.pointwise import broadcasting_laws, pointwise_laws
from eqsat.rewrites.schemas.products import product_laws
from eqsat.rewrites.schemas.quantised import quantised_laws
from eqsat.rewrites.schemas.rows import row_laws
from eqsat.rewrites.schemas.spellings import spelling_laws

#: The published laws that each derived law states, by its name.
PUBLISHED: dict[str, tuple[int, ...]] = {
    "factor": (5, 7),
    "factor-difference": (5, 7),
    "mul-associates": (3,),
    "mul-constant-last": (3, 8),
    "mul-over-add": (5,),
    "mul-over-add-of-constants": (5, 7),
    "muls-merge": (3, 6),
    "conv-of-scaled-left": (12,),
    "conv-scaled": (13,),
    "conv-over-add-right": (17,),
    "conv-distributes-right": (17,),
    "conv-over-add-left": (18,),
    "conv-distributes-left": (18,),
    "sum-of-convs": (19,),
    "conv-of-concats": (19,),
    "concat-of-conv-along-n": (23,),
    "conv-over-concat-along-n": (23,),
    "convs-merge-along-n": (23,),
    "convs-merge-along-n-with-bias": (23,),
    "concat-of-conv-along-o": (24,),
    "conv-over-concat-along-o": (24,),
    "convs-merge-along-o": (24,),
    "convs-merge-along-o-with-bias": (24,),
    "matmul-of-scaled-left": (10,),
    "matmul-of-scaled-right": (10,),
    "matmul-of-quotient-left": (10,),
    "matmul-of-quotient-right": (10,),
    "sum-of-matmuls": (20,),
    "matmul-of-concats": (20,),
    "matmul-of-concat-and-one": (20,),
    "matmul-associates": (25,),
    "concat-of-matmul-along-n": (28,),
    "matmul-over-concat-along-n": (28,),
    "matmuls-merge-along-n": (28,),
    "matmul-over-add-left": (29,),
    "matmul-over-add-right": (29,),
    "matmul-distributes-left": (29,),
    "matmul-distributes-right": (29,),
    "matmul-over-sub-left": (29,),
    "matmul-over-sub-right": (29,),
    "transpose-of-matmul": (31,),
    "matmul-of-turned": (31,),
    "concat-of-avg_pool-along-n": (36,),
    "avg_pool-over-concat-along-n": (36,),
    "concat-of-avg_pool-along-c": (36,),
    "avg_pool-over-concat-along-c": (36,),
    "concat-of-max_pool-along-n": (37,),
    "max_pool-over-concat-along-n": (37,),
    "concat-of-max_pool-along-c": (38,),
    "max_pool-over-concat-along-c": (38,),
}


def derived_laws(specs: Iterable[OpSpec] | None = None) -> tuple[Rule, ...]:
    """The laws that index form, multilinear, pointwise and commutative imply, for all operators or those given.

    >>> from eqsat.language.ops import spec
    >>> [r.name for r in derived_laws([spec("sqrt")])][:2]
    ['concat-of-sqrt', 'sqrt-over-concat']
    """
    return tuple(one.rule for one in derived_sources(_chosen(specs)))


def derived_sources(specs: Iterable[OpSpec]) -> Iterator[RuleSource]:
    """The same laws, to be read when they are asked for."""
    for spec in specs:
        yield from rule_sources(_derived(spec), f"derived from {spec.name}", origin="derived")


def spellings(operators: Iterable[str]) -> tuple[Rule, ...]:
    """The laws that say which spellings of attributes mean the same, for those of these operators that ship.

    >>> [r.name for r in spellings(["slice"])]
    ['slice-default-steps', 'slice-axes-from-the-left']
    """
    return tuple(rule for name in sorted(operators) if OPS[name].is_shipped for rule in _spellings(name))


@cache
def _spellings(name: str) -> tuple[Rule, ...]:
    text = "\n".join(f"{one.name}: {one.text}" for one in spelling_laws(OPS[name]))
    return parse_rules(text, f"spellings of {name}", origin="derived")


def stated_laws(specs: Iterable[OpSpec] | None = None) -> tuple[Rule, ...]:
    """The laws that declarations state in so many words, for all operators or those given.

    A law may begin with a name of its own; its reason is that the declaration states it.
    """
    return tuple(rule for spec in _chosen(specs) for rule in _stated(spec))


def statements(spec: OpSpec) -> Iterator[Statement]:
    """The laws that one declaration implies, in the syntax of rules."""
    if spec.random:
        return
    yield from pointwise_laws(spec)
    yield from broadcasting_laws(spec)
    yield from linear_laws(spec)
    yield from quantised_laws(spec)
    if spec.form is None:
        return
    op = Operator(spec, spec.form)
    yield from product_laws(op)
    if not spec.pointwise:
        yield from constant_laws(op)
        yield from row_laws(op)
        yield from parallel_laws(op)
        yield from axis_laws(op)
        yield from affine_laws(op)


def _chosen(specs: Iterable[OpSpec] | None) -> tuple[OpSpec, ...]:
    return tuple(OPS.values()) if specs is None else tuple(specs)


def _derived(spec: OpSpec) -> str:
    """The laws that one declaration implies, as the text of rules."""
    lines: list[str] = []
    for statement in statements(spec):
        numbers = statement.laws or PUBLISHED.get(statement.name, ())
        laws = f" (laws {', '.join(map(str, numbers))})" if numbers else ""
        lines += [f"%phase {statement.phase}", f"{statement.name}{laws}: {statement.text}"]
    return "\n".join(lines)


def _stated(spec: OpSpec) -> Iterator[Rule]:
    """The laws of one declaration, named after the operator where they have no name; they run in "expand"."""
    for number, text in enumerate(spec.laws, start=1):
        source, head = f"{spec.name}, law {number}", f"{spec.name}-law-{number}: "
        try:
            rules = parse_rules(f"%phase expand\n{head}{text}", source, origin="axiom")
        except RuleError as error:
            if error.what.endswith(TOO_LARGE) and function_of(spec.name) is not None:
                continue  # what a text is written as may be longer than rules are; it takes part without
            column = int(error.where.rpartition(":")[2]) - len(head)
            raise RuleError(
                f"{source}: {error.what}",
                where=_place(spec.where, text, column),
                expected=error.expected,
                remedy=error.remedy or f"correct laws= where {spec.name!r} is declared",
            ) from None
        yield from (replace(rule, reason=f"the declaration of {spec.name} states it") for rule in rules)


def _place(where: str, text: str, column: int) -> str:
    """File, line and column of a law's text in the declaration that states it, or in the text where it is not found."""
    path, _, first = where.rpartition(":")
    lines = linecache.getlines(path)
    # A declaration is placed at its reference, which stands below the decorator that states the laws.
    for line in sorted(range(len(lines)), key=lambda n: abs(n + 1 - int(first or 0))):
        start = lines[line].find(text)
        if start >= 0:
            return f"{path}:{line + 1}:{start + max(column, 1)}"
    return f"{where}, column {max(column, 1)} of {text!r}"
