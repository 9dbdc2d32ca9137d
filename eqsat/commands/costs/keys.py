"""Keys to measure for a model: its operators, and those of every graph in its e-graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from eqsat.costs.devices.device import Device
    from eqsat.costs.kernels.fusion import Key
    from eqsat.costs.kernels.implementations import Choices
    from eqsat.language.terms.graph import Graph


def keys_of_model(
    model: Path, device: Device, sizes: Mapping[str, int], choices: Choices, fused: int, dtype: str = "float32"
) -> Iterator[Key]:
    """The operators of a model, then those of every graph its e-graph holds, and the ways they can be run.

    Another `dtype` stands for float32 throughout.
    """
    from eqsat.costs.kernels.applications import keys_of
    from eqsat.extract.tensors.candidates import candidates
    from eqsat.language.sizes.solve import sizing_of
    from eqsat.options.options import Options
    from eqsat.run import Run

    graph = read_as(model, dtype)
    sizing = sizing_of(graph)
    sizes = sizing.near(sizes) or sizing.completed(sizes)
    yield from keys_of(graph, sizes)
    run = Run.read(graph, Options.of("optimize", {"device": device, "sizes": dict(sizes), "measure": False}))
    yield from candidates(run.saturate(run.rules).snapshot, device, choices, sizes, fused)


def read_as(model: Path, dtype: str) -> Graph:
    """A model as a graph, in float32 as it was given or with another element type throughout."""
    from eqsat.bench.case import narrowed
    from eqsat.language.onnx.read.importer import load
    from eqsat.language.terms.types import DType

    graph = load(model)
    return graph if dtype == DType.FLOAT32.value else narrowed(graph, DType.of(dtype))


def light_models() -> list[Path]:
    """The networks in the onnx package."""
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("*.onnx"))
