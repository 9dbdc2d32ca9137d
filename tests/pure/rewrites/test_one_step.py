"""Proofs of recurrent layers of one step, of filters with a border of zeros, and of convolutions in groups."""

from functools import cache

import numpy as np
import pytest

from eqsat.language.parametric.arrays import IndexedArray, WritableArray
from eqsat.language.parametric.facts import Fact
from eqsat.language.parametric.integers import NotParametric, integer
from eqsat.language.parametric.paths import Path, SolverBudget
from eqsat.language.parametric.sums.domains import joined
from eqsat.language.terms.dims import Sym
from eqsat.rewrites.proof.attributes import stated_values
from eqsat.rewrites.proof.sizes import prove_paths, prove_sizes
from eqsat.rewrites.rules.loader import shipped_rules
from eqsat.rewrites.rules.parser import parse_rules
from eqsat.rewrites.rules.rule import Rule

_ENLARGED = (
    "conv(x, enlarge(w, kernel=k), strides=(), pads=p, dilations=(), group=1, activation='none')"
    " => conv(x, w, strides=(), pads={pads}, dilations=(), group=1, activation='none')"
    " if rank(x) == 3"
)
_GROUPS = (
    "concat(*[conv(x, w, **a) for x, w in zip(xs, ws)], axis=1)"
    " => conv(concat(*xs, axis=1), concat(*ws, axis=0), group={group}, **a)"
    " if len(xs) == len(ws), all(same_shape(x, xs[0]) for x in xs){same}"
)


@cache
def shipped(name: str) -> str:
    return str(next(rule for rule in shipped_rules() if rule.name == name))


def parsed(text: str) -> Rule:
    (rule,) = parse_rules(text, origin="candidate")
    return rule


@pytest.mark.parametrize("name", ["rnn-of-one-step", "rnn-of-one-step-and-state", "lstm-of-one-step"])
def test_layers_of_one_step_are_proved(name: str) -> None:
    """A layer of one step is followed through its reference."""
    proof = prove_sizes(parsed(shipped(name)))
    assert proof.every_rank, proof.open


@pytest.mark.parametrize(
    ("name", "part", "other"),
    [
        ("rnn-of-one-step", "dim(x, 0) == 1, ", ""),
        ("rnn-of-one-step", "dim(x, 0) == 1, ", "dim(x, 0) == 2, "),
        ("rnn-of-one-step", "dim(w, 0) == 1, ", ""),
        ("rnn-of-one-step", "a.clip is None, ", ""),
        ("rnn-of-one-step", "a.layout == 0, ", ""),
        ("rnn-of-one-step", ", a.activations in ((), ('Tanh',))", ""),
        ("rnn-of-one-step", "(), ('Tanh',)", "(), ('Sigmoid',)"),
        ("rnn-of-one-step", "y := tanh(", "y := sigmoid("),
        ("rnn-of-one-step", "axes=(0,), keepdims=False), y", "axes=(0,), keepdims=False) * 2.0, y"),
        ("rnn-of-one-step-and-state", "u + q + t", "u + t"),
        ("lstm-of-one-step", "cut(1, dim(r, 2), 2 * dim(r, 2))", "cut(1, 0, dim(r, 2))"),
        ("lstm-of-one-step", "cut(0, 3 * dim(r, 2), dim(w, 1))", "cut(0, 2 * dim(r, 2), 3 * dim(r, 2))"),
        ("lstm-of-one-step", "* tanh(s)", "* s"),
    ],
)
def test_other_layers_are_not(name: str, part: str, other: str) -> None:
    """Without a condition, or of other gates, activations or states, there is no proof."""
    assert part in shipped(name)
    assert not prove_sizes(parsed(shipped(name).replace(part, other))).is_proved


def test_borders_of_filters_are_pads() -> None:
    """A filter with a border of zeros is one without, and less padding."""
    true = _ENLARGED.format(pads="shrunk_pads(p, (), shape(w)[2:], k)")
    assert prove_sizes(parsed(f"asked: {true}")).rank >= 3
    for pads in ("p", "shrunk_pads(p, (2,), shape(w)[2:], k)", "grown_pads(p, (), shape(w)[2:], k)"):
        assert not prove_sizes(parsed(f"asked: {_ENLARGED.format(pads=pads)}")).is_proved


def test_convolutions_side_by_side_are_one_in_groups() -> None:
    """As many groups as there are, one after the other, and no others."""
    same = ", all(same_shape(w, ws[0]) for w in ws)"
    true = _GROUPS.format(group="len(xs) * a.group", same=same)
    others = [
        _GROUPS.format(group=group, same=shapes)
        for group, shapes in (("a.group", same), ("len(xs)", same), ("len(xs) * a.group", ""))
    ]
    others.append(true.replace("concat(*ws, axis=0)", "concat(*[w + w for w in ws], axis=0)"))
    opaque = frozenset({"conv"})
    assert prove_paths(parsed(f"asked: {true}"), opaque=opaque).rank == 4
    for other in others:
        assert not prove_paths(parsed(f"asked: {other}"), opaque=opaque).is_proved


def test_values_are_stated_by_whole_conditions_alone() -> None:
    """What one part of a condition says may not hold, and a number is equal to others."""
    rule = parsed(
        "r: gru(x, w, r, **a) => x if a.clip is None or a.layout == 0, a.layout == 0, a.direction != 'reverse'"
    )
    assert stated_values(rule, "a") == {}
    rule = parsed("r: gru(x, w, r, **a) => x if a.activations in ((), ('Tanh', 'Tanh')), a.direction == 'reverse'")
    assert stated_values(rule, "a") == {"activations": ((), ("Tanh", "Tanh")), "direction": ("reverse",)}


def test_domains_are_joined_where_one_question_differs() -> None:
    """Two that differ in more have places between them."""
    first, second = Fact.positive(Sym.named("n")), Fact.positive(Sym.named("n") - 9)
    assert joined([(first, second), (first, second.turned)]) == [(first,)]
    apart = [(first, second), (first.turned, second.turned)]
    assert joined(apart) == apart
    assert joined([(first,), (second,)]) == [(first,), (second,)]


def test_multiples_and_odd_numbers_are_solved_for() -> None:
    """A difference that is even is two times a number; an odd number is one more."""
    with SolverBudget(99), Path({"k": 5, "w": 3}) as path:
        k, w = integer(path.unknown("k", 1)), integer(path.unknown("w", 1))
        assert not k < w
        assert (k - w) % 2 == 0
        assert (k - w) // 2 * 2 == k - w
        assert w % 2
        assert path.reduced((w - w // 2 * 2).formula) == 1
    with SolverBudget(99), Path({"k": 3, "w": 5}) as path:
        k, w = integer(path.unknown("k", 1)), integer(path.unknown("w", 1))
        assert (k - w) % 2 == 0  # of what may be below 0 nothing is made
        assert not path.solved


def test_nothing_is_written_behind_what_is_read() -> None:
    """Elements are worked out later, so that it would be read."""
    with SolverBudget(99), Path({"n": 3}) as path:
        n = integer(path.unknown("n", 1))
        part = IndexedArray((n,), lambda indices: 7)
        array = np.full((2, n), 0, like=IndexedArray((), lambda _: 0))
        assert isinstance(array, WritableArray)
        array[1] = part
        assert [array.at((place, 0)) for place in range(2)] == [0, 7]
        with pytest.raises(NotParametric):
            array[0] = part
        for read in (lambda one: one[0], lambda one: one.shape, lambda one: np.transpose(one), lambda one: one + one):
            other = np.full((2, n), 0, like=part)
            read(other)
            with pytest.raises(NotParametric):
                other[0] = part
