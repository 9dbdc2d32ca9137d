"""Proofs of a rule for every size: its types and each of its elements on all paths through them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from operator import ge, le
from typing import Any

from eqsat.errors import EqsatError, GraphError
from eqsat.language.declaration import OpSpec
from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.parametric.arrays import IndexedArray
from eqsat.language.parametric.equality import Equality
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.functions import OutOfRange
from eqsat.language.parametric.integers import NotParametric, Unknown, formula_of, integer
from eqsat.language.parametric.namespace import Parametric
from eqsat.language.parametric.numbers import UnknownNumber
from eqsat.language.parametric.paths import SolverBudget, TooManyQuestions, current, explored, small_witness
from eqsat.language.parametric.standins import parametric_spec
from eqsat.language.parametric.sums.digits import positive_digits
from eqsat.language.terms import Attrs, Bindings, TensorType
from eqsat.language.terms.dims import Dim, evaluate
from eqsat.rewrites.conditions.expression import Undefined, typed_by
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.proof.attributes import MEMBERS, NoMatch, may_be_below_zero
from eqsat.rewrites.proof.axes.borders import outputs_inside
from eqsat.rewrites.proof.constants.elements import OF_ELEMENTS, elements_of, place_found
from eqsat.rewrites.proof.constants.operands import ElementsAsked, ParametricOperand
from eqsat.rewrites.proof.forms import FormWalk, refuse_identities, refuse_unsure
from eqsat.rewrites.proof.integers.results import StoredResults
from eqsat.rewrites.proof.naturality.proof import is_natural
from eqsat.rewrites.proof.opaque.borders import moves_pads, unpadded, with_border
from eqsat.rewrites.proof.opaque.claims import follows_form
from eqsat.rewrites.proof.opaque.recurrent import LENGTHS, recurrent_outputs, sees_products
from eqsat.rewrites.proof.opaque.types import OF_SHAPES, OpaqueTypes, OpaqueValue
from eqsat.rewrites.proof.opaque.values import opaque_output
from eqsat.rewrites.proof.ranks import sufficient_rank
from eqsat.rewrites.proof.scope import SizesProof
from eqsat.rewrites.proof.types import is_stood_for, refuse_inspected, widest_limits
from eqsat.rewrites.proof.windows.values import refuse_unplaced, window_output
from eqsat.rewrites.rules.rule import Rule, applications
from eqsat.rewrites.rules.term import Term, distinct, output_types, right_terms, types_of

#: What shape rules say where an operator takes operands of one element type, and has others.
_TYPES_DIFFER = "element types differ"
#: Why a proof ends of a rule of which all paths are known, up to the highest rank, and none of them matches.
NO_MATCH = "the left side matches at no rank that was tried"
#: How often Z3 is asked for the proof of a rule, and the rank that is the highest to try.
QUESTIONS, HIGHEST = 1_500, 4
#: The highest rank to try where it suffices.
_FURTHEST = 6
#: How many times as many questions a rule has with one more axis, at most, where it did not grow by less before: where
#: no budget lasts for them they are not begun.
_GROWTH = 8
#: How many times as many questions there are where operators are opaque, which are answered faster, where they move
#: windows, of which strides, pads and dilations may each be left out, and where the rank that suffices is known.
_MORE = 4


def prove_sizes(rule: Rule, questions: int = QUESTIONS, highest: int = HIGHEST) -> SizesProof:
    """A proof of a rule for every size: of every shape at once, else up to a rank that so many questions suffice for.

    >>> from eqsat.rewrites.rules.parser import parse_rules
    >>> (rule,) = parse_rules("turned: transpose(transpose(x, perm=p), perm=q) => transpose(x, perm=compose(p, q))")
    >>> prove_sizes(rule).every_rank
    True
    """
    if is_natural(rule):
        return SizesProof(highest, 1, every_rank=True, any_length=True)
    opaque = followed(rule)
    # Where less is looked at there are fewer paths: that comes first.
    known = prove_paths(rule, questions, highest, opaque) if opaque else None
    if known is not None and known.every_rank:
        return known
    found = prove_paths(rule, questions, highest)
    return found if known is None or (found.every_rank, found.rank) >= (known.every_rank, known.rank) else known


def prove_paths(
    rule: Rule, questions: int = QUESTIONS, highest: int = HIGHEST, opaque: frozenset[str] = frozenset()
) -> SizesProof:
    """A proof of a rule for every size, along each path, up to the highest rank that so many questions suffice for.

    Of operators that are `opaque` no more is used than their index form.
    """
    enough = sufficient_rank(rule, opaque)
    moves_windows = any(spec(name).windowed for name in rule.operators())
    found = SizesProof(-1, 0, open=NO_MATCH)
    last_rank = max(highest, enough) if enough is not None and highest >= HIGHEST and enough <= _FURTHEST else highest
    if (enough is not None and enough <= last_rank) or moves_windows or opaque:
        questions = max(questions, min(_MORE * questions, _MORE * QUESTIONS))
    count = 0
    with SolverBudget(questions) as asked:
        for rank in range(last_rank + 1):
            before = asked.count
            one = _proved_up_to(rule, rank, opaque)
            if not one.is_proved:
                return replace(found, open=one.open, instance=one.instance, failing=one.failing)
            # A scalar has no size: at rank 0 alone nothing is proved of any.
            found = one if one.matches and (rank or enough == 0) else found
            if enough is not None and rank >= enough and one.matches:
                return replace(one, every_rank=True)
            left, last, count = questions - asked.count, count, asked.count - before
            growth = min(count / last, _GROWTH) if last else _GROWTH
            if found.matches and left < growth * count and rank < last_rank:
                return replace(found, open=f"more than {questions} questions to Z3 at rank {rank + 1}")
    return found


def followed(rule: Rule) -> frozenset[str]:
    """The operators of the left side that a proof may take for what is said of them."""
    return frozenset(app.op for root in rule.roots for app in applications(root) if is_followed(spec(app.op)))


def is_followed(declared: OpSpec) -> bool:
    """True if a proof may take an operator for what is said of its axes, or of what it sees, alone."""
    return follows_form(declared) or sees_products(declared)


@dataclass(frozen=True)
class _Failure:
    """A path on which the sides could not be shown to be equal, and why."""

    reason: str
    bindings: Bindings


def _proved_up_to(rule: Rule, rank: int, opaque: frozenset[str]) -> SizesProof:
    """A proof at ranks up to one."""
    from z3 import Z3Exception

    interpretation = Parametric()
    matches = 0
    try:
        refuse_identities(rule)
        refuse_inspected(rule)
        for path, result in explored(lambda: _run(rule, rank, interpretation, opaque), {}):
            if isinstance(result, _Failure):
                instance = instance_of(result.bindings, small_witness(path))
                return SizesProof(-1, matches, open=result.reason, instance=instance, failing=True)
            matches += result
    except (NotParametric, TooManyQuestions) as error:
        return SizesProof(-1, matches, open=str(error))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, EqsatError, Z3Exception) as error:
        # A reference that does what arrays of unknown sizes do not, or refuses some sizes; or such a condition.
        return SizesProof(-1, matches, open=f"{type(error).__name__}: {error}")
    return SizesProof(rank, matches)


def _run(rule: Rule, rank: int, interpretation: Parametric, opaque: frozenset[str]) -> bool | _Failure:
    """True where the sides are equal on this path, false where there is no match."""
    typing = OpaqueTypes(opaque, moves_pads=moves_pads(rule))
    walk = FormWalk(rule, rank, typing)
    try:
        with typed_by(typing, {**OF_SHAPES, **OF_ELEMENTS}):
            left = walk.left()
            typing.is_left = False
            right = right_terms(rule, walk.bindings, typing)
    except NoMatch:
        return False
    except Undefined as error:
        refuse_unsure(error)
        return False
    except ElementsAsked as error:
        raise NotParametric(f"attributes of the elements of {error}") from None
    except GraphError as error:
        if walk.is_mixed and error.what.startswith(_TYPES_DIFFER):
            return False  # a rule does not fire where its right side does not type
        return _Failure(f"the right side does not type: {error.what}", walk.bindings)
    if output_types(left) != output_types(right):
        return _Failure(f"types differ: {_listed(left)} and {_listed(right)}", walk.bindings)
    if may_be_below_zero(_types_made(right), [*_types_made(left), *(one.type for one in walk.operands)]):
        return _Failure("the right side does not type: a dim below 0", walk.bindings)
    stored = StoredResults(rule, left, right, interpretation.elements)
    stored.refuse_unfollowed()
    if is_stood_for(rule, output_types(distinct([*left, *right]))):
        return False
    evaluation = _Evaluation(walk, interpretation, opaque, stored)
    if not evaluation.finds_all_that_it_gathers(left, right):
        return _Failure("the right side may gather what there is not", walk.bindings)
    for number, (ours, theirs) in enumerate(zip(evaluation.outputs(left), evaluation.outputs(right), strict=True)):
        if not _equal(number, ours, theirs, interpretation):
            return _Failure("elements were not shown to be equal", walk.bindings)
    return True


def _types_made(roots: list[Any]) -> list[TensorType]:
    """The types of all results of operators."""
    return [made for one in distinct(roots) if isinstance(one, Term) for made in one.types]


def instance_of(bindings: Bindings, witness: Mapping[str, int]) -> Bindings | None:
    """An instance, without elements, with a witness's numbers; None where an attribute not looked at has no default."""
    made: dict[int, Drawn] = {}
    lacking: list[OpaqueValue] = []

    def known(thing: Any) -> Any:
        if type(thing) is Unknown:
            return evaluate(thing.formula, witness)
        if type(thing) is UnknownNumber:
            return _SOME_NUMBER
        if isinstance(thing, OpaqueValue):
            lacking.extend([thing] if thing.default is REQUIRED else [])
            return thing.default
        if isinstance(thing, Attrs):
            return Attrs({name: known(value) for name, value in thing.items()})
        if isinstance(thing, tuple):
            return tuple(known(one) for one in thing)
        if isinstance(thing, ParametricOperand):
            if id(thing) not in made:
                made[id(thing)] = Drawn(
                    thing.name.replace("#", ""), TensorType(thing.type.dtype, known(thing.type.dims))
                )
            return made[id(thing)]
        return thing

    tensors = {name: known(thing) for name, thing in bindings.tensors.items()}
    attrs = {name: known(value) for name, value in bindings.attrs.items()}
    return None if lacking else Bindings(tensors, attrs)


