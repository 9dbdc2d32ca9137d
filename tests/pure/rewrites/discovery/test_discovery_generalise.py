"""Candidates at one choice of small shapes become general rules with the conditions that they need, or nothing."""

import pytest

from eqsat.language.terms.pattern import App, Bindings, Expression, Siblings, Spread, Var
from eqsat.rewrites.conditions.expression import bound_name, evaluate
from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.generalise.general_rules import generalise
from eqsat.rewrites.discovery.generalise.search import GeneralisationEffort
from eqsat.rewrites.instances.elements import Drawn
from eqsat.rewrites.instances.instance import Sampler, operands
from eqsat.rewrites.proof.check import THOROUGH, check
from eqsat.rewrites.proof.check import Effort as Check
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import pattern_fields
from eqsat.rewrites.rules.term import Term, left_terms, output_types, right_terms

IMAGE, FILTER = (2, 2, 3, 3), (2, 2, 2, 2)
#: With the ways round that repeat work.
BOTH = GeneralisationEffort(repeats=True)


def candidate(left, right, **shapes):
    """An equation of matrices of 3 × 3 unless shapes are given."""
    sides = [side if isinstance(side, tuple) else (side,) for side in (left, right)]
    named = {n: shapes.get(n, (3, 3)) for n in "xyzwv" if any(f"{n}" in _words(t) for side in sides for t in side)}
    return CandidateEquation("c", *sides, named, 0, 0)


def _words(text):
    return "".join(c if c.isalnum() or c == "_" else " " for c in text).split()


def texts(left, right, **shapes):
    return [f"{r.phase} {r}" for r in generalise(candidate(left, right, **shapes), BOTH)]


# --- what generalises -------------------------------------------------------------------------------------------------


def test_attributes_become_variables_and_both_ways_round_are_rules():
    assert texts("relu(transpose(x, perm=(1, 0)))", "transpose(relu(x), perm=(1, 0))") == [
        "expand " + r
        for r in (
            "relu-of-transpose-6268fa: relu(transpose(x, perm=p)) => transpose(relu(x), perm=p)",
            "transpose-of-relu: transpose(relu(x), perm=p) => relu(transpose(x, perm=p))",
        )
    ]


def test_what_a_candidate_says_of_one_permutation_becomes_a_condition_on_two():
    (rule,) = texts("transpose(transpose(x, perm=(1, 0)), perm=(1, 0))", "x")
    assert rule == (
        "simplify transpose-of-transpose-gone: transpose(transpose(x, perm=p), perm=q) => x if p == inverse(q)"
    )


def test_two_operands_become_any_number_and_the_way_that_repeats_work_is_off():
    assert texts("concat(relu(x), relu(y), axis=0)", "relu(concat(x, y, axis=0))") == [
        "expand concat-of-relus: concat(*[relu(x) for x in xs], axis=k) => relu(concat(*xs, axis=k))",
        "associate relu-of-concat-to-concat-of-relus: "
        "relu(concat(*xs, axis=k)) => concat(*[relu(x) for x in xs], axis=k)",
    ]


def test_two_outputs_with_a_shared_operand_become_siblings():
    (rule,) = generalise(candidate(("x @ y", "x @ z"), "split(x @ concat(y, z, axis=1), axis=1, sizes=(3, 3))"))
    assert isinstance(rule.left, Siblings) and rule.phase == "merge"
    assert check(rule, Check(numeric=40, symbolic=4)).verdict == "proved"


def test_bounds_of_a_slice_are_computed_from_the_operands():
    (rule,) = generalise(candidate("slice(concat(x, y, axis=0), axes=(0,), starts=(3,), ends=(6,))", "y"))
    assert rule.right == (Var("y"),) and "k" in rule.attrs and rule.phase == "simplify"


@pytest.mark.parametrize(
    "left, right, shapes, guards",
    [
        ("x @ (y @ z)", "(x @ y) @ z", {}, ["wide(x)", "finite(x, z)"]),
        ("relu(x * x)", "x * x", {}, ["floating(x)"]),
        ("concat(x, y, axis=0) @ z", "concat(x @ z, y @ z, axis=0)", {}, []),
        ("x @ eye(n=3)", "x", {}, ["finite(x)"]),
    ],
)
def test_guards_follow_from_what_is_computed(left, right, shapes, guards):
    rule = generalise(candidate(left, right, **shapes))[0]
    found = [c.text for c in rule.conditions if c.text.startswith(("wide", "floating", "finite"))]
    assert found == guards


def test_a_fused_operator_takes_another_in():
    made = candidate("relu(conv(x, w))", "conv(x, w, activation='relu')", x=IMAGE, w=FILTER)
    fused, apart = generalise(made, BOTH)
    assert [str(fused)] == [str(r) for r in generalise(made)]
    assert fused.phase == "fuse" and fused.text.endswith("=> conv(x, y, activation='relu', **a)")
    assert apart.phase == "associate" and [c.text for c in apart.conditions] == ["a.activation == 'relu'"]


