"""The call `optimize`."""

from __future__ import annotations

from typing import Unpack

from eqsat.buckets.run import choose_each
from eqsat.language.onnx.read.model import ModelArgument
from eqsat.options.keywords import OptimizeKeywords
from eqsat.options.options import Options
from eqsat.options.signatures import documented
from eqsat.report.result import Result
from eqsat.run import Run


@documented("optimize")
def optimize(model: ModelArgument, **options: Unpack[OptimizeKeywords]) -> Result:
    """The cheapest graph that rules with evidence prove equal to a model, checked independently.

    The method is equality saturation (Tate et al., POPL 2009; Willsey et al., POPL 2021). `model` is a path, a
    ModelProto or a graph; it is never changed. Times are in seconds. The options are

    {options}

    Raises EqsatError: UsageError for an argument out of its domain, ImportModelError or GraphError for a model that
    cannot be read, RuleError for rules that do not parse or are not proved, CostError for a device or a table that
    cannot be used, and ExtractionError for limits that nothing meets; with `strict`, CertificateError for a result that
    differs from the original, and whatever else failed.
    """
    checked = Options.of("optimize", options)
    run = Run.read(model, checked).with_bodies()
    buckets = checked.asked_buckets
    return run.result() if buckets is None else choose_each(run, buckets)
