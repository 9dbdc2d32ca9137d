"""The calling convention of an exported program: tensors in any nesting to inputs by name, and outputs back."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export.graph_signature import ConstantArgument, SymIntArgument
from torch.utils import _pytree as pytree

from eqsat.errors import UsageError
from eqsat.language.pytorch.tensors import array_of, tensor_of


@dataclass(frozen=True)
class Fixed:
    """An input or output that is no tensor: the graph holds for this value alone."""

    value: Any


@dataclass(frozen=True)
class Size:
    """An output that is a whole number, which the graph computes as a tensor of that name."""

    name: str


@dataclass(frozen=True)
class Convention:
    """The values at each place of the nested inputs and outputs of a program.

    `inputs` and `outputs` are names of the graph's, in the order of the flattened trees. `arguments` are those of the
    forward method by name, positional ones first. `ranges` are the axes of an input whose sizes may vary, each with
    the least and the greatest size that the program was traced for.
    """

    where: str
    inputs: tuple[str | Fixed, ...]
    outputs: tuple[str | Fixed | Size, ...]
    input_tree: Any
    output_tree: Any
    arguments: tuple[str, ...]
    ranges: Mapping[str, tuple[tuple[int, int, float], ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, program: torch.export.ExportedProgram, inputs: Sequence[str], outputs: Sequence[str], where: str
    ) -> Convention:
        """The convention of an exported program, whose tensors a graph calls by these names, in order."""
        signature, spec = program.graph_signature, program.call_spec
        tree = spec.in_spec
        count, keywords = tree.child(0).num_children, tree.child(1).context or ()
        named = program.module_call_graph[0].signature
        names = tuple(getattr(named, "forward_arg_names", None) or ()) or tuple(
            [f"#{i}" for i in range(count)] + list(keywords)
        )
        taken = iter(inputs)
        by_name = dict(zip((v for v in signature.user_inputs if isinstance(v, str)), inputs, strict=True))
        return cls(
            where,
            tuple(next(taken) if isinstance(value, str) else Fixed(value) for value in signature.user_inputs),
            _output_places(signature, outputs),
            tree,
            spec.out_spec,
            names,
            {by_name[n]: ranges for n, ranges in _ranges(program) if n in by_name and ranges},
        )

    def feeds(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Arrays by input name for the arguments of a call; UsageError for a call of another form."""
        flat, tree = pytree.tree_flatten(self._ordered(args, kwargs))
        if tree != self.input_tree:
            raise UsageError(
                "a call of another form than the example inputs",
                where=self.where,
                expected=f"arguments nested like {self.input_tree}",
                remedy="call it as the module was called when it was exported",
            )
        feeds = {}
        for place, value in zip(self.inputs, flat, strict=True):
            if isinstance(place, Fixed):
                if value is not place.value and value != place.value:
                    raise UsageError(
                        f"an argument is {value!r}",
                        where=self.where,
                        expected=f"{place.value!r}, which the module was traced with",
                        remedy="optimise it again for other values",
                    )
            elif isinstance(value, torch.Tensor):
                self._check_sizes(place, value)
                feeds[place] = array_of(value)
            else:
                raise UsageError(
                    f"argument {place!r} is a {type(value).__name__}", where=self.where, expected="a torch.Tensor"
                )
        return feeds

    def nested(self, made: Mapping[str, Any]) -> Any:
        """The outputs of a run nested as the module returns them, as tensors."""
        flat = [_output(place, made) for place in self.outputs]
        return pytree.tree_unflatten(flat, self.output_tree)

    def _check_sizes(self, name: str, value: torch.Tensor) -> None:
        for axis, least, most in self.ranges.get(name, ()):
            if axis < value.ndim and not least <= value.shape[axis] <= most:
                raise UsageError(
                    f"axis {axis} of {name!r} has size {value.shape[axis]}",
                    where=self.where,
                    expected=f"{least} to {most:g}, which torch.export traced it for",
                    remedy="optimise it again with example inputs of that size",
                )

    def _ordered(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments where the example inputs had them: by position or by name."""
        count = self.input_tree.child(0).num_children
        by_name = {**dict(zip(self.arguments, args, strict=False)), **kwargs}
        keywords = list(self.input_tree.child(1).context or ())
        wanted = [*self.arguments[:count], *keywords]
        if len(args) > len(self.arguments) or set(by_name) != set(wanted) or len(by_name) != len(args) + len(kwargs):
            raise UsageError(
                f"called with {len(args)} positional and {sorted(kwargs)} keyword arguments",
                where=self.where,
                expected=f"{', '.join(wanted)}, as in the example inputs",
            )
        return tuple(by_name[n] for n in wanted[:count]), {n: by_name[n] for n in keywords}


def _ranges(program: torch.export.ExportedProgram) -> Iterator[tuple[str, tuple[tuple[int, int, float], ...]]]:
    """The axes of each input whose sizes vary, with the sizes that they may have."""
    for node in program.graph_module.graph.nodes:
        value = node.meta.get("val") if node.op == "placeholder" else None
        if isinstance(value, torch.Tensor):
            yield node.name, tuple(_axes(value, program.range_constraints))


def _axes(value: torch.Tensor, constraints: Mapping[Any, Any]) -> Iterator[tuple[int, int, float]]:
    for axis, size in enumerate(value.shape):
        limits = constraints.get(size.node.expr) if isinstance(size, torch.SymInt) else None
        if limits is not None:
            yield axis, int(limits.lower), float("inf") if limits.upper > sys.maxsize else float(int(limits.upper))


def _output_places(signature: Any, names: Sequence[str]) -> tuple[str | Fixed | Size, ...]:
    """The place of each output among those of a graph, which leaves out the fixed ones and has repeated ones once."""
    made = iter(names)
    named: dict[str, str] = {}
    places: list[str | Fixed | Size] = []
    for spec in signature.output_specs:
        argument = spec.arg
        if isinstance(argument, ConstantArgument):
            places.append(Fixed(argument.value))
            continue
        if argument.name not in named:
            named[argument.name] = next(made)
        name = named[argument.name]
        places.append(Size(name) if isinstance(argument, SymIntArgument) else name)
    return tuple(places)


def _output(place: str | Fixed | Size, made: Mapping[str, Any]) -> Any:
    if isinstance(place, Fixed):
        return place.value
    return int(made[place.name]) if isinstance(place, Size) else tensor_of(made[place])
