"""A run as pandas tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from eqsat.explorer.view.views import ClassView
from eqsat.report.parts import StepCost
from eqsat.system.extras import missing

if TYPE_CHECKING:
    import pandas

#: Columns of the table of e-nodes.
ENODES = (
    *("eclass", "enode", "op", "attrs", "operands", "type", "constant", "values", "block"),
    *("cost", "total", "estimated", "chosen", "original", "rule"),
)
#: Columns of the table of firings.
FIRINGS = ("step", "phase", "rule", "matched", "fired", "refused")
#: Columns of the table of kernels and conversions.
COSTS = ("op", "value", "operands", "result", "arithmetic", "seconds", "flops", "bytes", "measured")


def frame(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> pandas.DataFrame:
    """A table with these columns; MissingExtraError without pandas."""
    try:
        import pandas
    except ImportError as error:
        raise missing("pandas") from error
    return pandas.DataFrame([tuple(row) for row in rows], columns=list(columns))


def enodes(classes: Iterable[ClassView]) -> pandas.DataFrame:
    """A row for each e-node."""
    return frame(
        ENODES,
        (
            (
                view.eclass,
                form.enode,
                form.op,
                form.attrs,
                form.operands,
                view.type,
                view.constant,
                view.values,
                "/".join(view.block),
                form.seconds,
                form.total,
                form.estimated,
                form.chosen,
                form.original,
                form.rule,
            )
            for view in classes
            for form in view.forms
        ),
    )


def what_runs(steps: Iterable[StepCost]) -> pandas.DataFrame:
    """A row for each kernel and each conversion, in the order in which they run."""
    rows = (asdict(step) | {"operands": ", ".join(step.operands), "measured": not step.estimated} for step in steps)
    return frame(COSTS, ([row[column] for column in COSTS] for row in rows))
