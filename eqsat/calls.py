"""The call `optimize`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Unpack

from eqsat.buckets.run import choose_each
from eqsat.errors import UsageError
from eqsat.language.onnx.read.model import ModelArgument
from eqsat.language.pytorch.kinds import is_torch_model
from eqsat.loading import check_no_examples
from eqsat.options.keywords import OptimizeKeywords
from eqsat.options.options import Options
from eqsat.options.signatures import documented
from eqsat.report.result import Result
from eqsat.run import Opened, Run

if TYPE_CHECKING:
    import torch

    from eqsat.pytorch.result import TorchResult

    TorchModel: TypeAlias = torch.nn.Module | torch.export.ExportedProgram | torch.onnx.ONNXProgram


@documented("optimize")
def optimize(
    model: ModelArgument | TorchModel,
    example_inputs: Any = None,
    dynamic_shapes: Any = None,
    **options: Unpack[OptimizeKeywords],
) -> Result:
    """The cheapest graph that rules with evidence prove equal to a model, checked independently.

    The method is equality saturation (Tate et al., POPL 2009; Willsey et al., POPL 2021). `model` is a path, a
    ModelProto or a graph; it is never changed. Times are in seconds.

    `model` may also be a torch.nn.Module with `example_inputs` (a tensor, a tuple of arguments, or a dict of keyword
    arguments) and `dynamic_shapes` as torch.export takes them, or a torch.export.ExportedProgram, or a
    torch.onnx.ONNXProgram; the result is then called as the module is, with tensors. The options are

    {options}

    Raises EqsatError: UsageError for an argument out of its domain, ImportModelError or GraphError for a model that
    cannot be read, RuleError for rules that do not parse or are not proved, CostError for a device or a table that
    cannot be used, and ExtractionError for limits that nothing meets; with `strict`, CertificateError for a result that
    differs from the original, and whatever else failed.
    """
    checked = Options.of("optimize", options)
    buckets = checked.asked_buckets
    if is_torch_model(model):
        return _optimized_torch(model, example_inputs, dynamic_shapes, checked)
    check_no_examples(model, example_inputs, dynamic_shapes)
    if buckets is None:
        return Opened.of(model, checked).optimised()
    return choose_each(Run.read(model, checked).with_bodies(), buckets)


def _optimized_torch(model: TorchModel, example_inputs: Any, dynamic_shapes: Any, options: Options) -> TorchResult:
    if options.asked_buckets is not None:
        raise UsageError("buckets with a model of PyTorch", expected="a path, a ModelProto or a graph", remedy=_SAVE)
    from eqsat.pytorch.optimizing import optimize_torch

    return optimize_torch(model, example_inputs, dynamic_shapes, options)


_SAVE = "optimise it without buckets, or save it by torch.onnx.export first"
