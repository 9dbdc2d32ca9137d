"""Small models of PyTorch with random weights, and their example inputs; needs the extra "torch"."""

from collections.abc import Callable
from typing import Any

import torch
import transformers

Model = tuple[torch.nn.Module, dict[str, torch.Tensor]]


def _tokens(vocabulary: int, batch: int = 2, length: int = 12) -> dict[str, torch.Tensor]:
    ids = torch.randint(0, vocabulary, (batch, length))
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _pixels(side: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, side, side)}


def _bert() -> Model:
    config = transformers.BertConfig(
        vocab_size=300, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128
    )
    return transformers.BertModel(config), _tokens(300)


def _vit() -> Model:
    config = transformers.ViTConfig(
        hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128, image_size=32, patch_size=8
    )
    return transformers.ViTModel(config), _pixels(32)


def _llama() -> Model:
    config = transformers.LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
        use_cache=False,
    )
    return transformers.LlamaForCausalLM(config), _tokens(300)


def _resnet() -> Model:
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 2], layer_type="basic", num_labels=5
    )
    return transformers.ResNetForImageClassification(config), _pixels(32)


#: Builders by the name of the model.
MODELS: dict[str, Callable[[], Model]] = {"bert": _bert, "vit": _vit, "llama": _llama, "resnet": _resnet}


def build(name: str) -> Model:
    """A model for inference whose parameters and running statistics are random, and its example inputs."""
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    with torch.no_grad():
        for tensor in module.parameters():
            tensor.add_(torch.randn_like(tensor), alpha=0.02)
        for buffer, tensor in module.named_buffers():
            if buffer.endswith("running_var"):
                tensor.add_(torch.rand_like(tensor))
    return module.eval(), inputs


def largest_difference(ours: Any, theirs: Any) -> float:
    """The largest difference of the tensors of two nested outputs of the same form."""
    from torch.utils import _pytree as pytree

    left, form = pytree.tree_flatten(ours)
    right, other = pytree.tree_flatten(theirs)
    assert form == other
    return max(float((a - b).abs().max()) for a, b in zip(left, right, strict=True))
