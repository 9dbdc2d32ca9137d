"""Every operator as a program of C: what it computes, against its reference, by a kernel of its own."""

import pytest

from eqsat.language.ops import OPS
from tests.support.c_programs import assert_kernels, graph_of

NAMES = sorted(name for name, one in OPS.items() if one.sample is not None and not one.random and one.is_shipped)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_computes_what_its_reference_does(name):
    assert_kernels(*graph_of(name, 4))