#: The number that an attribute is in an instance which says nothing of it.
_SOME_NUMBER = 0.5


def _listed(terms: list[Any]) -> str:
    return ", ".join(map(str, output_types(terms)))


def _equal(number: int, ours: IndexedArray, theirs: IndexedArray, interpretation: Parametric) -> bool:
    """True if two arrays have equal elements at every index of this path."""
    path = current()
    formulas = [path.reduced(formula_of(dim)) for dim in ours.shape]
    if not all(path.decide(Fact.positive(formula)) for formula in formulas):
        return True  # there are no elements
    indices = []
    for axis, formula in enumerate(formulas):
        order = positive_digits(formula)[0]
        index: Dim = 0
        for place, below in enumerate(order):
            if below != 1:
                digit: Dim = path.unknown(f"index {number}.{axis}.{place}", 0, below)
                if len(order) > 1 and isinstance(below, int) and below <= MEMBERS:
                    # It is told apart which of a few parts it lies in.
                    digit = next((k for k in range(below - 1) if path.decide(Fact.equal(digit, k))), below - 1)
                index = index * below + digit
        indices.append(integer(index))
    at = tuple(indices)
    try:
        left, given = ours.defined_at(at)
    except OutOfRange:
        return True  # the left side fails where it runs, so that no graph has it
    try:
        right, asked = theirs.defined_at(at)
    except OutOfRange:
        return False
    equality = Equality(interpretation.elements)
    return equality.proved(left, right) and equality.is_defined(asked, given)


