"""Models of today's libraries with random weights, exported as their users do: `python exports.py FOLDER [NAME …]`.

Runs in an environment with PyTorch, transformers, torchvision, timm and skl2onnx, without eqsat and without a network:
every model is made from a configuration. A model whose export fails is said so and left out.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

# The CPU build of torch lacks the kernels torchvision registers; the schema alone lets it import.
_LIBRARY = torch.library.Library("torchvision", "DEF")
for _operator in ("nms", "qnms"):
    _LIBRARY.define(f"{_operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")

_SEED = 0
_TEXT, _BATCH, _SIDE = 128, 1, 224

Tensors = Mapping[str, torch.Tensor]


class _First(torch.nn.Module):
    """A transformers model as a function of tensors that returns its first output."""

    def __init__(self, model: torch.nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model.eval(), names

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, inputs, strict=True)), return_dict=False)[0]


def _text(model: str, **config: Any) -> tuple[torch.nn.Module, Tensors]:
    """A language model of a small configuration, and tokens."""
    import transformers

    sizes = {"vocab_size": 1000, "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 8, **config}
    built = getattr(transformers, model)
    made = built(built.config_class(**sizes))
    ids = torch.randint(3, 1000, (_BATCH, _TEXT))
    names = ("input_ids", "attention_mask")
    return _First(made, names), dict(zip(names, (ids, torch.ones_like(ids)), strict=True))


def _decoder(model: str, **config: Any) -> tuple[torch.nn.Module, Tensors]:
    shared = {"intermediate_size": 688, "num_key_value_heads": 2, "max_position_embeddings": 512, "use_cache": False}
    return _text(model, **{**shared, **config})


def _pixels(model: str, side: int = _SIDE, **config: Any) -> tuple[torch.nn.Module, Tensors]:
    """A vision model of transformers, and an image."""
    import transformers

    built = getattr(transformers, model)
    return _First(built(built.config_class(**config)), ("pixel_values",)), {
        "pixel_values": torch.randn(_BATCH, 3, side, side)
    }


def _encoder(**config: Any) -> dict[str, Any]:
    """The sizes of a small vision transformer."""
    sizes = {"hidden_size": 192, "num_hidden_layers": 4, "num_attention_heads": 3, "intermediate_size": 768}
    return {**sizes, **config}


def _speech() -> tuple[torch.nn.Module, Tensors]:
    from transformers import Wav2Vec2Config, Wav2Vec2Model

    config = Wav2Vec2Config(hidden_size=256, num_hidden_layers=2, num_attention_heads=8, intermediate_size=512)
    return _First(Wav2Vec2Model(config), ("input_values",)), {"input_values": torch.randn(_BATCH, 16000)}


def _whisper() -> tuple[torch.nn.Module, Tensors]:
    from transformers import WhisperConfig
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    config = WhisperConfig(d_model=256, encoder_layers=2, encoder_attention_heads=8, encoder_ffn_dim=1024)
    return _First(WhisperEncoder(config), ("input_features",)), {"input_features": torch.randn(_BATCH, 80, 3000)}


def _torchvision(name: str, side: int = _SIDE, **config: Any) -> tuple[torch.nn.Module, Tensors]:
    import torchvision

    family = torchvision.models.segmentation if hasattr(torchvision.models.segmentation, name) else torchvision.models
    made = getattr(family, name)(weights=None, **config).eval()
    return _Dense(made), {"image": torch.randn(_BATCH, 3, side, side)}


class _Dense(torch.nn.Module):
    """A model whose result may be a mapping, of which the first is returned."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.model = model.eval()

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        made = self.model(image)
        return next(iter(made.values())) if isinstance(made, dict) else made


def _timm(name: str, side: int = _SIDE, **config: Any) -> tuple[torch.nn.Module, Tensors]:
    import timm

    return _Dense(timm.create_model(name, pretrained=False, **config)), {"image": torch.randn(_BATCH, 3, side, side)}


