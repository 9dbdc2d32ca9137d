"""Kernels of groups in C: their forms, the options that these are mapped to loops by, and their text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from eqsat.runtime.c.program.tiles import tiles, vector_width
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.groups.lowering import LoweredGroup, forms_of, lowered_group
from eqsat.runtime.kernels.nests.groups.statements import Form
from eqsat.runtime.kernels.nests.options import MappingOptions
from eqsat.runtime.kernels.nests.printing.c_printer import FunctionText, c_function
from eqsat.runtime.kernels.nests.scheduling.schedule import scheduled

#: Products of fewer multiplications are not worth a call of a library.
_SMALL_PRODUCT = 1 << 14
#: Rows from which columns that lie side by side are read often enough to be worth their memory.
_MANY_ROWS = 4
#: Values that are computed from which threads are worth their meeting, which takes some microseconds.
SHARED_POINTS = 1 << 16
#: Channels from which the products that the algorithm of Winograd saves are worth its sums.
_MANY_CHANNELS = 16


@dataclass(frozen=True)
class KernelChoice:
    """The form in which a group is computed, and the options by which that is mapped to loops."""

    form: Form = "direct"
    options: MappingOptions = field(default_factory=MappingOptions)

    def with_threads(self, threads: int) -> KernelChoice:
        """The same on so many threads."""
        return (
            self if threads == self.options.threads else replace(self, options=replace(self.options, threads=threads))
        )


@dataclass(frozen=True)
class PreparedOperand:
    """An operand that is made once of constants: by a function of C, of values, in so many bytes."""

    text: FunctionText
    values: tuple[str, ...]
    nbytes: int


@dataclass(frozen=True)
class CKernel:
    """A group as computations of C, one for each form. `arguments` are the values that the first form is passed."""

    forms: Mapping[Form, LoweredGroup]
    label: str = ""

    @property
    def arguments(self) -> tuple[str, ...]:
        """The values whose views it, or what is made once for it, is passed: operands first."""
        return self.forms["direct"].values

    @property
    def points(self) -> int:
        """The number of times that a value is computed, in the first form."""
        return sum(one.points for one in self.forms["direct"].computation.statements)

    @cached_property
    def key(self) -> str:
        """The same for kernels that compute the same of operands at the same strides."""
        texts = [_text(one.computation, MappingOptions.naive()).code for one in self.forms.values()]
        return hashlib.blake2b("".join(texts).encode(), digest_size=16).hexdigest()

    def passed(self, choice: KernelChoice) -> tuple[str, ...]:
        """The values that the function of a choice is passed, operands first; prepared ones by the names of buffers."""
        return self.forms[choice.form].passed

    def text(self, choice: KernelChoice) -> FunctionText:
        """The function of a choice, under a name that its text decides."""
        return _named(self.forms[choice.form].computation, choice.options)

    def preparations(self, choice: KernelChoice) -> dict[str, PreparedOperand]:
        """The operands that the function of a choice is passed beside values, by name."""
        made = {}
        for name, (computation, views) in self.forms[choice.form].preparations.items():
            text = _named(computation, MappingOptions())
            made[name] = PreparedOperand(text, views.values, computation.buffers[name].nbytes)
        return made


def _named(computation: Computation, options: MappingOptions) -> FunctionText:
    digest = hashlib.blake2b(_text(computation, options).code.encode(), digest_size=8).hexdigest()
    return _text(replace(computation, name=f"kernel_{digest}"), options)


def _text(computation: Computation, options: MappingOptions) -> FunctionText:
    return c_function(computation, scheduled(computation, options), options.threads)


#: Chooses the form and the options of a kernel.
ChoiceMaker = Callable[[CKernel], KernelChoice]


def kernel_of(group: Group) -> CKernel | None:
    """The kernel of a group; None where C has no kernel of all of its operators together."""
    forms: dict[Form, LoweredGroup] = {}
    for form in forms_of(group):
        try:
            forms[form] = lowered_group(group, form)
        except UnsupportedError:
            if form == "direct":
                return None
    return CKernel(forms, group.label)


def default_choice(kernel: CKernel, threads: int = 1) -> KernelChoice:
    """The choice for a kernel that nothing was measured of: a library for large products, else tiles."""
    choice = _default_form(kernel)
    return choice.with_threads(threads if kernel.points >= SHARED_POINTS else 1)


def _default_form(kernel: CKernel) -> KernelChoice:
    first = kernel.forms["direct"].computation
    points = max((one.points for one in first.statements if one.reduction == "+"), default=0)
    is_wide = vector_width() > MappingOptions().vector_bytes
    options = MappingOptions(library=points >= _SMALL_PRODUCT, vector_bytes=vector_width())
    if "winograd" in kernel.forms:
        products = [one for one in kernel.forms["winograd"].computation.statements if one.reduction == "+"]
        if min(axis.count for one in products for axis in (one.axes[0], one.axes[-1])) >= _MANY_CHANNELS:
            return KernelChoice("winograd", options)
    if "packed" in kernel.forms and _rows(kernel.forms["packed"]) >= _MANY_ROWS:
        form: Form = "packed_32" if is_wide and "packed_32" in kernel.forms else "packed"
        return KernelChoice(form, tiles(form)[0])
    if "unfolded" in kernel.forms:
        return KernelChoice("unfolded", tiles("unfolded")[0] if is_wide else options)
    return KernelChoice("direct", options)


def _rows(packed: LoweredGroup) -> int:
    """The rows of a product with packed columns."""
    return max(one.axes[1].count for one in packed.computation.statements if one.reduction == "+")
