"""Modules and exported programs of PyTorch as ONNXProgram, refused where a graph cannot stand for them."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from eqsat.errors import ImportModelError, UsageError, first_line
from eqsat.language.pytorch.comprehensions import with_nodes

#: Operators of ONNX whose outputs differ from run to run.
_RANDOM = frozenset(
    ("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
)

#: Where torch's messages propose other dims.
_FIXES = "Suggested fixes:"
_REMEDY = "torch.compile(module, backend='eqsat') optimises the parts that can be traced"

#: Example inputs: positional ones, keyword ones, or the only one.
Examples = Any


def arguments_of(examples: Examples, where: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of a call; UsageError where there are none.

    >>> arguments_of({"x": 1}, "Net"), arguments_of([1, 2], "Net"), arguments_of(3, "Net")
    (((), {'x': 1}), ((1, 2), {}), ((3,), {}))
    """
    if examples is None:
        raise UsageError(
            "no example inputs",
            where=where,
            expected="tensors of the shapes that it is called with",
            remedy="pass example_inputs=(tensor, …) or example_inputs={'name': tensor, …}",
        )
    if isinstance(examples, Mapping):
        return (), dict(examples)
    if isinstance(examples, Sequence) and not isinstance(examples, str):
        return tuple(examples), {}
    return (examples,), {}


def exported(module: torch.nn.Module, examples: Examples, dynamic_shapes: Any = None) -> torch.export.ExportedProgram:
    """A module traced by torch.export, with these inputs as examples and dims as `dynamic_shapes` has them.

    UsageError for a module in training mode or inputs that do not fit, ImportModelError where torch cannot trace it.
    """
    where = type(module).__name__
    if module.training:
        raise UsageError(
            "the module is in training mode",
            where=where,
            expected="a module for inference",
            remedy="call module.eval() first",
        )
    args, kwargs = arguments_of(examples, where)
    try:
        with torch.no_grad(), quiet():
            return torch.export.export(module, args, kwargs, dynamic_shapes=dynamic_shapes)
    except Exception as error:
        _, found, fixes = str(error).partition(_FIXES)
        remedy = " ".join(fixes.split("\n\n")[0].split()) if found else _REMEDY
        raise ImportModelError(
            f"torch.export cannot trace it: {first_line(error)}",
            where=where,
            expected="a module that torch.export takes as one graph, called with the example inputs",
            remedy=remedy,
        ) from error


def onnx_program(program: torch.export.ExportedProgram, where: str) -> Any:
    """An exported program in operators of ONNX; ImportModelError where it has effects or an operator is unknown there.

    Weights stay where torch holds them.
    """
    try:
        with quiet():
            converted = torch.onnx.export(with_nodes(program), verbose=False, optimize=False)
    except torch.onnx.OnnxExporterError as error:
        cause = error.__cause__ or error
        raise ImportModelError(
            f"torch.onnx cannot export it: {first_line(cause)}",
            where=where,
            expected="operators that ONNX has",
            remedy="torch.compile(module, backend='eqsat') leaves such parts to PyTorch",
        ) from error
    check_pure(converted, where)
    return converted


def check_pure(converted: Any, where: str) -> None:
    """ImportModelError for an ONNXProgram that changes a buffer or an input in place, or draws random numbers."""
    # Only the program that torch.onnx decomposed has its effects apart.
    signature = converted.exported_program.graph_signature
    changed = [*signature.buffers_to_mutate.values(), *signature.user_inputs_to_mutate.values()]
    if changed:
        raise ImportModelError(
            f"it changes {', '.join(changed[:3])}{' …' if len(changed) > 3 else ''} in place",
            where=where,
            expected="a module whose only effects are its outputs",
            remedy="pass what changes in and out, as use_cache=False of transformers does; or use torch.compile",
        )
    drawn = sorted({node.op_type for node in converted.model.graph.all_nodes() if _is_random(node)})
    if drawn:
        raise ImportModelError(
            f"it draws random numbers: {', '.join(drawn)}",
            where=where,
            expected="a module that gives the same outputs for the same inputs",
            remedy="call module.eval(), or draw outside of the module",
        )


def _is_random(node: Any) -> bool:
    """True for operators that draw, and for Dropout as training has it, which states its mode."""
    return node.op_type in _RANDOM or (node.op_type == "Dropout" and len(node.inputs) > 2)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep torch's exporters from printing and warning about themselves."""
    loggers = [
        logging.getLogger(name) for name in ("torch.onnx", "torch._export", "torch.export", "onnxscript", "onnx_ir")
    ]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