class _Evaluation:
    """The values of terms on one path."""

    def __init__(
        self, walk: FormWalk, interpretation: Parametric, opaque: frozenset[str], stored: StoredResults
    ) -> None:
        self._interpretation, self._opaque, self._stored = interpretation, opaque, stored
        self._moves_pads = moves_pads(walk.rule)
        self._known: dict[int, list[Any]] = {}
        elements = interpretation.elements
        elements.said, elements.index_bounds = {}, {}
        for name, statement in walk.said:
            elements.said.setdefault(name, []).append(statement)
        elements.ranges.of_operands, elements.ranges.of_types = {}, widest_limits(walk.rule)
        for operand in walk.operands:
            if operand.limits is not None:
                elements.ranges.of_operands[operand.name] = operand.limits
                least, most = operand.limits
                elements.said.setdefault(operand.name, []).extend([partial(le, least), partial(ge, most)])
            self._known[id(operand)] = [elements_of(operand, interpretation)]

    def outputs(self, terms: list[Any]) -> list[IndexedArray]:
        """All outputs of terms in order."""
        return [array for one in terms for array in self._values(one)]

    def finds_all_that_it_gathers(self, left: list[Any], right: list[Any]) -> bool:
        """True if each operator on the right that takes elements by index finds them where one on the left does.

        Such an operator runs as a whole, so that all its indices count, not only those whose elements are used: at an
        unknown index of the result those of the left side that have one there find an element, and then it has to.
        """
        asked = [one for one in distinct(right) if isinstance(one, Term) and spec(one.op).indexed]
        given = [one for one in distinct(left) if isinstance(one, Term) and spec(one.op).indexed]
        bounds = self._interpretation.elements.index_bounds
        for one in given:
            indexed, indices = one.operands[:2]
            if one.op == "gather" and isinstance(indices, ParametricOperand) and indexed is not None:
                dim = types_of([indexed])[0].dims[one.attrs["axis"]]  # type: ignore[union-attr]
                bounds.setdefault(indices.name, []).append(formula_of(dim))
        return all(self._finds(number, one, given) for number, one in enumerate(asked))

    def _finds(self, number: int, asked: Term, given: list[Term]) -> bool:
        path = current()
        dims = asked.types[0].dims
        if not all(path.decide(Fact.positive(path.reduced(formula_of(dim)))) for dim in dims):
            return False  # of nothing, indices may be any
        at = tuple(
            integer(path.unknown(f"gathered {number}.{axis}", 0, formula_of(dim))) for axis, dim in enumerate(dims)
        )
        try:
            for one in given:
                if one.types[0].dims == dims:
                    self._values(one)[0].at(at)
        except OutOfRange:
            return True
        try:
            self._values(asked)[0].at(at)
        except OutOfRange:
            return False
        return True

    def _opaque_values(self, one: Term, operands: list[Any], types: list[TensorType | None]) -> list[Any]:
        elements, declared, attrs = self._interpretation.elements, spec(one.op), one.attrs
        if declared.form is not None:
            if self._moves_pads:
                operands = with_border(elements, declared, attrs, operands, types)
                attrs, types = unpadded(declared, attrs, types)
            return [opaque_output(elements, one.op, attrs, operands, types, one.type)]
        lengths = one.operands[LENGTHS] if len(one.operands) > LENGTHS else None
        number = lengths.everywhere if isinstance(lengths, ParametricOperand) else None
        return list(recurrent_outputs(elements, one.op, one.attrs, operands, one.types, number))

    def _looked_into(self, one: Term, operands: list[Any], types: list[TensorType | None]) -> list[Any]:
        interpretation, attrs = self._interpretation, self._stored.written(one)
        sums = window_output(interpretation.elements, spec(one.op), attrs, operands, types, one.type)
        if sums is not None:
            return [sums]
        return outputs_inside(interpretation, one.op, attrs, operands, types, one.types, parametric_spec(one.op))

    def _values(self, one: Term | ParametricOperand) -> list[Any]:
        if id(one) not in self._known and isinstance(one, Term):
            operands = [None if o is None else self._values(o)[0] for o in one.operands]  # type: ignore[arg-type]
            types = types_of(one.operands)
            found = place_found(self._interpretation, one)
            if found is not None:
                self._known[id(one)] = [found]
                return self._known[id(one)]
            refuse_unplaced(spec(one.op), one.attrs, types)
            if one.op in self._opaque:
                made = self._opaque_values(one, operands, types)
            else:
                made = self._looked_into(one, operands, types)
            self._known[id(one)] = self._stored.held(one, made)
        return self._known[id(one)]
