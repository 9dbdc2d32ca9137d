"""Groups as computations, by the operator that the others go before and after."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from eqsat.language.comprehension.graphs.operators import function_of
from eqsat.language.terms import Node
from eqsat.runtime.kernels.expressions.expression import UnsupportedError
from eqsat.runtime.kernels.group import Group
from eqsat.runtime.kernels.nests.computation import Computation
from eqsat.runtime.kernels.nests.groups.attention import ATTENTION
from eqsat.runtime.kernels.nests.groups.convolutions import conv, conv_transpose
from eqsat.runtime.kernels.nests.groups.copies import COPIES
from eqsat.runtime.kernels.nests.groups.equations import equations
from eqsat.runtime.kernels.nests.groups.products import PRODUCTS, packed_product
from eqsat.runtime.kernels.nests.groups.quantised import QUANTISED
from eqsat.runtime.kernels.nests.groups.recurrences import RECURRENCES
from eqsat.runtime.kernels.nests.groups.reductions import REDUCTIONS
from eqsat.runtime.kernels.nests.groups.resampling import RESAMPLINGS
from eqsat.runtime.kernels.nests.groups.selections import SELECTIONS
from eqsat.runtime.kernels.nests.groups.statements import Form, GroupStatements, PassedViews
from eqsat.runtime.kernels.nests.groups.windows import WINDOWS
from eqsat.runtime.kernels.nests.groups.winograd import has_winograd, winograd_conv

#: By operator, the statements that compute it. Those of single elements, and those that only rearrange them, need none;
#: of comprehensions their text has them.
CORES: Mapping[str, Callable[[GroupStatements, Node], None]] = {
    **REDUCTIONS,
    **PRODUCTS,
    "conv": conv,
    "conv_transpose": conv_transpose,
    **WINDOWS,
    **COPIES,
    **RESAMPLINGS,
    **SELECTIONS,
    **RECURRENCES,
    **QUANTISED,
    **ATTENTION,
}
#: Forms of products with a constant whose columns lie side by side in panels, of so many columns each.
PANELS: Mapping[Form, int] = {"packed": 16, "packed_32": 32, "packed_48": 48}
#: Forms that have statements of their own.
_FORMS: Mapping[Form, Callable[[GroupStatements, Node], None]] = {
    "winograd": winograd_conv,
    **{form: partial(packed_product, panel=columns) for form, columns in PANELS.items()},
}


@dataclass(frozen=True)
class LoweredGroup:
    """The computation of a group, and the values that it is passed: operands, then results.

    Operands that are made once, before the first run, are among `preparations` by the name of their buffer, each with
    its computation and the constants that it is made of.
    """

    computation: Computation
    passed: tuple[str, ...]
    preparations: Mapping[str, tuple[Computation, PassedViews]]

    @property
    def values(self) -> tuple[str, ...]:
        """The values of the group that it is made of, and that preparations are, then its results."""
        count = len(self.computation.operands)
        read = [name for name in self.passed[:count] if name not in self.preparations]
        read += [name for _, views in self.preparations.values() for name in views.values]
        return (*dict.fromkeys(read), *self.passed[count:])


def forms_of(group: Group) -> tuple[Form, ...]:
    """The ways in which a group can be computed, the first of which is there for all."""
    node = next((one for one in group.nodes if one.op in (*PRODUCTS, "conv")), None)
    if node is None or node.op == "einsum":
        return ("direct",)
    second = str(node.inputs[1])
    shape = group.types[second].static
    if node.op != "conv":
        if second not in group.constants or len(shape) != 2:
            return ("direct",)
        columns = shape[0] if node.attrs.get("trans_b") else shape[1]
        return ("direct", *(form for form, panel in PANELS.items() if form == "packed" or panel <= columns))
    if node.attrs["group"] == shape[0] == group.types[str(node.inputs[0])].static[1]:
        return ("direct",)
    return ("direct", "unfolded", "winograd") if has_winograd(node, shape) else ("direct", "unfolded")


def lowered_group(group: Group, form: Form = "direct") -> LoweredGroup:
    """The computation of a group in a form; UnsupportedError for a group that has none."""
    body = GroupStatements(group, form)
    cores = [node for node in group.nodes if node.op in CORES or function_of(node.op) is not None]
    if len(cores) > 1:
        raise UnsupportedError("several operators that are more than element by element")
    core = next((o for node in cores for o in node.outputs if o), None)
    if core is not None:
        body.write_operands(core)
        _FORMS.get(form, CORES.get(cores[0].op, equations))(body, cores[0])
    body.finish(core)
    computation = body.computation()
    names = (*computation.operands, *computation.results)
    passed = tuple(body.views[name][0] if name in body.views else name for name in names)
    return LoweredGroup(computation, passed, body.preparations)
