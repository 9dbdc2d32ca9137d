"""Where the models come from: built or committed here, inside packages, and exported from PyTorch and scikit-learn."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import onnx
import platformdirs

from benchmarks import models, rows, trained

#: The groups, in the order in which they are taken.
GROUPS = ("nodes", "trained", "made", "exported")
#: What the exporters need, in an environment of its own in the user's cache.
_REQUIRED = ("torch==2.13.0", "transformers==5.23.0", "onnxscript==0.7.2", "scikit-learn", "skl2onnx", "onnx==1.23.2")
#: Installed without what they ask for: they are built for other versions of PyTorch's libraries than the CPU's.
_ALONE = ("torchvision==0.28.*", "timm")
#: What these need besides.
_NEEDED = ("safetensors", "huggingface_hub", "pyyaml", "pillow")
_EXPORTER = Path(__file__).with_name("exports.py")


@dataclass(frozen=True)
class Source:
    """A model: its name, group, what it comes from, and how its file is brought into a folder."""

    name: str
    group: str
    origin: str
    bring: Callable[[Path], Path]


def sources(group: str, python: Path | None) -> list[Source]:
    """The models of a group; those of packages are installed first, and those exported are exported by `python`.

    Without one, an environment with PyTorch is made in the user's cache. No model is copied into the repository.
    """
    if group == "made":
        return [Source(name, group, _origin(name), _built(name)) for name in rows.DEFAULT]
    if group == "trained":
        return [
            Source(path.stem, group, f"{package} {version}", _there(path))
            for package, version in trained.PACKAGES.items()
            for path in trained.models_of(package)
        ]
    if group == "exported":
        return [Source(p.stem, group, p.parent.name, _there(p)) for p in sorted(exported(python).rglob("*.onnx"))]
    return []


def _origin(name: str) -> str:
    if name.startswith("light_"):
        return f"onnx {onnx.__version__}"
    return "an export without its weights" if (models.FIXTURES / f"{name}.onnx").exists() else "built here"


def _built(name: str) -> Callable[[Path], Path]:
    def bring(folder: Path) -> Path:
        model = models.load(name)
        path = folder / f"{name}.onnx"
        onnx.save(model, path, save_as_external_data=model.ByteSize() > 1 << 30, location=f"{name}.data")
        return path

    return bring


def _there(path: Path) -> Callable[[Path], Path]:
    return lambda _folder: path


def exported(python: Path | None) -> Path:
    """The folder of the models that `exports.py` makes, made first where they are not there as it now makes them."""
    cache = Path(platformdirs.user_cache_dir("eqsat")) / "coverage"
    folder = cache / f"exported-{blake2b(_EXPORTER.read_bytes(), digest_size=6).hexdigest()}"
    if not (folder / "complete").exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run([str(python or _environment(cache / "environment")), str(_EXPORTER), str(folder)], check=True)
        (folder / "complete").touch()
    return folder


def _environment(folder: Path) -> Path:
    """The interpreter of an environment that has what the exporters need."""
    python = folder / "bin" / "python"
    if not (folder / "complete").exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        install = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*install, *_REQUIRED, *_NEEDED], check=True)
        subprocess.run([*install, "--no-deps", *_ALONE], check=True)
        (folder / "complete").touch()
    return python
