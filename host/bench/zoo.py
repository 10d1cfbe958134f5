"""The models that tests and tables go through."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.manifest import LIBRARY, WEIGHTS
from edgekit.host.bench.cases import Samples, load_samples
from edgekit.host.compiler import compile_artifact
from edgekit.kb.board import load_board


@dataclass(frozen=True)
class Zoo:
    """Files: models, pictures, sounds, and sequences of calls that stir a stateful model."""

    models: tuple[Path, ...]
    pictures: tuple[Path, ...]
    sounds: tuple[Path, ...]
    sequences: tuple[Path, ...]

    def samples(self) -> Samples:
        """All inputs, decoded; needs Pillow."""
        return load_samples(self.pictures, self.sounds, self.sequences)


def open_zoo(folder: Path, extra: Path | None = None) -> Zoo:
    """folder: the repository's models/. extra: a folder with models/ and data/inputs/ beside it.

    A model that is byte for byte another one is listed once.
    """
    roots = [folder] + ([extra / "models"] if extra else [])
    pictures = [folder / "astronaut.png"]
    sounds: list[Path] = []
    if extra:
        inputs = extra / "data" / "inputs"
        pictures += sorted(p for p in inputs.glob("*") if p.suffix in (".jpg", ".bmp", ".png"))
        sounds = sorted(inputs.glob("*.wav"))
    sequences = tuple(sorted(folder.glob("*.npz")))
    return Zoo(_distinct(roots), tuple(pictures), tuple(sounds), sequences)


def compile_release(model: Path, board: str, folder: Path) -> Path:
    """Compiles `model` for the profile `board` into a new folder with model.so and weights.bin."""
    artifact = compile_artifact(model, load_board(board))
    release = folder / f"{model.stem}-{board}"
    release.mkdir(exist_ok=True)
    (release / LIBRARY).write_bytes(artifact.library)
    (release / WEIGHTS).write_bytes(artifact.weights)
    return release


def _distinct(roots: Sequence[Path]) -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted(root.rglob("*.tflite")):
            found.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return tuple(found.values())