class _Recurrent(torch.nn.Module):
    """Tokens through two layers of a recurrent network both ways, to classes."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(1000, 128)
        self.layers = getattr(torch.nn, kind)(128, 128, num_layers=2, bidirectional=True, batch_first=True)
        self.head = torch.nn.Linear(256, 10)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        made, _ = self.layers(self.embedding(tokens))
        return self.head(made.mean(dim=1))


def _recurrent(kind: str) -> tuple[torch.nn.Module, Tensors]:
    return _Recurrent(kind).eval(), {"tokens": torch.randint(0, 1000, (_BATCH, 64))}


class _UNet(torch.nn.Module):
    """Convolutions down and up again, by transposed convolution and by resizing."""

    def __init__(self) -> None:
        super().__init__()
        nn = torch.nn
        self.first = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.GroupNorm(8, 32), nn.SiLU())
        self.down = nn.Sequential(
            nn.Conv2d(32, 64, 3, stride=2, padding=1), nn.InstanceNorm2d(64, affine=True), nn.SiLU()
        )
        self.deep = nn.Sequential(nn.Conv2d(64, 128, 3, stride=2, padding=1), nn.GroupNorm(8, 128), nn.SiLU())
        self.up = nn.ConvTranspose2d(128, 64, 2, stride=2)
        self.last = nn.Conv2d(96, 3, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        first = self.first(image)
        down = self.down(first)
        up = self.up(self.deep(down)) + down
        wide = torch.nn.functional.interpolate(up, scale_factor=2.0, mode="bilinear", align_corners=False)
        return self.last(torch.cat([wide, first], dim=1))


def _unet() -> tuple[torch.nn.Module, Tensors]:
    return _UNet().eval(), {"image": torch.randn(_BATCH, 3, 128, 128)}


Built = Callable[[], tuple[torch.nn.Module, Tensors]]
_BERT = {"intermediate_size": 1024}
MODELS: dict[str, Built] = {
    "albert": partial(_text, "AlbertModel", embedding_size=64, **_BERT),
    "bert": partial(_text, "BertModel", **_BERT),
    "deberta_v2": partial(_text, "DebertaV2Model", **_BERT),
    "distilbert": partial(_text, "DistilBertModel", dim=256, n_layers=2, n_heads=8, hidden_dim=1024),
    "electra": partial(_text, "ElectraModel", embedding_size=128, **_BERT),
    "gemma2": partial(_decoder, "Gemma2ForCausalLM", head_dim=32),
    "gpt2": partial(_text, "GPT2LMHeadModel", use_cache=False),
    "gpt_neox": partial(_text, "GPTNeoXForCausalLM", use_cache=False, **_BERT),
    "llama": partial(_decoder, "LlamaForCausalLM"),
    "minilm": partial(_text, "BertModel", hidden_size=384, num_attention_heads=12, intermediate_size=1536),
    "mistral": partial(_decoder, "MistralForCausalLM"),
    "modernbert": partial(_text, "ModernBertModel", intermediate_size=512, pad_token_id=0),
    "mpnet": partial(_text, "MPNetModel", **_BERT),
    "opt": partial(_text, "OPTForCausalLM", ffn_dim=1024, word_embed_proj_dim=256, use_cache=False),
    "phi3": partial(_decoder, "Phi3ForCausalLM", pad_token_id=0),
    "qwen2": partial(_decoder, "Qwen2ForCausalLM"),
    "qwen3": partial(_decoder, "Qwen3ForCausalLM", head_dim=32),
    "roberta": partial(_text, "RobertaModel", max_position_embeddings=200, **_BERT),
    "t5_encoder": partial(_text, "T5EncoderModel", d_model=256, d_ff=1024, d_kv=32, num_layers=2, num_heads=8),
    "wav2vec2": _speech,
    "whisper_encoder": _whisper,
    "clip_vision": partial(_pixels, "CLIPVisionModel", **_encoder(patch_size=16)),
    "convnext": partial(_pixels, "ConvNextModel", depths=[1, 1, 2, 1]),
    "dinov2": partial(_pixels, "Dinov2Model", **_encoder(patch_size=14)),
    "dpt_swin": partial(_pixels, "SwinModel", depths=[1, 1, 2, 1]),
    "mobilevit": partial(_pixels, "MobileViTModel", side=256),
    "resnet": partial(_pixels, "ResNetModel", depths=[1, 1, 1, 1]),
    "segformer": partial(_pixels, "SegformerForSemanticSegmentation", depths=[1, 1, 1, 1]),
    "vit": partial(_pixels, "ViTModel", **_encoder()),
    "tv_deeplabv3": partial(_torchvision, "deeplabv3_mobilenet_v3_large", weights_backbone=None),
    "tv_densenet121": partial(_torchvision, "densenet121"),
    "tv_efficientnet_b0": partial(_torchvision, "efficientnet_b0"),
    "tv_googlenet": partial(_torchvision, "googlenet", init_weights=False, aux_logits=False),
    "tv_mnasnet": partial(_torchvision, "mnasnet1_0"),
    "tv_mobilenet_v3": partial(_torchvision, "mobilenet_v3_small"),
    "tv_regnet_y": partial(_torchvision, "regnet_y_400mf"),
    "tv_resnet18": partial(_torchvision, "resnet18"),
    "tv_shufflenet": partial(_torchvision, "shufflenet_v2_x1_0"),
    "tv_swin_v2": partial(_torchvision, "swin_v2_t"),
    "timm_convmixer": partial(_timm, "convmixer_768_32"),
    "timm_efficientformer": partial(_timm, "efficientformer_l1"),
    "timm_ghostnet": partial(_timm, "ghostnet_100"),
    "timm_hrnet": partial(_timm, "hrnet_w18_small"),
    "timm_levit": partial(_timm, "levit_128s"),
    "timm_mixer": partial(_timm, "mixer_s16_224"),
    "timm_poolformer": partial(_timm, "poolformer_s12"),
    "timm_rexnet": partial(_timm, "rexnet_100"),
    "timm_vit_tiny": partial(_timm, "vit_tiny_patch16_224"),
    "nn_gru": partial(_recurrent, "GRU"),
    "nn_lstm": partial(_recurrent, "LSTM"),
    "nn_rnn": partial(_recurrent, "RNN"),
    "nn_unet": _unet,
}
#: Exported by the older exporter too, which most models in use were exported with.
CLASSIC = ("bert", "gpt2", "llama", "nn_gru", "nn_lstm", "nn_unet", "segformer", "tv_resnet18", "tv_efficientnet_b0")


def export(build: Built, path: Path, *, dynamo: bool) -> None:
    """Writes a model as ONNX."""
    torch.manual_seed(_SEED)
    model, inputs = build()
    options: dict[str, Any] = {"dynamo": True, "verbose": False} if dynamo else {"dynamo": False, "opset_version": 17}
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model, tuple(inputs.values()), str(path), input_names=list(inputs), external_data=False, **options
        )


def _scikit_learn() -> dict[str, Callable[[], Any]]:
    """Models of scikit-learn, fitted to random data."""
    from sklearn import (
        cluster,
        compose,
        decomposition,
        ensemble,
        feature_selection,
        linear_model,
        mixture,
        naive_bayes,
        neighbors,
        neural_network,
        pipeline,
        preprocessing,
        svm,
        tree,
    )

    def scaled(model: Any) -> Any:
        return pipeline.make_pipeline(preprocessing.StandardScaler(), model)

    numbers = [("scaled", preprocessing.StandardScaler(), [0, 1, 2]), ("ranged", preprocessing.MinMaxScaler(), [3, 4])]
    return {
        "decision_tree": tree.DecisionTreeClassifier,
        "random_forest": partial(ensemble.RandomForestClassifier, n_estimators=50),
        "random_forest_regressor": partial(ensemble.RandomForestRegressor, n_estimators=50),
        "gradient_boosting": ensemble.GradientBoostingClassifier,
        "hist_gradient_boosting": ensemble.HistGradientBoostingRegressor,
        "logistic": lambda: scaled(linear_model.LogisticRegression()),
        "linear": linear_model.LinearRegression,
        "svc": lambda: scaled(svm.SVC(probability=True)),
        "linear_svc": lambda: scaled(svm.LinearSVC()),
        "mlp": lambda: scaled(neural_network.MLPClassifier(hidden_layer_sizes=(64, 32), max_iter=50)),
        "knn": lambda: scaled(neighbors.KNeighborsClassifier()),
        "naive_bayes": naive_bayes.GaussianNB,
        "k_means": partial(cluster.KMeans, n_clusters=4, n_init=1),
        "gaussian_mixture": partial(mixture.GaussianMixture, n_components=3),
        "pca_logistic": lambda: pipeline.make_pipeline(decomposition.PCA(4), linear_model.LogisticRegression()),
        "columns_forest": lambda: pipeline.make_pipeline(
            compose.ColumnTransformer(numbers), ensemble.RandomForestClassifier(n_estimators=10)
        ),
        "best_features": lambda: pipeline.make_pipeline(
            feature_selection.SelectKBest(k=5), preprocessing.PolynomialFeatures(2), linear_model.Ridge()
        ),
    }


def export_fitted(build: Callable[[], Any], path: Path) -> None:
    """Writes a model of scikit-learn as ONNX."""
    import skl2onnx
    from skl2onnx.common.data_types import FloatTensorType

    rng = np.random.default_rng(_SEED)
    data = rng.standard_normal((400, 10)).astype(np.float32)
    labels = (data[:, 0] + data[:, 1] ** 2 > 0.5).astype(np.int64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fitted = build().fit(data, labels)
    made = skl2onnx.to_onnx(fitted, initial_types=[("x", FloatTensorType([None, 10]))], options=_options(fitted))
    path.write_bytes(made.SerializeToString())


def _options(fitted: Any) -> dict[int, Any] | None:
    """Probabilities as a tensor, where there are some."""
    return {id(fitted): {"zipmap": False}} if hasattr(fitted, "predict_proba") and hasattr(fitted, "classes_") else None


def main() -> None:
    """Exports all models, or those named, that are not in the folder."""
    folder = Path(sys.argv[1])
    jobs: dict[Path, Callable[[Path], None]] = {}
    torch_folder = folder / f"torch {torch.__version__}"
    for name, build in MODELS.items():
        jobs[torch_folder / f"{name}_dynamo.onnx"] = partial(export, build, dynamo=True)
        if name in CLASSIC:
            jobs[torch_folder / f"{name}_classic.onnx"] = partial(export, build, dynamo=False)
    for name, fit in _scikit_learn().items():
        jobs[folder / "skl2onnx" / f"sk_{name}.onnx"] = partial(export_fitted, fit)
    for path, job in jobs.items():
        if path.exists() or (len(sys.argv) > 2 and path.stem not in sys.argv[2:]):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            job(path)
            print(f"exported {path.stem}", flush=True)
        except Exception as error:  # noqa: BLE001 - whatever an exporter fails with, the others are exported
            path.unlink(missing_ok=True)
            said = str(error).strip().splitlines() or [""]
            print(f"not exported: {path.stem}: {type(error).__name__}: {said[0][:200]}", flush=True)


if __name__ == "__main__":
    main()