def test_the_same_seed_gives_the_same_rules():
    made = candidate("x - y", "x + (-y)")
    assert [str(r) for r in generalise(made)] == [str(r) for r in generalise(made)]


# --- planted: true at the candidate's shapes, false without conditions ------------------------------------------------


def refuses(rule, text):
    """Whether a rule's conditions refuse every instance of a special case in which it is false."""
    (special,) = parse_rules(f"special: {text}")
    sampler, met = Sampler(special), 0
    for _ in range(40):
        bindings = sampler.draw(500)
        if bindings is not None:
            met += 1
            if fires(rule, left_terms(special, bindings)):
                return False
    return met > 3


CONVS = "conv(x, v, **a) + conv(y, w, **a) => conv(x, v, **a) + conv(y, w, **a)"


def test_a_sum_of_convolutions_needs_one_group_and_no_activation():
    left, right = "conv(x, v) + conv(y, w)", "conv(concat(x, y, axis=1), concat(v, w, axis=1))"
    shapes = {"x": IMAGE, "y": IMAGE, "v": FILTER, "w": FILTER}
    (rule,) = generalise(candidate(left, right, **shapes))
    assert refuses(rule, f"{CONVS} if a.group == 2")
    assert refuses(rule, f"{CONVS} if a.activation == 'relu'")
    assert check(rule, Check(numeric=40, symbolic=4)).verdict == "proved"


def test_filters_of_grouped_convolutions_are_not_joined():
    left, right = "concat(conv(x, v), conv(x, w), axis=1)", "conv(x, concat(v, w, axis=0))"
    rule = generalise(candidate(left, right, x=IMAGE, v=FILTER, w=FILTER))[0]
    same = "concat(*[conv(x, w, **a) for w in ws], axis=1)"
    assert refuses(rule, f"{same} => {same} if a.group == 2")


def test_a_broadcast_operand_is_not_padded_with_the_sum():
    left, right = "conv(x, w, pads=(1, 1, 1, 1)) + conv(y, w, pads=(1, 1, 1, 1))", "conv(x + y, w, pads=(1, 1, 1, 1))"
    rule = generalise(candidate(left, right, x=IMAGE, y=IMAGE, w=FILTER))[0]
    same = "conv(x, w, **a) + conv(y, w, **a)"
    narrow = "dim(y, 2) == 1, dim(y, 3) == 1, dim(x, 2) == 3, dim(x, 3) == 3, any(a.pads)"
    assert refuses(rule, f"{same} => {same} if {narrow}")


def test_interchanged_concatenations_need_equal_split_points():
    left = "concat(concat(x, y, axis=0), concat(z, w, axis=0), axis=1)"
    right = "concat(concat(x, z, axis=1), concat(y, w, axis=1), axis=0)"
    rule = generalise(candidate(left, right))[0]
    same = "concat(concat(x, y, axis=a), concat(z, w, axis=a), axis=b)"
    assert refuses(rule, f"{same} => {same} if a != b, dim(x, a) != dim(z, a)")


@pytest.mark.parametrize(
    "left, right, shapes",
    [
        ("softmax(transpose(x, perm=(1, 0)), axis=1)", "transpose(softmax(x, axis=1), perm=(1, 0))", {}),
        ("conv(x, w, activation='relu')", "conv(x, w)", {"x": IMAGE, "w": FILTER}),
        ("conv(x, w) * y", "conv(x, w)", {"x": IMAGE, "w": FILTER, "y": ()}),
        ("concat(x, y, axis=0)", "concat(y, x, axis=0)", {}),
        ("reshape(x, shape=(9,))", "reshape(transpose(x, perm=(1, 0)), shape=(9,))", {}),
        ("relu(-x)", "-relu(x)", {}),
    ],
)
def test_what_is_false_at_its_own_shapes_is_nothing(left, right, shapes):
    assert generalise(candidate(left, right, **shapes)) == ()


@pytest.mark.parametrize(
    ("left", "right", "shapes"),
    [
        # products of vectors have other ranks
        ("matmul(expand(x, shape=(1, 1)), y)", "mul(x, y)", {"x": (), "y": (1, 3)}),
        # shapes may be of higher rank than either end
        ("expand(reshape(x, shape=(1,)), shape=(1, 1))", "x", {"x": (1, 1)}),
    ],
)
def test_conditions_are_learned_from_small_instances_in_order_too(left, right, shapes):
    """What draws alone may miss, small instances in order show: the rules stand the larger grid of the verifier."""
    found = generalise(candidate(left, right, **shapes))
    assert found and all(check(rule, THOROUGH).verdict == "proved" for rule in found)


# --- recall: shipped rules from one instance of theirs ----------------------------------------------------------------


