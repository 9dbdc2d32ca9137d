"""The attributes that a left side leaves open: all values that they may have beside operands of some types."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

from eqsat.language.declaration import OpSpec
from eqsat.language.parametric.facts import Fact, least_of
from eqsat.language.parametric.integers import NotParametric, formula_of, integer
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.paths import current
from eqsat.language.terms import TensorType
from eqsat.language.terms.dims import Atom, Dim, Sym
from eqsat.rewrites.conditions.syntax import conjuncts
from eqsat.rewrites.proof.opaque.windows import has_usual
from eqsat.rewrites.rules.rule import Rule

#: The most members of a sequence, and the most parts that one operand is split into.
MEMBERS = 2
#: The axes before those of space, batches or filters and channels, and the least rank of an operand that has both.
AXES_BEFORE_SPACE = 2
_SPATIAL = AXES_BEFORE_SPACE + 1


class NoMatch(Exception):  # noqa: N818 - nothing is wrong
    """Leaves a path on which the left side does not type, or a condition does not hold."""


def chosen(options: Sequence[Any], name: str) -> Any:
    """One of some options, each of which another path takes."""
    path = current()
    if len(options) > 1:
        number = path.unknown(f"choice of {name}", 0, len(options))
        for place in range(len(options) - 1):
            if path.decide(Fact.equal(number, place)):
                return options[place]
    return options[-1]


def size(name: str, least: int = 1) -> Any:
    """An unknown size of at least some number."""
    return integer(current().unknown(name, least))


def refuse_empty(types: Sequence[TensorType]) -> bool:
    """NoMatch where a result has no elements, of which proofs say nothing; true where the path did not know before."""
    path = current()
    known = len(path.facts)
    for dim in (dim for one in types for dim in one.dims):
        formula = path.reduced(formula_of(dim))
        # The larger of 0 and a number is above 0 where the number is.
        if not all(path.decide(Fact.positive(one)) for one in positive_parts(formula)):
            raise NoMatch("a result without elements")
    return len(path.facts) > known


def may_be_below_zero(types: Iterable[TensorType], known: Iterable[TensorType]) -> bool:
    """True if a dim is a number below 0 on this path, which some shape rules do not refuse; none of known types is."""
    path = current()
    seen = {path.reduced(formula_of(dim)) for one in known for dim in one.dims}
    found = dict.fromkeys(path.reduced(formula_of(dim)) for one in types for dim in one.dims)
    asked = [one for one in found if one not in seen and not _is_plainly_natural(one)]
    return not all(path.decide(Fact.positive(one + 1)) for one in asked)


def _is_plainly_natural(formula: Dim) -> bool:
    """True of a formula that is seen to be 0 or above it without a question."""
    if least_of(formula, current().least) >= 0:
        return True
    terms = formula.terms if isinstance(formula, Sym) else ()
    return bool(terms) and all(factor > 0 and all(_is_natural(atom) for atom, _ in one) for one, factor in terms)


def _is_natural(atom: Atom) -> bool:
    if isinstance(atom, str):
        return current().least.get(atom, -1) >= 0
    name, *parts = atom
    if name == "max":
        return any(map(_is_plainly_natural, parts))
    return name in ("min", "floordiv") and all(map(_is_plainly_natural, parts))


def positive_parts(formula: Dim) -> list[Dim]:
    """The formulas that are all above 0 exactly where one is, without the larger of 0 and a number."""
    if isinstance(formula, Sym) and len(formula.terms) == 1:
        ((monomial, factor),) = formula.terms
        if factor == 1 and len(monomial) == 1 and monomial[0][1] == 1 and not isinstance(monomial[0][0], str):
            name, a, b = monomial[0][0]
            if name == "max" and 0 in (a, b):
                return positive_parts(b if a == 0 else a)
            if name == "min":
                return [*positive_parts(a), *positive_parts(b)]
    return [formula]


class FreeAttributes:
    """The attributes that a left side leaves open, by what values they may have beside operands of some types."""

    def __init__(
        self,
        declared: OpSpec,
        types: Sequence[TensorType],
        known: dict[str, Any],
        name: str,
        most_rank: int,
        element_types: Sequence[str],
        stated: Mapping[str, Sequence[Any]] = MappingProxyType({}),
        unread: Collection[str] = (),
    ) -> None:
        self.declared, self.types, self.known, self.name, self.most_rank = declared, types, known, name, most_rank
        self.element_types, self.stated = element_types, stated
        #: Attributes that nothing but the operator looks at.
        self.unread = unread

    def value(self, attribute: str) -> Any:
        """The value of an attribute: a known one, or one of all that there may be."""
        if attribute not in self.known:
            rule: Callable[[str], Any] | None = getattr(self, f"_{attribute}", None)
            default = self.declared.attrs[attribute]
            if attribute in self.stated:
                self.known[attribute] = chosen(self.stated[attribute], f"{self.name} {attribute}")
            elif rule is not None:
                self.known[attribute] = rule(f"{self.name} {attribute}")
            elif isinstance(default, float):
                self.known[attribute] = UnknownNumber.named(f"{self.name} {attribute}")
            elif isinstance(default, bool):
                self.known[attribute] = chosen([False, True], f"{self.name} {attribute}")
            else:
                raise NotParametric(f"attribute {attribute} of {self.declared.name}")
        return self.known[attribute]

    @property
    def _rank(self) -> int:
        if not self.types:
            raise NotParametric(f"attributes of {self.declared.name} without operands")
        return self.types[0].rank

    def _axis(self, name: str) -> int:
        count = self._rank + self.declared.adds_axis
        if not count:
            raise NoMatch(f"{self.declared.name} of a scalar")
        return int(chosen(range(count), name))

    def _axes(self, name: str) -> tuple[int, ...]:
        subsets = [s for n in range(self._rank + 1) for s in itertools.permutations(range(self._rank), n)]
        return tuple(chosen(subsets, name))

    def _perm(self, name: str) -> tuple[int, ...]:
        return tuple(chosen(list(itertools.permutations(range(self._rank))), name))

    def _shape(self, name: str) -> tuple[Any, ...]:
        rank = chosen(range(self.most_rank + 1), f"rank of {name}")
        return tuple(size(f"{name}.{axis}") for axis in range(rank))

    def _starts(self, name: str) -> tuple[Any, ...]:
        return tuple(size(f"{name}.{place}", 0) for place in range(len(self.value("axes"))))

    def _steps(self, name: str) -> tuple[Any, ...]:
        count = len(self.value("axes"))
        if chosen([True, False], f"{name} left out"):
            return ()
        return tuple(self._step(f"{name}.{place}") for place in range(count))

    def _step(self, name: str) -> Any:
        return size(name) if chosen([True, False], f"{name} forward") else -size(name)

    def _ends(self, name: str) -> tuple[Any, ...]:
        steps = self.value("steps") or (1,) * len(self.value("axes"))
        return tuple(size(f"{name}.{i}", 0 if bool(step > 0) else -1) for i, step in enumerate(steps))

    def _sizes(self, name: str) -> tuple[Any, ...]:
        count = chosen(range(1, MEMBERS + 1), f"parts of {name}")
        return tuple(size(f"{name}.{place}") for place in range(count))

    def _repeats(self, name: str) -> tuple[Any, ...]:
        return tuple(size(f"{name}.{axis}") for axis in range(self._rank))

    def _pads(self, name: str) -> tuple[Any, ...]:
        if self.declared.windowed or "strides" in self.declared.attrs:
            return self._spatial(name, 0, 2)
        return tuple(_any(f"{name}.{place}") for place in range(2 * self._rank))

    def _spatial(self, name: str, least: int, times: int = 1) -> tuple[Any, ...]:
        """One size for each axis of space, or so many, or none at all, which is what operators take for the usual."""
        if self._rank < _SPATIAL:
            raise NoMatch(f"{self.declared.name} without axes of space")
        # Of what is left out there is no path of its own where it is as if the usual were written.
        if not self._is_usual(name) and chosen([True, False], f"{name} left out"):
            return ()
        return tuple(size(f"{name}.{place}", least) for place in range(times * (self._rank - AXES_BEFORE_SPACE)))

    def _is_usual(self, name: str) -> bool:
        attribute = name.removeprefix(f"{self.name} ")
        return attribute in self.unread and has_usual(self.declared, attribute)

    def _strides(self, name: str) -> tuple[Any, ...]:
        return self._spatial(name, 1)

    _dilations = _strides

    def _output_padding(self, name: str) -> tuple[Any, ...]:
        return self._spatial(name, 0)

    def _kernel(self, name: str) -> tuple[Any, ...]:
        if not self.types and self.declared.generated:
            most = self.most_rank - AXES_BEFORE_SPACE
            if most < 0:
                raise NoMatch(f"{self.declared.name} of a rank above {self.most_rank}")
            count = chosen(range(most + 1), f"axes of {name}")
            return tuple(size(f"{name}.{place}") for place in range(count))
        if self._rank < _SPATIAL:
            raise NoMatch(f"{self.declared.name} without axes of space")
        return tuple(size(f"{name}.{place}") for place in range(self._rank - AXES_BEFORE_SPACE))

    def _group(self, name: str) -> Any:
        return size(name)

    _groups = _blocksize = _channels = _p = _group

    def _activation(self, name: str) -> str:
        return str(chosen(["none", "relu"], name))

    def _value(self, name: str) -> Any:
        return UnknownNumber.named(name)

    def _scale(self, name: str) -> Any:
        return chosen([None, UnknownNumber.named(name)], name)

    def _k(self, name: str) -> Any:
        return _any(name)

    def _n(self, name: str) -> Any:
        return size(name)

    def _mode(self, name: str) -> str:
        if self.declared.name != "pad":
            raise NotParametric(f"attribute mode of {self.declared.name}")
        return str(chosen(["constant", "edge", "reflect", "wrap"], name))

    def _direction(self, name: str) -> str:
        return str(chosen(["forward", "reverse", "bidirectional"], name))

    def _clip(self, name: str) -> Any:
        return chosen([None, UnknownNumber.named(name)], name)

    def _alphas(self, name: str) -> tuple[Any, ...]:
        """A number for each activation that is named, or none at all."""
        numbers = tuple(UnknownNumber.named(f"{name}.{place}") for place in range(len(self.value("activations"))))
        return tuple(chosen([(), numbers], name)) if numbers else ()

    _betas = _alphas

    def _layout(self, name: str) -> int:
        return int(chosen([0, 1], name))

    def _to(self, name: str) -> str:
        return str(chosen(self.element_types, name))

    _dtype = _to

    def _hidden(self, name: str) -> str:
        return str(chosen(["zero", "nan", "none"], name))

    def _approximate(self, name: str) -> str:
        return str(chosen(["none", "tanh"], name))


def lacks_axes(declared: OpSpec, names: Sequence[str], rank: int) -> bool:
    """True if attributes that are left open are of an axis, or of axes of space, that a rank does not have."""
    of_space = bool({"strides", "dilations", "kernel"} & set(names)) and rank < _SPATIAL
    return of_space or ("axis" in names and not rank and not declared.adds_axis)


def _any(name: str) -> Any:
    """An unknown number, also below 0."""
    current().anywhere(name)
    return integer(Sym.named(name))


@cache
def stated_values(rule: Rule, record: str) -> Mapping[str, Sequence[Any]]:
    """The values of attributes of a record, by their names, for which all conditions may hold: texts, tuples, None.

    Numbers are left out, as what is equal to one may be of another type, and so are parts of conditions.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: gru(x, w, r, **a) => x if a.clip is None, a.layout == 0", origin="candidate")
    >>> stated_values(rule, "a")
    {'clip': (None,)}
    """
    found: dict[str, Sequence[Any]] = {}
    for condition in rule.conditions:
        for part in conjuncts(condition.tree):
            if not (isinstance(part, ast.Compare) and len(part.ops) == 1 and _is_of(part.left, record)):
                continue
            values = _values(part.ops[0], part.comparators[0])
            if values and all(map(_is_plain, values)):
                found.setdefault(part.left.attr, values)  # type: ignore[attr-defined]
    return found


def _is_of(tree: ast.expr, record: str) -> bool:
    return isinstance(tree, ast.Attribute) and isinstance(tree.value, ast.Name) and tree.value.id == record


def _values(operation: ast.cmpop, tree: ast.expr) -> tuple[Any, ...]:
    try:
        stated = ast.literal_eval(tree)
    except ValueError:
        return ()
    if isinstance(operation, ast.In):
        return tuple(dict.fromkeys(stated)) if isinstance(stated, tuple) else ()
    if isinstance(operation, ast.Eq) or (isinstance(operation, ast.Is) and stated is None):
        return (stated,)
    return ()


def _is_plain(value: Any) -> bool:
    """True of what is equal to nothing but itself."""
    return value is None or isinstance(value, str) or (isinstance(value, tuple) and all(map(_is_plain, value)))


@cache
def stated_formulas(rule: Rule, name: str) -> tuple[ast.expr, ...]:
    """The formulas that conditions say an attribute with a name of its own is equal to.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("r: reshape(x, shape=s) => x if s == shape(x)", origin="candidate")
    >>> [ast.unparse(one) for one in stated_formulas(rule, "s")]
    ['shape(x)']
    """
    found = []
    for part in (part for condition in rule.conditions for part in conjuncts(condition.tree)):
        if isinstance(part, ast.Compare) and len(part.ops) == 1 and isinstance(part.ops[0], ast.Eq):
            sides = (part.left, part.comparators[0])
            found += [b for a, b in (sides, sides[::-1]) if isinstance(a, ast.Name) and a.id == name]
    return tuple(found)
