"""Forms: the ways in which the generator applies operators, from their declarations."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from eqsat.errors import EqsatError, GraphError, UsageError
from eqsat.language.declaration.spec import REQUIRED, OpSpec
from eqsat.language.ops import OPS, spec
from eqsat.language.terms import Attrs, TensorType
from eqsat.rewrites.discovery.enumerate.domain import RoledType, Shape, joint_role
from eqsat.rewrites.discovery.enumerate.term import Label

#: The operator whose outputs the syntax of rules can name one by one.
SPLIT = "split"
#: Operators of more operands than this take fixed inputs for all but the first.
_MOST_FREE = 3


@dataclass(frozen=True, slots=True)
class OperatorForm:
    """An operator with the setting of its attributes, applied to one or two terms and then to the inputs in `tail`.

    Operands from the third on are inputs; an operator of more than three operands takes the first variables that fit
    for all but the first, in order, no variable twice.
    """

    op: str
    setting: Attrs
    arity: int
    tail: tuple[int, ...] = ()
    inputs_only: bool = False

    def typed(self, operands: Sequence[TensorType]) -> tuple[Label, tuple[TensorType, ...]] | None:
        """The label and the types of the outputs for operands of these types, tail included; None where none fit."""
        declared = spec(self.op)
        role = joint_role(declared.form, operands)
        if role is None:
            return None
        try:
            label = _interned(
                Label(self.op, declared.complete(with_values(self.setting, [t.static for t in operands])))
            )
            results = declared.result_types(list(operands), label.attrs)
        except (EqsatError, ArithmeticError, LookupError, TypeError, ValueError):
            return None
        if not all(t.is_static and 0 not in t.static for t in results):
            return None
        return label, tuple(
            RoledType(t.dtype, t.shape, role) if role else TensorType(t.dtype, t.shape) for t in results
        )


@cache
def _interned(label: Label) -> Label:
    """One object for each label, so that comparing labels is comparing identities."""
    return label


def with_values(setting: Mapping[str, Any], shapes: Sequence[Shape]) -> dict[str, Any]:
    """The setting with functions replaced by their values for the shapes of the operands."""
    return {k: v(*shapes) if callable(v) else v for k, v in setting.items()}


def attribute_settings(declared: OpSpec) -> tuple[Mapping[str, Any], ...]:
    """The settings of attributes to try; the defaults alone where the declaration names none."""
    return declared.instances or ({},)


def taking_part(names: Iterable[str] | None) -> tuple[str, ...]:
    """The operators named, or those with instances and all that users declare; UsageError for bad names.

    >>> taking_part(["add", "relu"])
    ('add', 'relu')
    """
    if names is None:
        return tuple(s.name for s in OPS.values() if (s.instances or not _own(s)) and not _barred(s))
    chosen = tuple(dict.fromkeys(names))
    for name in chosen:
        try:
            declared = spec(name)
        except GraphError as error:
            raise UsageError(
                f"no operator {name!r}", where="--ops", expected="declared operators", remedy=error.remedy
            ) from None
        reason = _barred(declared)
        if reason:
            raise UsageError(
                f"{name} takes no part in generation: {reason}",
                where="--ops",
                expected="operators of one output on floats, with instances for attributes that have no default",
                remedy="leave it out, or declare its instances",
            )
    return chosen


def _own(declared: OpSpec) -> bool:
    return declared.reference.__module__.partition(".")[0] == "eqsat"


def _barred(declared: OpSpec) -> str:
    """Why an operator cannot take part, or nothing."""
    if declared.random:
        return "its results are random"
    missing = [k for k, v in declared.attrs.items() if v is REQUIRED]
    if any(k not in setting for setting in attribute_settings(declared) for k in missing):
        return f"attribute {missing[0]!r} has neither a default nor instances"
    return ""


def load_operators(sources: Iterable[str]) -> None:
    """Import modules, or files by their paths, that declare operators; UsageError where one cannot be imported."""
    for source in sources:
        try:
            _load(source)
        except UsageError:
            raise
        except SyntaxError as error:
            where = f"{error.filename or source}:{error.lineno}:{error.offset}"
            raise UsageError(f"syntax: {error.msg}", where=where, expected="a Python module") from None
        except Exception as error:
            line = _last_line(error, source)
            raise UsageError(
                f"cannot be imported: {type(error).__name__}: {error}",
                where=line,
                expected="a module that declares operators with @eqsat.op",
                remedy="mend it, or name another module or file",
            ) from error


@cache
def _load(source: str) -> None:
    path = Path(source)
    if path.suffix != ".py":
        importlib.import_module(source)
        return
    if not path.is_file():
        raise UsageError("there is no such file", where=source, expected="a module, or the path of a file")
    name = f"eqsat_operators_{path.stem}"
    module_spec = importlib.util.spec_from_file_location(name, path)
    if module_spec is None or module_spec.loader is None:
        raise UsageError("is no Python file", where=source, expected="a module, or the path of a file")
    module = importlib.util.module_from_spec(module_spec)
    sys.modules[name] = module
    module_spec.loader.exec_module(module)


def _last_line(error: Exception, source: str) -> str:
    """File and line in the user's own code that raised, where there is one."""
    place, trace = source, error.__traceback__
    while trace is not None:
        filename = trace.tb_frame.f_code.co_filename
        if Path(filename).name == Path(source).name or filename.endswith(source.replace(".", "/") + ".py"):
            place = f"{filename}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def forms(names: Sequence[str], inputs: Sequence[TensorType], variables: int) -> list[OperatorForm]:
    """Every form of the operators over inputs of these types, the first of which are the variables."""
    listed: list[OperatorForm] = []
    for name in names:
        declared = spec(name)
        if declared.max_operands == 0:
            continue
        count = max(declared.min_operands, 2 if declared.max_operands is None else 1)
        for setting in attribute_settings(declared):
            form = OperatorForm(name, Attrs(setting), min(count, 2), inputs_only=declared.inputs_only)
            listed.extend(_with_tails(form, count, inputs, variables))
    return listed


def _with_tails(form: OperatorForm, count: int, inputs: Sequence[TensorType], variables: int) -> list[OperatorForm]:
    if count <= 2:
        return [form]
    if count <= _MOST_FREE:
        return [OperatorForm(form.op, form.setting, 2, (i,), form.inputs_only) for i in range(len(inputs))]
    first: dict[TensorType, list[int]] = {}
    for i in range(variables):
        first.setdefault(inputs[i], []).append(i)
    tails = [tuple(ids[: count - 1]) for ids in first.values() if len(ids) >= count - 1]
    return [OperatorForm(form.op, form.setting, 1, tail, form.inputs_only) for tail in tails]


def constants(names: Sequence[str], shapes: Iterable[Shape]) -> list[tuple[Label, TensorType]]:
    """Every constant that the operators without operands make in one of these shapes."""
    types: dict[Label, TensorType] = {}
    for name in names:
        declared = spec(name)
        if declared.max_operands != 0:
            continue
        for shape in dict.fromkeys(shapes):
            for setting in attribute_settings(declared):
                constant = _constant(declared, setting, shape)
                if constant is not None:
                    types.setdefault(*constant)
    return list(types.items())


def _constant(declared: OpSpec, setting: Mapping[str, Any], shape: Shape) -> tuple[Label, TensorType] | None:
    """The constant of a setting, where it has the shape wanted."""
    try:
        label = Label(declared.name, declared.complete(with_values(setting, [shape])))
        (type,) = declared.result_types([], label.attrs)
    except (EqsatError, ArithmeticError, LookupError, TypeError, ValueError):
        return None
    return (label, type) if type.shape == shape else None
