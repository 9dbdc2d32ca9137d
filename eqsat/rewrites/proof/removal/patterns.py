"""Frames of the patterns of a rule, by the index forms of operators."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import replace
from typing import TypeAlias

from eqsat.language.declaration import OpSpec
from eqsat.language.declaration.indices import IndexTerm
from eqsat.language.declaration.spec import REQUIRED
from eqsat.language.ops import spec
from eqsat.language.terms.pattern import ABSENT, App, Pattern, Siblings, Spread, Var
from eqsat.rewrites.proof.opaque.ranks import own_ranks, possible_ranks
from eqsat.rewrites.proof.removal.calls import CALLS
from eqsat.rewrites.proof.removal.frames import PRODUCTS, SCALAR, Frame, Frames, NotRemovable, Untyped
from eqsat.rewrites.proof.removal.sorts import NUMBER, Sort, Sorts, is_of_numbers
from eqsat.rewrites.proof.removal.statements import RankStatements
from eqsat.rewrites.rules.rule import Rule, applications

#: The frame of a pattern, and the operands on whose sizes its own depend along axes that are taken for one another.
Sized: TypeAlias = tuple[Frame, frozenset[str]]
#: The class of axes along which windows move, or all elements of which make one.
SPACE = "space"
#: The attributes that name any number of axes.
_OF_AXES = frozenset({"axes"})
#: Those without a default that are one number, or one word.
_OF_ONE = frozenset({"to", "dtype", "value", "n", "size"})


class PatternFrames:
    """The frames of the patterns of one rule, and what is noted on the way.

    `names` are operands, sequences of such, and shapes that are as long as they like, `ranks` the most axes that some
    of them may have, `opaque` the operators that a proof does not look into.
    """

    def __init__(
        self,
        rule: Rule,
        ranks: Mapping[str, int],
        names: frozenset[str],
        opaque: frozenset[str],
        movements: Mapping[str, Callable[[PatternFrames, App, OpSpec, Sequence[Sized]], Sized]],
    ) -> None:
        self.rule, self.ranks, self.names, self.opaque, self._movements = rule, dict(ranks), names, opaque, movements
        self.frames = Frames()
        self.said = RankStatements(rule, self.frames)
        self.sorts = Sorts(rule, self.frames, self.frame_of, CALLS)
        self.sorts.counts = self.said.counts
        #: The sequences that names in loops stand for members of.
        self.members = self.sorts.members
        groups = [over for root in rule.roots for over in _loops(root)]
        if isinstance(rule.left, Siblings):
            groups.append(rule.left.over)
        self.members |= {name: of for over in groups for name, of in over}
        self.ranks |= dict(self._ranks_of_members())
        #: Sets of axes whose members are taken for one another, and those that slices are of.
        self.classes: set[str] = set()
        self.sliced: set[str] = set()
        #: Operands whose sizes along an axis of a class may differ, as they are broadcast.
        self.broadcast: set[str] = set()
        #: The least ranks that operators take, and sequences whose members have as many axes each.
        self.least: dict[str, int] = {}
        self.uniform: set[str] = set()
        #: The slices that applications are, by their identity.
        self.cuts: dict[int, str] = {}
        self.is_left = True

    @property
    def bases(self) -> frozenset[str]:
        """The names of sets of axes that classes are made of."""
        return frozenset(base for name in self.classes for base in name.split("+"))

    @property
    def sized_names(self) -> frozenset[str]:
        """The names of operands, of sequences of such, and of shapes."""
        shapes = {name for name, sort in self.sorts.known.items() if sort.kind == "dims"}
        return self.rule.tensors | self.rule.tensor_groups | shapes

    def _ranks_of_members(self) -> Iterator[tuple[str, int]]:
        """The ranks that operators fix of the members of sequences."""
        for app in (app for root in self.rule.roots for app in applications(root)):
            for operand, rank in zip(app.operands, own_ranks(spec(app.op)), strict=False):
                if isinstance(operand, Var) and operand.name in self.members and rank is not None:
                    yield self.members[operand.name], rank

    def frame_of(self, name: str) -> Frame:
        """The frame of an operand, of a sequence of such, or of the shape that an attribute is."""
        if name in self.ranks:
            exact = self.frames.is_below(f"#{self.ranks[name]}", name)
            return Frame(frozenset({name}), fixed=self.ranks[name], exact=exact)
        return Frame(frozenset({name}))

    def term(self, pattern: Pattern | Spread) -> Sized:
        """The frame of a pattern, and the operands on whose sizes its own depend along axes of classes."""
        if isinstance(pattern, Spread):
            if pattern.window is not None:
                raise NotRemovable("a part of a sequence")
            self.members |= dict(pattern.over)
            return self.term(pattern.item)
        if isinstance(pattern, Var):
            name = self.members.get(pattern.name, pattern.name)
            frame = self.frame_of(name)
            is_thin = name in self.said.thin or frame.fixed is not None
            return frame, frozenset() if is_thin else frozenset({name})
        if pattern == ABSENT:
            raise NotRemovable("an operand that is left out")
        declared = spec(pattern.op)
        if not declared.is_shipped:
            raise NotRemovable(f"{pattern.op}, which does not ship")
        terms = [self.term(operand) for operand in pattern.operands]
        if any(isinstance(operand, Spread) for operand in pattern.operands) and pattern.op != "concat":
            raise NotRemovable(f"{pattern.op} of a sequence")
        if declared.pointwise:
            if any("axis" in name or "axes" in name or "block" in name for name in declared.attrs):
                raise NotRemovable(pattern.op)
            self.attributes(pattern, declared, {})
            return self.spread([frame for frame, _ in terms], [keys for _, keys in terms])
        movement = self._movements.get(pattern.op)
        if movement is not None:
            return movement(self, pattern, declared, terms)
        if declared.form is None:
            raise NotRemovable(pattern.op)
        return self._by_form(pattern, declared, terms)

    def spread(self, frames: Sequence[Frame], keys: Sequence[frozenset[str]]) -> Sized:
        """The frame and the sizes of what is broadcast together."""
        several = {one for one in keys if one}
        if len(several) > 1:
            self.broadcast |= frozenset().union(*several)
        return self.frames.join(frames), frozenset().union(*keys)

    def attributes(
        self, app: App, declared: OpSpec, frames: Mapping[str, Frame], of: Frame = SCALAR
    ) -> dict[str, Sort]:
        """The sorts of the attributes of an operator, those that name axes by the frames of which they do.

        Others that have a number for each axis have these `of` a frame, along the axes that a field names.
        """
        found: dict[str, Sort] = {}
        if app.record is not None:
            open_frames = [frame for name, frame in frames.items() if name not in app.fields]
            rest = [name for name in declared.attrs if name not in app.fields and name not in frames]
            is_many = any(self._bound(name, name, declared.attrs[name], None).kind == "opaque" for name in rest)
            frame = open_frames[0] if open_frames else of if is_many else SCALAR
            base = Sort("attributes", frame, name=app.record)
            self.record(app, declared, base, frames)
        axes = app.fields.get("axes")
        along = "" if axes is None else ast.unparse(axes.tree)
        if axes is not None and isinstance(axes.tree, ast.Tuple):  # so many, all of which are kept
            along, of = f"{len(axes.tree.elts)} axes", SCALAR
        for name, default in declared.attrs.items():
            expression = app.fields.get(name)
            if expression is None:
                if app.record is not None:
                    found[name] = self.sorts.known[f"{app.record}.{name}"]
                elif default is not REQUIRED:
                    found[name] = self._default(default, frames.get(name))
                continue
            tree = expression.tree
            if self.is_left and isinstance(tree, ast.Name) and tree.id not in self.sorts.known:
                bound = self._bound(tree.id, name, default, frames.get(name))
                is_many = bound.kind == "opaque"
                self.sorts.known[tree.id] = replace(bound, frame=of, side=f"{name} {along}") if is_many else bound
            found[name] = self.sorts.of(tree)
            if name in frames:
                sort_of = self.sorts.places if name in _OF_AXES else self.sorts.place
                found[name] = sort_of(found[name], frames[name])
            elif found[name].kind == "opaque" and found[name].name:
                is_there = found[name].side in ("", f"{name} {along}")
                if not is_there or not self.frames.is_same(found[name].frame, of):
                    raise NotRemovable(f"{name} along other axes")
            elif is_of_numbers(found[name]) and found[name].items:
                # One number for each of some axes: all of these are kept, or there is one axis.
                if not along.endswith(" axes") and declared.name != "split":
                    raise NotRemovable(f"{name} of so many axes")
            elif found[name].kind == "dims" and found[name].frame.fixed is not None and not found[name].offset:
                continue  # so many numbers
            elif found[name].kind not in ("number", "opaque", "tuple"):
                raise NotRemovable(f"{found[name].kind} as {name}")
        return found

    def _default(self, default: object, frame: Frame | None) -> Sort:
        """The sort of what is left out, which may name axes as what is written does."""
        if isinstance(default, tuple):
            items = tuple(replace(NUMBER, literal=one if type(one) is int else None) for one in default)
            return Sort("opaque") if frame is None else self.sorts.places(Sort("tuple", items=items), frame)
        number = replace(NUMBER, literal=default if type(default) is int else None)
        return number if frame is None else self.sorts.place(number, frame)

    def _bound(self, name: str, attribute: str, default: object, frame: Frame | None) -> Sort:
        """The sort of what a name on the left side is bound to."""
        if frame is None:
            is_many = isinstance(default, tuple) or (default is REQUIRED and attribute not in _OF_ONE)
            return Sort("opaque", name=name) if is_many else NUMBER
        if attribute in _OF_AXES:
            return Sort("places", frame, name=name)
        return self._kept(name, frame)

    def _kept(self, name: str, frame: Frame) -> Sort:
        if frame.fixed is None:
            self.frames.keep(name)
            self.frames.below |= {("#1", one) for one in self.frames.plain(frame).longest if len(frame.longest) == 1}
        return Sort("place", frame, name=name)

    def record(self, app: App, declared: OpSpec, base: Sort, frames: Mapping[str, Frame]) -> None:
        """Bind a record and its attributes, or demand that it is one of the same operator and frame."""
        name = app.record
        assert name is not None
        base = replace(base, side=declared.name)
        if name not in self.sorts.known:
            if not self.is_left:
                raise NotRemovable(f"record {name}")
            self.sorts.known[name] = base
            for attribute, default in declared.attrs.items():
                if attribute not in app.fields:
                    key = f"{name}.{attribute}"
                    self.sorts.known[key] = self._bound(key, attribute, default, frames.get(attribute))
        known = self.sorts.known[name]
        if known.side != declared.name or not self.frames.is_same(known.frame, base.frame):
            raise NotRemovable(f"record {name} of another operator or frame")

    def _by_form(self, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
        """The frame of a result by the index form of its operator."""
        form = declared.form
        assert form is not None
        if form.turns:
            self.attributes(app, declared, {})
            return Frame(fixed=2, exact=True), frozenset()
        if len(terms) > len(form.terms):
            raise NotRemovable(f"{app.op} of operands that its form does not have")
        frames = [frame for frame, _ in terms]
        for place, (term, frame) in enumerate(zip(form.terms, frames, strict=False)):
            self._keep_fixed(app, term, frame, app.operands[place])
        if form.result.attribute or form.terms[0].attribute:
            return self._along_named(app, declared, terms)
        blocks = [(frame, keys) for term, (frame, keys) in zip(form.terms, terms, strict=False) if term.open]
        self.attributes(app, declared, {}, frames[0])
        if not blocks:
            return Frame(fixed=form.result.fixed, exact=True), frozenset()
        if app.op in PRODUCTS:
            _, keys = self.spread([], [keys for _, keys in blocks])
            return self.frames.product(frames, app.op), keys
        if form.terms[0].broadcasts:
            self._demand_axes(declared, frames)
            if not all(
                self.frames.has_at_least(frame, term.fixed) for term, frame in zip(form.terms, frames, strict=False)
            ):
                raise NotRemovable(f"{app.op} of operands that may have fewer axes")
            return self.spread([frame for frame, _ in blocks], [keys for _, keys in blocks])
        self.demand_same([frame for frame, _ in blocks], app.op)
        open_index = next(i for i in form.terms[0].indices if i.many)
        kept = next((i for i in form.result.indices if i.many), None)
        if open_index.mixed or open_index.window or kept is None or kept.name != open_index.name:
            if not blocks[0][0].is_counted:
                raise NotRemovable(f"{app.op} along axes of several operands")
            is_gone = kept is None or kept.name == "1"
            self._merge(SPACE, declared, is_gone=is_gone)
            self.frames.spaces.add(blocks[0][0])
            return blocks[0][0], frozenset() if is_gone else frozenset({f"{app.op} of {sorted(blocks[0][1])}"})
        return blocks[0]

    def _demand_axes(self, declared: OpSpec, frames: Sequence[Frame]) -> None:
        """Untyped where an operand has a rank that its operator does not take."""
        for place, frame in enumerate(frames):
            if frame.exact and frame.fixed is not None:
                taken = possible_ranks(declared, place, [None] * place, frame.fixed)
                if frame.fixed not in taken:
                    raise Untyped(f"{declared.name} of {frame.fixed} axes")

    def _keep_fixed(self, app: App, term: IndexTerm, frame: Frame, operand: Pattern | Spread) -> None:
        """Keep the axes that a form names one by one, and note how many an operator asks for."""
        if not term.indices or term.attribute:
            return
        before = next((k for k, index in enumerate(term.indices) if index.many), len(term.indices))
        self.frames.keep_left(frame, before)
        self.frames.keep_right(frame, len(term.indices) - before - term.open)
        if self.is_left and isinstance(operand, Var):
            name = self.members.get(operand.name, operand.name)
            least = 1 if app.op in PRODUCTS else term.fixed  # a vector or more
            self.least[name] = max(self.least.get(name, 0), least)
            if not term.broadcasts:
                self.frames.below |= {(f"#{count}", name) for count in range(1, term.fixed + 1)}

    def demand_same(self, frames: Sequence[Frame], op: str) -> None:
        """Take frames for the same on the left, where else the operator has no type; demand it on the right."""
        for frame in frames[1:]:
            if self.is_left:
                self.frames.equate(frames[0], frame)
            if not self.frames.is_same(frames[0], frame):
                raise NotRemovable(f"{op} of operands of several frames")

    def _merge(self, name: str, declared: OpSpec, *, is_gone: bool) -> None:
        """Take axes of a class for one another: in sums and the like, and where a proof does not look at them."""
        if not is_gone and declared.name not in self.opaque:
            raise NotRemovable(f"{declared.name} along several axes")
        self.classes.add(name)

    def _along_named(self, app: App, declared: OpSpec, terms: Sequence[Sized]) -> Sized:
        """The frame of an operator along axes that an attribute names."""
        form = declared.form
        assert form is not None
        attribute = form.result.attribute or form.terms[0].attribute
        frame, keys = terms[0]
        if not form.terms[0].broadcasts or not frame.is_counted:
            raise NotRemovable(declared.name)
        found = self.attributes(app, declared, {attribute: frame}, frame)
        named = found[attribute]
        if form.result.tail:
            if named.name:
                self._merge(named.name, declared, is_gone=False)
            elif frame.fixed is None and not self._is_last(app, declared, attribute):
                raise NotRemovable(f"{declared.name} along axes that are counted")
            for other, more in terms[1:]:
                self.spread([frame, other], [keys, more])
            return frame, keys
        if len(terms) > 1:
            raise NotRemovable(f"{declared.name} of several operands")
        if named.kind == "places" and named.name:
            self._merge(named.name, declared, is_gone=not form.result.attribute)
        if form.result.attribute:
            return frame, keys
        return self._reduced(app, declared, named, frame, keys)

    def _is_last(self, app: App, declared: OpSpec, attribute: str) -> bool:
        """True if an attribute names the last axis, written or left out."""
        field = app.fields.get(attribute)
        if field is None:
            return app.record is None and declared.attrs[attribute] == -1
        sort = self.sorts.of(field.tree)
        return sort.literal == -1 or (sort.kind == "rank" and sort.offset == -1)

    def _reduced(self, app: App, declared: OpSpec, named: Sort, frame: Frame, keys: frozenset[str]) -> Sized:
        given = app.fields.get("keepdims")
        keeps = declared.attrs["keepdims"] if given is None else None
        if given is not None:
            tree = given.tree
            keeps = tree.value if isinstance(tree, ast.Constant) else tree.id if isinstance(tree, ast.Name) else None
        if app.record is not None or not isinstance(keeps, bool | str):
            raise NotRemovable(f"{declared.name} that may keep its axes")
        if frame.fixed is not None and keeps is not True:
            return Frame(fixed=frame.fixed), keys
        if keeps is True or ast.unparse(app.fields["axes"].tree) == "()":
            return frame, keys
        if not named.name:
            if keeps:
                raise NotRemovable(f"{declared.name} that may keep its axis")
            return self._without_one(app, declared, frame), keys
        return frame.moved(f"without {named.name}" + (f" unless {keeps}" if keeps else "")), keys

    def _without_one(self, app: App, declared: OpSpec, frame: Frame) -> Frame:
        """The frame of a result that lacks one axis that is counted from the last one."""
        axes = app.fields["axes"].tree
        (only,) = axes.elts if isinstance(axes, ast.Tuple) and len(axes.elts) == 1 else (None,)
        sort = NUMBER if only is None else self.sorts.of(only)
        place = sort.offset if sort.kind == "rank" else sort.literal
        if place is None or place >= 0 or not self.frames.has_at_least(frame, -place):
            raise NotRemovable(f"{declared.name} without axes that are kept")
        return frame.without_end(place)

    def is_thin(self, pattern: Pattern | Spread) -> bool:
        """True of what varies along no axis but kept ones."""
        return self._is_made_of(pattern, self.said.thin | self.ranks.keys())

    def is_single(self, pattern: Pattern | Spread) -> bool:
        """True of what has one element."""
        return self._is_made_of(pattern, self.said.single | {name for name, rank in self.ranks.items() if not rank})

    def _is_made_of(self, pattern: Pattern | Spread, names: Set[str]) -> bool:
        """True of such operands, of numbers, and of what is made of these element by element."""
        if isinstance(pattern, Var):
            return self.members.get(pattern.name, pattern.name) in names
        if isinstance(pattern, Spread) or pattern == ABSENT:
            return False
        if pattern.op == "fill":
            shape = pattern.fields.get("shape")
            return shape is not None and ast.unparse(shape.tree) == "()"
        return spec(pattern.op).pointwise and all(self._is_made_of(operand, names) for operand in pattern.operands)


def _loops(pattern: Pattern | Spread) -> Iterator[tuple[tuple[str, str], ...]]:
    """The loops of a pattern."""
    if isinstance(pattern, Spread):
        yield pattern.over
        yield from _loops(pattern.item)
    elif isinstance(pattern, App):
        for operand in pattern.operands:
            yield from _loops(operand)
