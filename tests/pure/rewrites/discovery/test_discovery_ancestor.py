"""Ancestors of candidates: what is a case of what at the same shapes."""

import pytest

from eqsat.rewrites.discovery.equations.candidate import CandidateEquation
from eqsat.rewrites.discovery.generalise.ancestor import ancestor

SQUARE = {"x": (3, 3), "y": (3, 3), "z": (3, 3)}


def made(left, right, shapes=SQUARE):
    used = {n: s for n, s in shapes.items() if n in left}
    return ancestor(CandidateEquation("c", tuple(left.split(" ; ")), (right,), used, 3, 3))


@pytest.mark.parametrize(
    ("left", "right", "wanted"),
    [
        # a variable for a term that both sides share, wherever it stands
        ("add(exp(x), exp(x))", "concat(exp(x), exp(x), axis=0)", None),
        ("relu(relu(exp(x)))", "relu(exp(x))", "relu(relu(x)) => relu(x)"),
        ("mul(exp(x), y)", "mul(y, exp(x))", "mul(x, y) => mul(y, x)"),
        # not where its variables are read elsewhere
        ("mul(exp(x), x)", "mul(x, exp(x))", "mul(x, y) => mul(y, x)"),
        # places of one variable, as long as both sides stay equal
        ("add(x, x)", "add(x, x)", "add(x, y) => add(x, y)"),
        (
            "matmul(x, add(x, x))",
            "add(matmul(x, x), matmul(x, x))",
            "matmul(x, add(y, z)) => add(matmul(x, y), matmul(x, z))",
        ),
        ("sub(x, x)", "sub(y, y)", None),
    ],
)
def test_candidates_become_as_general_as_they_stay_true(left, right, wanted):
    found = made(left, right)
    assert found.text == f"c: {wanted or f'{left} => {right}'}"


def test_a_variable_takes_the_shape_of_the_term_that_it_stands_for():
    found = made("reduce_max(tanh(reduce_sum(x, axes=(1,))), axes=(1,))", "tanh(reduce_sum(x, axes=(1,)))")
    assert found.text == "c: reduce_max(x, axes=(1,)) => x"
    assert found.shapes == {"x": (3, 1)}
    assert (found.left_ops, found.right_ops) == (1, 0)


def test_several_outputs_share_what_stands_for_a_term():
    found = made(
        "matmul(exp(x), y) ; matmul(exp(x), z)", "split(matmul(exp(x), concat(y, z, axis=1)), axis=1, sizes=(3, 3))"
    )
    assert found.text.startswith("c: matmul(x, y), matmul(x, z) => split(matmul(x, concat(y, z")


def test_what_is_general_stays_as_it_is():
    one = CandidateEquation("c", ("matmul(x, y)",), ("matmul(x, y)",), {"x": (3, 3), "y": (3, 3)}, 1, 1)
    assert ancestor(one) is one
