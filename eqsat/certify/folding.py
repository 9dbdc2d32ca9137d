"""Constants that were folded, checked against the expressions that they stand for."""

from __future__ import annotations

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from eqsat.certify.compare import relative_difference
from eqsat.certify.cone import Cone
from eqsat.errors import CertificateError, UncheckedError
from eqsat.language.arithmetic.floats import Floats
from eqsat.language.graphs.interpret import run
from eqsat.language.terms import Array, Constant, Graph
from eqsat.system.mapped import release_mapped

#: Bytes that are computed from mapped constants before the pages of these are given back.
_MUCH = 1 << 25


@np.errstate(all="ignore")
def folded_error(new: Graph, folded: Graph, positions: Mapping[str, int]) -> tuple[float, int]:
    """The largest rounding error of a folded constant against its expression in float64, and how many there are.

    `positions` are those of the nodes of the new graph by their results. CertificateError names a constant that is not
    its expression; UncheckedError one that leaves the range of its type.
    """
    names = [v for v in folded.constants if v in positions]
    errors = [0.0]
    unreturned = 0

    def compare(index: str, exact: Array) -> None:
        nonlocal unreturned
        name = names[int(index)]
        errors.append(_error(new, name, folded.constants[name], np.asarray(exact)))
        folded.constants[name].release()
        unreturned += exact.nbytes
        if unreturned > _MUCH:
            release_mapped()  # what it was computed from
            unreturned = 0

    # In float64 all of them together would take twice the weights of a model, or more.
    run(Cone(new, positions, names, lambda v: False).subgraph, {}, Floats(wide=True), each=compare)
    release_mapped()
    return max(errors), len(names)


def _error(new: Graph, name: str, constant: Constant, exact: Array) -> float:
    """The rounding error of a folded constant."""
    is_float = constant.type.dtype.is_float
    error = relative_difference(exact, constant.array.astype(np.float64) if is_float else constant.array)
    bound = 8 * float(ml_dtypes.finfo(constant.type.dtype.numpy).eps) if is_float else 0.0
    if error > bound and is_float and _leaves_range(exact, constant, bound):
        raise UncheckedError(
            f"constant {name!r} leaves the range of {constant.type.dtype.value} when it is folded",
            where=new.name,
            expected="constants that their type holds to its full precision",
        )
    if error > bound:
        raise CertificateError(
            f"folded constant {name!r} differs from its expression by {error:.1e}",
            where=new.name,
            expected=f"at most {bound:.0e}, the rounding of {constant.type.dtype.value}",
            remedy="the original is unchanged; report this model",
        )
    return error


def _leaves_range(exact: Array, constant: Constant, bound: float) -> bool:
    """Return whether a folded constant equals its expression but for elements that overflow or lose digits."""
    limits = ml_dtypes.finfo(constant.type.dtype.numpy)
    size = np.abs(exact)
    normal = (size >= float(limits.smallest_normal)) | (exact == 0)
    within = (size <= float(limits.max)) & normal | ~np.isfinite(exact)
    return not within.all() and relative_difference(exact[within], constant.array.astype(np.float64)[within]) <= bound
