"""Index forms: which axes of its operands an operator walks in step, an einsum-like signature from which laws derive.

A form has a term for each operand and, after ``->``, one for the result: ``"... m k, ... k n -> ... m n"``. In a term
stand, axis by axis,

* a name; one that operands share is walked in step, one that the result lacks is summed over;
* ``g*c``, an axis that c groups of g make up, the group being the slow part;
* ``h@r``, an axis read at places that depend on h of the result and on the offset r;
* ``[m n]``, axes whose elements are computed from one another;
* ``h...``, ``h@r...``, any number of such axes, and a bare ``...`` any number that broadcast;
* ``{axis}`` behind ``...``: those of its axes that an attribute names, in the result computed from one another, or gone
  where the result lacks it; ``{axis:}`` the axes from the one named on; ``1`` an axis of one element.

``+`` before a term marks an operand that is added to the result, ``^trans_a`` behind it axes that are reversed where
the attribute is true. Clauses follow after ``;``: ``g = group`` says that an attribute counts g, ``linear if
activation = none`` under which attributes the operator is linear where its declaration lists it as multilinear,
``reads axes`` that it computes with the size of an axis, so that no sum over it can be cut.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType

from eqsat.errors import GraphError

_TOKEN = re.compile(r"\s*(?:(?P<many>\.\.\.)|(?P<name>[a-z][a-z_0-9]*)|(?P<one>1)|(?P<mark>->|[-+*@\[\]{}:,;^=]))")


@dataclass(frozen=True, slots=True)
class Index:
    """One axis of a term, or any number of them.

    `group` is the slow part of a grouped axis, `window` the offset at which it is read; `many` stands for any number of
    axes, `mixed` for one whose elements are computed from one another. The name of a bare ``...`` is ``"..."``.
    """

    name: str
    group: str = ""
    window: str = ""
    many: bool = False
    mixed: bool = False

    @property
    def plain(self) -> bool:
        """True for an axis that is walked as it stands: one, no window, not mixed."""
        return not (self.window or self.many or self.mixed)


@dataclass(frozen=True, slots=True)
class IndexTerm:
    """The axes of an operand or of the result.

    `attribute` names those of a bare ``...`` that are set apart, with `tail` all from it on; `turned` is the attribute
    that reverses the axes; `added` marks an addend of the result.
    """

    indices: tuple[Index, ...]
    attribute: str = ""
    tail: bool = False
    turned: str = ""
    added: bool = False

    @property
    def fixed(self) -> int:
        """The least rank: how many axes there are besides those that stand for any number."""
        return sum(not i.many for i in self.indices)

    @property
    def open(self) -> bool:
        """True where the rank is not fixed."""
        return any(i.many for i in self.indices)

    @property
    def broadcasts(self) -> bool:
        """True where leading axes broadcast."""
        return bool(self.indices) and self.indices[0].name == "..."

    def position(self, name: str) -> int | None:
        """Where an index of this name stands among the axes; None where there is none."""
        return next((k for k, i in enumerate(self.indices) if i.name == name), None)


@dataclass(frozen=True)
class IndexForm:
    """A parsed index form.

    `sizes` maps a group to the attribute that counts it, `linear_if` gives the attributes under which the operator is
    linear, `reads` the indices or attributes of axes whose sizes enter the computation.
    """

    text: str
    terms: tuple[IndexTerm, ...]
    result: IndexTerm
    sizes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    linear_if: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))
    reads: frozenset[str] = frozenset()

    @cached_property
    def operands(self) -> tuple[IndexTerm, ...]:
        """The terms of the operands that are not merely added."""
        return tuple(t for t in self.terms if not t.added)

    @cached_property
    def additions(self) -> tuple[IndexTerm, ...]:
        """The terms of addends of the result."""
        return tuple(t for t in self.terms if t.added)

    @property
    def windowed(self) -> bool:
        """True where an axis is read at offsets."""
        return any(i.window for t in self.terms for i in t.indices)

    @property
    def turns(self) -> bool:
        """True where an attribute reverses the axes of an operand."""
        return any(t.turned for t in self.terms)

    def holders(self, name: str) -> tuple[int, ...]:
        """The operands, without addends, that have an index of this name."""
        return tuple(k for k, t in enumerate(self.operands) if t.position(name) is not None)

    def parallel(self) -> tuple[Index, ...]:
        """The axes of the result each of whose places is computed from the same places of the operands alone."""
        return tuple(i for i in self.result.indices if i.name != "1" and self._walked(i.name))

    def contracted(self) -> tuple[Index, ...]:
        """The axes of the first operand that the result lacks and that are summed over in step."""
        first = self.operands[0].indices
        gone = (i for i in first if self.result.position(i.name) is None and i.name not in self.reads)
        return tuple(i for i in gone if self._walked(i.name))

    def _walked(self, name: str) -> bool:
        uses = [i for t in (*self.terms, self.result) for i in t.indices if i.name == name]
        return all(i.plain for i in uses)


def parse_form(text: str, operator: str, place: str = "") -> IndexForm:
    """The form a text states; GraphError names operator and column of the fault.

    >>> parse_form("... m k, ... k n -> ... m n", "matmul").contracted()
    (Index(name='k', group='', window='', many=False, mixed=False),)
    """
    return _Reader(text, operator, place).form()


def pointwise_form(operands: int) -> str:
    """The index form of an operator that acts on each element of its broadcast operands alone.

    >>> pointwise_form(2)
    '..., ... -> ...'
    """
    return ", ".join(["..."] * operands) + " -> ..."


def check_form(form: IndexForm, operator: str, attributes: Mapping[str, object], least: int, most: int | None) -> None:
    """GraphError where a form does not fit its operator: the number of its terms, or an attribute it names."""
    terms = len(form.operands), len(form.terms)
    if terms[0] != least or (most is not None and terms[1] > most):
        raise GraphError(
            f"the index form of {operator!r} has {terms[0]} terms and {terms[1] - terms[0]} added ones",
            where=form.text,
            expected=f"a term for each of the {least} operands that are always there, '+' before those of the others",
        )
    named = {t.attribute for t in (*form.terms, form.result)} | {t.turned for t in form.terms}
    for name in sorted((named | {*form.sizes.values(), *form.linear_if}) - {""}):
        if name not in attributes:
            raise GraphError(
                f"the index form of {operator!r} names no attribute: {name!r}",
                where=form.text,
                expected="one of " + (", ".join(attributes) or "none"),
            )


class _Reader:
    """A reader of a form from left to right."""

    def __init__(self, text: str, operator: str, place: str) -> None:
        self.text, self.operator, self.outer = text, operator, place
        self.tokens: list[tuple[str, str, int]] = []
        at = 0
        while text[at:].strip():
            token = _TOKEN.match(text, at)
            if token is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise self.error(
                    f"{text[at]!r} has no meaning", at, "names, '...', '1' and the marks + * @ [ ] { } ^ ;"
                )
            kind = token.lastgroup or ""
            self.tokens.append((kind, token[kind], token.start(kind)))
            at = token.end()
        self.next = 0

    def form(self) -> IndexForm:
        terms = [self.term()]
        while self.taken(","):
            terms.append(self.term())
        arrow = self.place
        self.demand("->", "',' and one more term, or '->' and the term of the result")
        result = self.term()
        clauses = _Clauses()
        while self.taken(";"):
            self.clause(clauses)
        if self.next < len(self.tokens):
            raise self.error(f"{self.word!r} after the result", self.place, "';' and a clause, or the end")
        self.check(terms, result, clauses, arrow)
        return IndexForm(
            self.text,
            tuple(terms),
            result,
            MappingProxyType(clauses.sizes),
            MappingProxyType(clauses.linear_if),
            frozenset(clauses.reads),
        )

    def term(self) -> IndexTerm:
        added = self.taken("+")
        indices: list[Index] = []
        attribute, tail, turned = "", False, ""
        while self.kind in ("many", "name", "one") or self.word in ("[", "{"):
            if self.taken("{"):
                attribute = self.name("an attribute that names axes")
                tail = self.taken(":")
                self.demand("}", "'}' or ':}'")
            elif self.taken("["):
                while self.word != "]":
                    indices.append(self.index(mixed=True))
                self.next += 1
            else:
                indices.append(self.index())
        if self.taken("^"):
            turned = self.name("the attribute that reverses the axes")
        return IndexTerm(tuple(indices), attribute, tail, turned, added)

    def index(self, mixed: bool = False) -> Index:
        if self.kind == "many":
            self.next += 1
            return Index("...", many=True, mixed=mixed)
        if self.kind == "one":
            self.next += 1
            return Index("1", many=self.many(), mixed=mixed)
        name, group, window = self.name("the name of an index"), "", ""
        if self.taken("*"):
            group, name = name, self.name("the fast part of a grouped axis")
        if self.taken("@"):
            window = self.name("the offset of a window")
        return Index(name, group, window, self.many(), mixed)

    def many(self) -> bool:
        """True if dots follow without a space."""
        if self.kind != "many" or self.text[self.place - 1].isspace():
            return False
        self.next += 1
        return True

    def clause(self, clauses: _Clauses) -> None:
        start = self.place
        name = self.name("a clause: 'g = group', 'linear if …' or 'reads …'")
        if name == "linear":
            if self.name("'if'") != "if":
                raise self.error("'linear' without a condition", start, "linear if attribute = value")
            attribute = self.name("an attribute")
            self.demand("=", "'=' and a value")
            value = self.name("a value")
            clauses.linear_if[attribute] = {"true": True, "false": False}.get(value, value)
        elif name == "reads":
            clauses.reads.append(self.name("an index, or an attribute that names axes"))
        else:
            self.demand("=", "'=' and the attribute that counts the group")
            clauses.sizes[name] = self.name("the attribute that counts the group")

    def check(self, terms: list[IndexTerm], result: IndexTerm, clauses: _Clauses, arrow: int) -> None:
        for term in (*terms, result):
            names = [i.name for i in term.indices if i.name != "1"]
            twice = next((n for n in names if names.count(n) > 1), None)
            if twice is not None:
                raise self.error(f"{twice!r} stands twice in one term", self.find(twice), "an index once a term")
            if sum(i.many for i in term.indices) > 1:
                raise self.error("a term with two runs of axes", arrow, "one '...' a term")
        if all(term.added for term in terms):
            raise self.error("every operand is merely added", 0, "a term without '+' before it")
        known = {i.name for t in terms if not t.added for i in t.indices} | {"1"}
        for index in result.indices:
            if index.name not in known:
                place = self.find(index.name, arrow)
                raise self.error(
                    f"the result has {index.name!r}, which no operand has", place, "an index of an operand"
                )
        groups = {i.group for t in terms for i in t.indices}
        for group in clauses.sizes:
            if group not in groups:
                raise self.error(f"{group!r} is no group", self.find(group, arrow), f"an axis written {group}*c")

    def find(self, name: str, start: int = 0) -> int:
        return next((at for _, word, at in self.tokens if word == name and at >= start), start)

    @property
    def kind(self) -> str:
        return self.tokens[self.next][0] if self.next < len(self.tokens) else ""

    @property
    def word(self) -> str:
        return self.tokens[self.next][1] if self.next < len(self.tokens) else ""

    @property
    def place(self) -> int:
        return self.tokens[self.next][2] if self.next < len(self.tokens) else len(self.text)

    def taken(self, mark: str) -> bool:
        if self.word != mark or self.kind != "mark":
            return False
        self.next += 1
        return True

    def demand(self, mark: str, expected: str) -> None:
        if not self.taken(mark):
            raise self.error(self.found(), self.place, expected)

    def name(self, expected: str) -> str:
        if self.kind != "name":
            raise self.error(self.found(), self.place, expected)
        self.next += 1
        return self.tokens[self.next - 1][1]

    def found(self) -> str:
        return f"{self.word!r} is out of place" if self.word else "the form ends early"

    def error(self, what: str, at: int, expected: str) -> GraphError:
        outer = f"{self.outer}: " if self.outer else ""
        return GraphError(
            what,
            where=f"{outer}index form of {self.operator!r}, column {at + 1}",
            expected=expected,
            remedy=f"{self.text}\n  {' ' * at}^",
        )


@dataclass
class _Clauses:
    sizes: dict[str, str] = field(default_factory=dict)
    linear_if: dict[str, object] = field(default_factory=dict)
    reads: list[str] = field(default_factory=list)
