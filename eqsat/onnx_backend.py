"""ONNX's backend API on eqsat: models are imported, and run on the operators' references.

This is the module to hand to `onnx.backend.test`:

    onnx.backend.test.BackendTest(eqsat.onnx_backend, __name__)

Importing it imports onnx, which takes a moment.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
from onnx import ModelProto, NodeProto, defs, helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from eqsat.errors import BackendError
from eqsat.language.onnx.files.tensors import number_of
from eqsat.language.onnx.read.importer import load
from eqsat.language.terms import DType, Graph
from eqsat.runtime.backend import select

#: Tests of `onnx.backend.test` that cannot pass, by pattern of their names, with the reason; every other one passes.
EXCLUSIONS: Mapping[str, str] = MappingProxyType(
    {
        r"^test_bernoulli": "random numbers: the expected ones come from another generator",
        r"^test_image_decoder_": "onnx.reference decodes images with Pillow, on which eqsat does not depend",
        r"^test_not_[234]d$": "a model of opset 1; eqsat reads opset 7 and later",
        r"^test_range_.*_expanded$": "a Loop; onnx.reference gives its stacked results a dimension too many",
        r"^test_scan_sum$": "a Scan of opset 8, which onnx.reference does not run",
        r"^test_if_opt$": "an If on optionals; onnx.reference gives a list where the test expects a tensor",
        r"^test_loop16_seq_none$": "a Loop on optionals; the test compares values of types it does not know",
    }
)


def exclusion(name: str) -> str | None:
    """Why a test of `onnx.backend.test` cannot pass, or None."""
    return next((reason for pattern, reason in EXCLUSIONS.items() if re.search(pattern, name)), None)


class EqsatRep(BackendRep):  # type: ignore[misc]
    """An imported model, ready to run; `graph` is the imported graph."""

    def __init__(self, graph: Graph, backend: str) -> None:
        self.graph = graph
        self._program = select(backend).compile(graph)

    def run(self, inputs: Any, **kwargs: Any) -> Any:
        """The outputs in the model's order, arrays in a tuple that also has them by name.

        Inputs are a mapping by name, or a sequence in the order of the graph's inputs; those for which the model brings
        defaults may be left out at its end. BackendError for inputs whose number or shapes do not fit.
        """
        given = inputs if isinstance(inputs, Mapping) else self._named(inputs)
        outputs = self._program.run(given)
        return namedtupledict("Outputs", list(outputs))(*outputs.values())

    def _named(self, inputs: Any) -> dict[str, Any]:
        values = list(inputs) if isinstance(inputs, list | tuple) else [inputs]
        if len(values) > len(self.graph.inputs):
            raise BackendError(
                f"{len(values)} inputs for {len(self.graph.inputs)}",
                where=self.graph.name,
                expected="inputs " + ", ".join(self.graph.inputs),
            )
        return dict(zip(self.graph.inputs, values, strict=False))


class EqsatBackend(Backend):  # type: ignore[misc]
    """ONNX's backend interface; devices are those of the chosen runtime, a CPU."""

    @classmethod
    def prepare(cls, model: ModelProto, device: str = "CPU", *, backend: str = "numpy", **kwargs: Any) -> EqsatRep:
        """The model imported; ImportModelError where it cannot be. `backend` names the runtime.

        BackendError for a device that is no CPU, and for a runtime that is none or cannot be used.
        """
        cls._check_device(device)
        return EqsatRep(load(model), backend)

    @classmethod
    def run_model(cls, model: ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> Any:
        """The outputs of a model for inputs of the shapes it states; errors are those of `prepare` and `run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[Any, tuple[int, ...]]] | None = None,
        *,
        opset: int | None = None,
        **kwargs: Any,
    ) -> Any:
        """The outputs of one node on arrays, at the newest opset unless told."""
        read = [n for n in node.input if n]
        given = dict(inputs) if isinstance(inputs, Mapping) else dict(zip(read, inputs, strict=True))
        graph = helper.make_graph(
            [node],
            node.op_type,
            [_value_info(name, array) for name, array in given.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output if name],
        )
        imports = [helper.make_opsetid(node.domain, opset or defs.onnx_opset_version())]
        return cls.run_model(helper.make_model(graph, opset_imports=imports), given, device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """True for the CPU."""
        return device.split(":")[0] == "CPU"

    @classmethod
    def _check_device(cls, device: str) -> None:
        if not cls.supports_device(device):
            raise BackendError(f"no device {device!r}", expected="CPU")


def _value_info(name: str, array: Any) -> Any:
    data = np.asarray(array)
    return helper.make_tensor_value_info(name, number_of(DType.of(data.dtype)), data.shape)


prepare = EqsatBackend.prepare
run_model = EqsatBackend.run_model
run_node = EqsatBackend.run_node
supports_device = EqsatBackend.supports_device
