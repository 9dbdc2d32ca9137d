"""Inputs of trained models that are drawn, with what a model that works says of them."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sysconfig
import wave
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

Array = np.ndarray[Any, np.dtype[Any]]
Batch = dict[str, Array]

#: Text lines are drawn of these.
_LETTERS = "0123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
#: Samples of a chunk of sound with those before it, and samples a second.
_CHUNK, _BEFORE, _RATE = 512, 64, 16000
#: Endings of files, and what a model that sorts them says of each.
_KINDS = {".py": "python", ".h": "c", ".json": "json", ".css": "css", ".html": "html", ".js": "javascript"}
_SENTENCES = (
    "The quick brown fox jumps over the lazy dog.",
    "She sells sea shells by the sea shore, in the early morning.",
    "A graph is rewritten until nothing cheaper is found.",
)


@dataclass(frozen=True)
class Task:
    """Batches of a model, and the share of answers that are right of its outputs on some of them."""

    batches: Sequence[Batch]
    right: Callable[[Sequence[int], Sequence[dict[str, Array]]], float]


def recogniser(model: Path, count: int) -> Task:
    """Lines of text: the share that is read without a mistake."""
    (names,) = (p.value for p in onnx.load(model).metadata_props if p.key == "character")
    characters = ["", *names.split("\n"), " "]
    rng = np.random.default_rng(0)
    lines = [_word(rng) for _ in range(count)]
    batches = [{"x": _normal(_line(text, rng, (320, 48)))} for text in lines]

    def right(places: Sequence[int], outputs: Sequence[dict[str, Array]]) -> float:
        read = (_decoded(next(iter(found.values()))[0], characters) for found in outputs)
        return float(np.mean([text.strip() == lines[place] for place, text in zip(places, read, strict=True)]))

    return Task(batches, right)


def classifier(_model: Path, count: int) -> Task:
    """Lines of text, each second one upside down: the share that is told right."""
    rng = np.random.default_rng(1)
    images = [_line(_word(rng), rng, (192, 48)) for _ in range(count)]
    batches = [{"x": _normal(image[::-1, ::-1] if place % 2 else image)} for place, image in enumerate(images)]

    def right(places: Sequence[int], outputs: Sequence[dict[str, Array]]) -> float:
        told = [int(np.argmax(next(iter(found.values()))[0])) for found in outputs]
        return float(np.mean([one == place % 2 for place, one in zip(places, told, strict=True)]))

    return Task(batches, right)


def detector(_model: Path, count: int) -> Task:
    """Pages of lines: the share of lines that are found, each where more than half of its middle is marked as text."""
    rng = np.random.default_rng(2)
    batches: list[Batch] = []
    places_of: list[list[tuple[int, int, int, int]]] = []
    for _ in range(count):
        page = np.full((480, 480, 3), 255, np.uint8)
        boxes = []
        for top in range(20, 430, 60):
            left, width = int(rng.integers(10, 120)), 320
            page[top : top + 40, left : left + width] = _line(_word(rng), rng, (width, 40))
            boxes.append((top + 12, top + 28, left + 10, left + 90))
        scaled = (page / 255 - np.array([0.485, 0.456, 0.406])) / np.array([0.229, 0.224, 0.225])
        batches.append({"x": scaled.transpose(2, 0, 1)[None].astype(np.float32)})
        places_of.append(boxes)

    def right(places: Sequence[int], outputs: Sequence[dict[str, Array]]) -> float:
        found = [
            float(np.mean(next(iter(maps.values()))[0, 0, top:bottom, left:right] > 0.3)) > 0.5
            for place, maps in zip(places, outputs, strict=True)
            for top, bottom, left, right in places_of[place]
        ]
        return float(np.mean(found))

    return Task(batches, right)


def listener(_model: Path, count: int) -> Task | None:
    """Chunks of a synthetic voice and of noise: the share told apart; None where espeak-ng is not installed."""
    if shutil.which("espeak-ng") is None:
        return None
    voice = np.concatenate([_spoken(text) for text in _SENTENCES])
    rng = np.random.default_rng(3)
    loud = [i for i in range(_BEFORE, len(voice) - _CHUNK, _CHUNK) if np.std(voice[i : i + _CHUNK]) > 0.05]
    batches: list[Batch] = []
    for place in range(count):
        sound = voice[(begin := loud[place * 7 % len(loud)]) - _BEFORE : begin + _CHUNK]
        if place % 2:
            sound = rng.standard_normal(_BEFORE + _CHUNK).astype(np.float32) * 0.02
        batches.append({"input": sound[None].astype(np.float32), "state": np.zeros((2, 1, 128), np.float32)})

    def right(places: Sequence[int], outputs: Sequence[dict[str, Array]]) -> float:
        told = [float(found["output"].reshape(-1)[0]) > 0.5 for found in outputs]
        return float(np.mean([one == (place % 2 == 0) for place, one in zip(places, told, strict=True)]))

    return Task(batches, right)


def sorter(model: Path, count: int) -> Task:
    """Files of this Python installation, of six kinds: the share whose kind is told.

    The first and the last bytes of a file are tokens, as the package of the model has it: blank space at its ends does
    not count, and what is missing is padded.
    """
    settings = json.loads(model.with_name("config.min.json").read_text(encoding="utf-8"))
    labels = settings["target_labels_space"]
    size, block, padding = settings["beg_size"], settings["block_size"], settings["padding_token"]
    root = Path(sysconfig.get_paths()["stdlib"])
    by_kind = [
        [path for path in sorted(root.rglob(f"*{ending}")) if path.stat().st_size > 2 * size] for ending in _KINDS
    ]
    kinds = [(label, paths) for label, paths in zip(_KINDS.values(), by_kind, strict=True) if paths]
    picked = [
        (label, paths[i // len(kinds) * 7 % len(paths)])
        for i in range(count)
        for label, paths in [kinds[i % len(kinds)]]
    ]

    def tokens(path: Path) -> Array:
        content = path.read_bytes()
        begin = list(content[:block].lstrip()[:size])
        end = list(content[-block:].rstrip()[-size:])
        row = [*begin, *[padding] * (size - len(begin)), *[padding] * (size - len(end)), *end]
        return np.array([row], np.int32)

    def right(places: Sequence[int], outputs: Sequence[dict[str, Array]]) -> float:
        told = [labels[int(np.argmax(next(iter(found.values()))[0]))] for found in outputs]
        return float(np.mean([one == picked[place][0] for place, one in zip(places, told, strict=True)]))

    return Task([{"bytes": tokens(path)} for _, path in picked], right)


def _word(rng: np.random.Generator) -> str:
    return "".join(rng.choice(list(_LETTERS), int(rng.integers(5, 10))))


def _line(text: str, rng: np.random.Generator, size: tuple[int, int]) -> Array:
    """A line of text on paper that is not quite white, in a font of matplotlib's."""
    from matplotlib import font_manager
    from PIL import Image, ImageDraw, ImageFont

    image = Image.new("RGB", size, tuple(rng.integers(225, 256, 3).tolist()))
    font = ImageFont.truetype(font_manager.findfont("DejaVu Sans"), int(size[1] * rng.uniform(0.55, 0.7)))
    ink = tuple(rng.integers(0, 90, 3).tolist())
    ImageDraw.Draw(image).text((6, size[1] * 0.12), text, fill=ink, font=font)
    noisy = np.asarray(image, np.float64) + rng.normal(0, 4, (size[1], size[0], 3))
    return np.clip(noisy, 0, 255).astype(np.uint8)


def _normal(image: Array) -> Array:
    return ((image / 255 - 0.5) / 0.5).transpose(2, 0, 1)[None].astype(np.float32)


def _decoded(steps: Array, characters: Sequence[str]) -> str:
    """The text of the likeliest character at each step: repeated ones once, without blanks."""
    best = steps.argmax(-1)
    kept = [int(c) for i, c in enumerate(best) if c and (i == 0 or c != best[i - 1])]
    return "".join(characters[c] for c in kept)


def _spoken(text: str) -> Array:
    """A sentence of espeak-ng at 16 000 samples a second, from -1 to 1."""
    made = subprocess.run(["espeak-ng", "--stdout", text], capture_output=True, check=True).stdout
    with wave.open(io.BytesIO(made)) as file:
        rate, frames = file.getframerate(), file.readframes(file.getnframes())
    sound = np.frombuffer(frames, np.int16).astype(np.float32) / 32768
    places = np.arange(0, len(sound) - 1, rate / _RATE)
    return np.interp(places, np.arange(len(sound)), sound).astype(np.float32)