def as_candidate(rule):
    """A shipped rule at small shapes, as equal to each other as they come, with literal attributes."""
    sampler, best = Sampler(rule), None
    for _ in range(150):
        bindings = sampler.draw(500)
        if bindings is None or any(isinstance(t, tuple) and len(t) != 2 for t in bindings.tensors.values()):
            continue
        sides = left_terms(rule, bindings), right_terms(rule, bindings)
        dims = [d for o in operands(bindings) for d in o.type.static]
        plain = sum(v in ((), (0,), (0, 1), (0, 1, 2)) for side in sides for v in _attributes(side))
        score = (plain + dims.count(1), len(set(dims)), len(dims))
        if best is None or score < best[0]:
            best = score, sides, bindings
    _, sides, bindings = best
    names = {}
    left, right = (tuple(_written(t, names) for t in side) for side in sides)
    return CandidateEquation(rule.name, left, right, {names[id(o)]: o.type.static for o in operands(bindings)}, 0, 0)


def _attributes(terms):
    for term in terms:
        if isinstance(term, Term):
            yield from term.attrs.values()
            yield from _attributes(term.operands)


def _written(term, names):
    if not isinstance(term, Term):
        return names.setdefault(id(term), "xyzwv"[len(names)])
    attrs = [f"{k}={'float32' if v == 'float64' else v!r}" for k, v in term.attrs.items()]
    return f"{term.op}({', '.join([*(_written(o, names) for o in term.operands), *attrs])})"


def fires(rule, terms):
    """Whether a rule's left side matches terms, its conditions hold, and its right side has their types."""
    found = Bindings()
    try:
        if isinstance(rule.left, Siblings):
            _bind(Spread(rule.left.item, rule.left.over), terms, found, [])
        else:
            later = []
            for pattern, term in zip(rule.left, terms, strict=True):
                _bind(pattern, [term], found, later)
            if any(evaluate(e, found) != value for e, value in later):
                return False
    except LookupError:
        return False
    return rule.refused(found) is None and output_types(right_terms(rule, found)) == output_types(terms)


def _bind(pattern, terms, found, later):
    if isinstance(pattern, Spread) and not pattern.over:
        _set(found.tensors, pattern.item.name, tuple(terms))
    elif isinstance(pattern, Spread):
        inner = [Bindings(dict(found.tensors), dict(found.attrs)) for _ in terms]
        for term, own in zip(terms, inner, strict=True):
            _bind(pattern.item, [term], own, later)
        loop = dict(pattern.over)
        for name in inner[0].tensors:
            _set(found.tensors, loop.get(name, name), _joined(name in loop, [b.tensors[name] for b in inner]))
        for name in inner[0].attrs:
            _set(found.attrs, name, _joined(False, [b.attrs[name] for b in inner]))
    elif isinstance(pattern, Var):
        _set(found.tensors, pattern.name, terms[0])
    else:
        _bind_application(pattern, terms[0], found, later)


def _bind_application(pattern: App, term, found, later):
    if not isinstance(term, Term) or term.op != pattern.op:
        raise LookupError
    if pattern.record is not None:
        _set(found.attrs, pattern.record, term.attrs)
    for name, wanted in pattern_fields(pattern).items():
        if not isinstance(wanted, Expression):
            _set({name: term.attrs[name]}, name, wanted)
        elif bound_name(wanted):
            _set(found.attrs, wanted.text, term.attrs[name])
        else:
            later.append((wanted, term.attrs[name]))
    if len(pattern.operands) == 1 and isinstance(pattern.operands[0], Spread):
        _bind(pattern.operands[0], term.operands, found, later)
    elif len(pattern.operands) != len(term.operands):
        raise LookupError
    else:
        for one, operand in zip(pattern.operands, term.operands, strict=True):
            _bind(one, [operand], found, later)


def _set(known, name, value):
    if not isinstance(value, Drawn) and isinstance(value, Term):
        raise LookupError
    if known.setdefault(name, value) != value:
        raise LookupError


def _joined(running, values):
    if running:
        return tuple(values)
    if any(v != values[0] for v in values):
        raise LookupError
    return values[0]


RECALLED = (
    "transposes-compose",
    "slice-of-transpose",
    "concat-of-transposes",
    "relu-of-slice",
    "mul-of-slices",
    "concat-of-mul-and-one",
    "factor",
    "matmul-associates",
    "transpose-of-matmul",
    "conv-relu",
    "enlarged-filter",
    "reduce_sum-of-transpose",
    "softmax-of-concat",
)


@pytest.mark.parametrize("name", RECALLED)
def test_a_shipped_rule_comes_back_from_one_instance_at_least_as_general(name):
    shipped = {rule.name: rule for rule in shipped_rules()}
    rule = shipped[name]
    sampler = Sampler(rule, 5)
    instances = [left_terms(rule, bindings) for _ in range(25) if (bindings := sampler.draw(600)) is not None]
    made = generalise(as_candidate(rule), BOTH)
    assert instances and any(all(fires(one, terms) for terms in instances) for one in made), [str(r) for r in made]
