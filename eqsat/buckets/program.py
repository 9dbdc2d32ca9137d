"""A program for each bucket, made once, and the one that inputs fall into."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from eqsat.buckets.padding import leak_of
from eqsat.errors import BackendError
from eqsat.language.sizes.buckets import Bucket, Buckets, sizes_in
from eqsat.language.terms import Graph, Sym, TensorType, evaluate
from eqsat.runtime.backend import Program
from eqsat.runtime.inputs import checked_inputs


class BucketProgram:
    """Programs by bucket; a call runs the one of the smallest bucket that holds the inputs.

    With `pad`, inputs are padded with zeros to the end of their bucket and outputs cropped, so that each program sees
    one size alone; without it programs run at the size that inputs have.
    """

    def __init__(self, graph: Graph, buckets: Buckets, programs: Mapping[Bucket, Program], pad: bool) -> None:
        self.graph, self.buckets, self.programs, self.pad = graph, buckets, programs, pad

    def __call__(self, **inputs: Any) -> dict[str, Any]:
        """The outputs by name for inputs by name, as `run` has it."""
        return self.run(inputs)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name; BackendError for inputs that do not fit the graph or are beyond the largest bucket."""
        return self.bind(inputs)()

    def bind(self, inputs: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """A call that runs the program of these inputs on them, checked once."""
        checked = checked_inputs(self.graph, inputs)
        sizes = sizes_in(self.graph, checked)
        bucket = self.buckets.around(sizes, self.graph.name)
        program = self.programs[bucket]
        ends = dict(bucket)
        if not self.pad or all(sizes[name] == end for name, end in bucket):
            return lambda: program.run(checked)
        wide = {name: self._padded(name, array, ends) for name, array in checked.items()}
        return lambda: self._cropped(program.run(wide), sizes)

    def _padded(self, name: str, array: Any, ends: Mapping[str, int]) -> Any:
        type = self.graph.type(name)
        if not isinstance(type, TensorType) or type.shape is None:
            return array
        shape = np.shape(array)
        target = [ends.get(str(d), s) if isinstance(d, Sym) else s for d, s in zip(type.shape, shape, strict=True)]
        return np.pad(array, [(0, new - old) for old, new in zip(shape, target, strict=True)])

    def _cropped(self, outputs: Mapping[str, Any], sizes: Mapping[str, int]) -> dict[str, Any]:
        cropped: dict[str, Any] = {}
        for name, array in outputs.items():
            type = self.graph.type(self.graph.outputs[name])
            whole = not isinstance(type, TensorType) or type.shape is None
            known = () if whole else tuple(_known(d, sizes) for d in type.shape or ())  # type: ignore[union-attr]
            cropped[name] = array if whole else array[tuple(slice(0, size) for size in known)]
        return cropped


def _known(dim: object, sizes: Mapping[str, int]) -> int | None:
    """The size of a dim; None where the inputs do not show it, and nothing is cropped."""
    if isinstance(dim, Sym) and not dim.names() <= sizes.keys():
        return None
    return evaluate(dim, sizes) if isinstance(dim, int | Sym) else None


def may_pad(graphs: Mapping[Bucket, Graph], buckets: Buckets, asked: bool | None, by_size: bool) -> bool:
    """Return whether inputs are padded: if that was asked for, or was left open and the runtime compiles `by_size`.

    Padding that may leak is refused by a BackendError where it was asked for, and else not done.
    """
    if asked is False or (asked is None and not by_size):
        return False
    for bucket, graph in graphs.items():
        leak = leak_of(graph, buckets.ends)
        if leak is not None and asked:
            raise BackendError(
                f"padding may leak into {leak}",
                where=f"{graph.name}, bucket {dict(bucket)}",
                expected="a graph of which it is proved that padding changes no output",
                remedy="run it without padding, which computes at the size that inputs have",
            )
        if leak is not None:
            return False
    return True
