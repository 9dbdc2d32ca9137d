"""PyTorch as a peer: eager, and compiled at its best setting."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from eqsat.bench.case import BenchCase
from eqsat.bench.contender import Loaded
from eqsat.bench.torch_words import dtype_of, torch_words
from eqsat.bench.words import result_shapes
from eqsat.errors import BackendError
from eqsat.language.terms import DType, Graph


class TorchPeer:
    """The model as a module of PyTorch; `mode` is that of torch.compile, eager where it is empty."""

    ours = False

    def __init__(self, mode: str = "") -> None:
        self.mode = mode
        self.name = f"torch.compile {mode}" if mode else "torch eager"

    def missing(self, case: BenchCase) -> str | None:
        """Why PyTorch cannot take part."""
        if importlib.util.find_spec("torch") is None:
            return "torch is not installed"
        torch: Any = importlib.import_module("torch")
        return "torch sees no GPU" if case.on_gpu and not torch.cuda.is_available() else None

    def load(self, case: BenchCase) -> Loaded:
        """The module with the case's weights on its device, compiled where asked for."""
        torch: Any = importlib.import_module("torch")
        _configure(torch, case)
        place = "cuda" if case.on_gpu else "cpu"
        module = _module(torch, case.graph).to(place).eval()
        called = torch.compile(module, mode=self.mode, fullgraph=True) if self.mode else module

        def run(inputs: Sequence[Any]) -> Sequence[Any]:
            with torch.inference_mode():
                results: Sequence[Any] = called(*inputs)
            if case.on_gpu:
                torch.cuda.synchronize()
            return results

        def moved(inputs: Mapping[str, Any]) -> list[Any]:
            return [_tensor(torch, inputs[name]).to(place) for name in case.graph.inputs]

        def outputs(inputs: Mapping[str, Any]) -> dict[str, Any]:
            given = moved(inputs)
            lasting = [*given, *module.buffers()]
            with torch.inference_mode():
                # A captured graph writes where the run before it wrote, an allocator gives what was given back.
                for tensor in (t for t in run(given) if t.is_floating_point() and not _lies_in(t, lasting)):
                    tensor.fill_(float("nan"))
            results = run(given)
            return {name: _array(t) for name, t in zip(case.graph.outputs, results, strict=True)}

        return Loaded(partial(run, moved(case.inputs(0))), outputs, lambda: _release(torch))


def _lies_in(tensor: Any, others: Sequence[Any]) -> bool:
    """Return whether an output lies in the memory of an input or a weight, as that of a reshape does."""
    storage = tensor.untyped_storage().data_ptr()
    return any(other.untyped_storage().data_ptr() == storage for other in others)


def _configure(torch: Any, case: BenchCase) -> None:
    """The same arithmetic as everyone's: TF32 for products or not, and as many threads."""
    torch.backends.cuda.matmul.allow_tf32 = case.tf32
    torch.backends.cudnn.allow_tf32 = case.tf32
    torch.backends.cudnn.benchmark = True
    if not case.on_gpu:
        torch.set_num_threads(case.threads)


def _release(torch: Any) -> None:
    torch.compiler.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


def _module(torch: Any, graph: Graph) -> Any:
    """The graph as a module: constants are buffers, and each operator is the function PyTorch has for it."""
    words = torch_words(torch)
    steps = []
    for node in graph.nodes:
        if node.op not in words:
            raise BackendError(f"PyTorch has no word here for {node.op}", where=graph.name)
        function = partial(words[node.op], dict(node.attrs), result_shapes(graph, node))
        steps.append((function, node.inputs, node.outputs))
    numbers = {value: f"c{i}" for i, value in enumerate(graph.constants)}

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            for value, name in numbers.items():
                self.register_buffer(name, _tensor(torch, graph.constants[value].array))

        def forward(self, *inputs: Any) -> tuple[Any, ...]:
            values: dict[str, Any] = dict(zip(names, inputs, strict=True))
            for value, name in numbers.items():
                values[value] = getattr(self, name)
            for function, operands, results in steps:
                outcome = function(*(None if v is None else values[v] for v in operands))
                several = outcome if isinstance(outcome, tuple | list) else (outcome,)
                for value, one in zip(results, several, strict=True):
                    values[value] = one
            return tuple(values[value] for value in outputs)

    names, outputs = tuple(graph.inputs), tuple(graph.outputs.values())
    return Model()


def _tensor(torch: Any, array: Any) -> Any:
    """An array as a tensor; element types that NumPy does not know go by their bits."""
    data = np.array(array, order="C")
    dtype = DType.of(data.dtype)
    if dtype is DType.BFLOAT16:
        return torch.from_numpy(data.view(np.int16)).view(dtype_of(torch, dtype.value))
    return torch.from_numpy(data)


def _array(tensor: Any) -> Any:
    wide = tensor.float() if tensor.is_floating_point() and tensor.element_size() == 2 else tensor
    return wide.detach().cpu().numpy().copy()
