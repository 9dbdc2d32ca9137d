"""Writes the exported fixtures of tests/models: `python -m benchmarks.models.export [NAME …]`.

Needs torch, torchvision, transformers and onnxscript (the extra "models"); nothing else here does. Every parameter
and buffer is made generic first: an exporter makes equal tensors one, and a fresh network is full of zeros and ones.
The weights are then stripped, so a fixture holds what the exporter decided: operators, attributes, shapes, constants.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from onnx import GraphProto, ModelProto

from benchmarks.models.stripped import strip

FIXTURES = Path(__file__).parents[2] / "tests" / "models"
_CLASSIC_OPSET = 17
# Attention written out as products and a softmax; "sdpa" adds a guard against rows that are masked entirely.
_ATTENTION = "eager"

# The CPU build of torch lacks the kernels torchvision registers; the schema alone lets it import.
_LIBRARY = torch.library.Library("torchvision", "DEF")
for _operator in ("nms", "qnms"):
    _LIBRARY.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

Export = Callable[[], ModelProto]


class _First(torch.nn.Module):
    """A transformers model as a function of tensors that returns only its first output."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model = model
        self.names = names
        self.eval()

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


def _generic(model: torch.nn.Module) -> torch.nn.Module:
    """Small random changes to every parameter and running statistic, so that no two are alike."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for tensor in model.parameters():
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=0.02)
        for name, tensor in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                tensor.add_(torch.rand(tensor.shape, generator=generator), alpha=0.1)
    return model.eval()


def _export(
    model: torch.nn.Module,
    inputs: Mapping[str, torch.Tensor],
    *,
    dynamo: bool = False,
    dynamic: Mapping[str, Mapping[int, str]] | None = None,
    keep_batch_norm: bool = False,
) -> ModelProto:
    options: dict[str, Any] = {"input_names": list(inputs), "output_names": ["output"], "dynamo": dynamo}
    if dynamo:
        if dynamic:
            dims = {name: torch.export.Dim(name, min=1) for dim in dynamic.values() for name in dim.values()}
            shapes = [{axis: dims[dim] for axis, dim in dynamic[name].items()} for name in inputs]
            options["dynamic_shapes"] = (tuple(shapes),)
    else:
        options["opset_version"] = _CLASSIC_OPSET
        options["dynamic_axes"] = {name: dict(axes) for name, axes in (dynamic or {}).items()}
        if keep_batch_norm:
            options["training"] = torch.onnx.TrainingMode.PRESERVE
            options["do_constant_folding"] = False
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        torch.onnx.export(model, tuple(inputs.values()), str(path), **options)
        return onnx.load(path)


def _bert(layers: int = 12) -> torch.nn.Module:
    from transformers import BertConfig, BertModel

    config = BertConfig(num_hidden_layers=layers, attn_implementation=_ATTENTION)
    return _First(_generic(BertModel(config)), ["input_ids", "attention_mask"])


def _text(batch: int = 1, sequence: int = 128) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, 8000, (batch, sequence))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _vit() -> torch.nn.Module:
    from transformers import ViTConfig, ViTModel

    return _First(_generic(ViTModel(ViTConfig(attn_implementation=_ATTENTION))), ["pixel_values"])


def _llama() -> torch.nn.Module:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=8000,
        hidden_size=512,
        intermediate_size=1376,
        num_hidden_layers=4,
        num_attention_heads=8,
        num_key_value_heads=4,
        max_position_embeddings=1024,
        use_cache=False,
        attn_implementation=_ATTENTION,
    )
    return _First(_generic(LlamaForCausalLM(config)), ["input_ids", "attention_mask"])


def _vision(name: str, *, side: int = 224, **options: Any) -> ModelProto:
    import torchvision

    build = getattr(torchvision.models, name)
    model = _generic(build(weights=None, **({"init_weights": False} if name == "inception_v3" else {})))
    return _export(model, {"image": torch.randn(1, 3, side, side)}, **options)


_SIZES = {0: "batch", 1: "sequence"}
_DYNAMIC = {"input_ids": _SIZES, "attention_mask": _SIZES}
EXPORTS: dict[str, Export] = {
    "bert_base": lambda: _export(_bert(), _text()),
    "bert_base_dynamo": lambda: _export(_bert(), _text(), dynamo=True),
    "bert_base_dynamic": lambda: _export(_bert(), _text(2), dynamic=_DYNAMIC),
    "bert_base_dynamic_dynamo": lambda: _export(_bert(), _text(2), dynamic=_DYNAMIC, dynamo=True),
    "bert_48_layers": lambda: _export(_bert(48), _text()),
    "vit_base": lambda: _export(_vit(), {"pixel_values": torch.randn(1, 3, 224, 224)}),
    "llama": lambda: _export(_llama(), _text()),
    "llama_dynamo": lambda: _export(_llama(), _text(), dynamo=True),
    "llama_dynamic": lambda: _export(_llama(), _text(2), dynamic=_DYNAMIC),
    "llama_dynamic_dynamo": lambda: _export(_llama(), _text(2), dynamic=_DYNAMIC, dynamo=True),
    "resnet50": lambda: _vision("resnet50", keep_batch_norm=True),
    "resnet50_dynamo": lambda: _vision("resnet50", dynamo=True),
    "resnext50": lambda: _vision("resnext50_32x4d", keep_batch_norm=True),
    "inception_v3": lambda: _vision("inception_v3", side=299, keep_batch_norm=True),
    "squeezenet1_1": lambda: _vision("squeezenet1_1"),
    "vgg19": lambda: _vision("vgg19"),
    "mobilenet_v2": lambda: _vision("mobilenet_v2"),
}


def _without_comments(model: ModelProto) -> ModelProto:
    """Drops stack traces and other notes of the exporter, which hold paths of the machine it ran on."""

    def clear(graph: GraphProto) -> None:
        for item in [graph, *graph.node, *graph.initializer, *graph.input, *graph.output, *graph.value_info]:
            item.ClearField("doc_string")
            item.ClearField("metadata_props")
        for node in graph.node:
            for attribute in node.attribute:
                attribute.ClearField("doc_string")
                for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                    clear(inner)

    clear(model.graph)
    return model


def main(names: list[str]) -> None:
    FIXTURES.mkdir(parents=True, exist_ok=True)
    for name in names or EXPORTS:
        torch.manual_seed(0)
        data = strip(_without_comments(EXPORTS[name]())).SerializeToString(deterministic=True)
        (FIXTURES / f"{name}.onnx").write_bytes(data)
        print(f"{name}: {len(data) / 1000:.0f} kB", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
