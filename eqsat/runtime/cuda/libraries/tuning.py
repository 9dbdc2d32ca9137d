"""Plans of library calls: those measured to be fastest, looked up by the computation of a call."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import fields, replace

from eqsat.runtime.cuda.libraries.calls import Call, Normalisation
from eqsat.runtime.kernels.view import View

#: The plan of a call that no library runs, but the kernel that is generated for it.
GENERATED = "generated"
#: Separator of a call from its plan in the text that a table keeps.
_BY = " by "


def signature(call: Call) -> str:
    """A short hash of a call's computation and the strides of its operands: equal calls may share a plan.

    >>> from eqsat.language.terms.types import DType
    >>> from eqsat.runtime.cuda.libraries.calls import Matmul
    >>> def product(x, y, z):
    ...     return Matmul(*(View.of(name, DType.FLOAT16, (8, 8)) for name in (x, y, z)))
    >>> signature(product("a", "b", "c")) == signature(product("d", "e", "f"))
    True
    """
    parts = [type(call).__name__]
    for field in fields(call):
        value = getattr(call, field.name)
        # Plans may ask for an alignment, which the place within a buffer decides.
        stated = replace(value, buffer="", offset=value.alignment) if isinstance(value, View) else value
        parts.append(f"{field.name}={stated!r}")
    return hashlib.blake2b("; ".join(parts).encode(), digest_size=8).hexdigest()


def tuned(call: Call, plan: str) -> str:
    """The plan of a call as a table keeps it."""
    return f"{signature(call)}{_BY}{plan}"


def choice(entries: Iterable[str]) -> Callable[[Call], str | None]:
    """A function from a call to its plan, by the plans that a table keeps; None for a call without one."""
    pairs = (text.partition(_BY) for text in entries)
    known = {call: plan for call, by, plan in pairs if by}
    return lambda call: known.get(signature(call)) if known else None


def tried(call: Call, chosen: str | None) -> tuple[str | None, ...]:
    """The plans that a call is run by, the first of them that can be; None is the library's own choice.

    Where nothing was measured, normalisations run on generated kernels: nothing says that a library is faster.

    >>> from eqsat.language.terms.types import DType
    >>> from eqsat.runtime.cuda.libraries.calls import Matmul
    >>> product = Matmul(*(View.of(name, DType.FLOAT16, (8, 8)) for name in "abc"))
    >>> tried(product, "cublaslt 130100 00 0"), tried(product, GENERATED)
    (('cublaslt 130100 00 0', None), ('generated',))
    """
    if chosen == GENERATED:
        return (GENERATED,)
    own = GENERATED if isinstance(call, Normalisation) else None
    return tuple(dict.fromkeys((own if chosen is None else chosen, own)))
