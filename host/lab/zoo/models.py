"""The models used by tests and result tables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.lab.zoo.cases import ZooInputs, load_samples
from edgekit.kb.targets.board import load_board

# Shapes of the dynamic inputs of zoo models, by file stem.
_OPEN_SHAPES = {"ch_ppocr_mobile_v2.0_cls_infer": {"x": (1, 3, 48, 192)}}


@dataclass(frozen=True)
class Zoo:
    """Files: TensorFlow Lite models, ONNX models, pictures, sounds, and sequences of calls that
    exercise a stateful model."""

    models: tuple[Path, ...]
    onnx: tuple[Path, ...]
    pictures: tuple[Path, ...]
    sounds: tuple[Path, ...]
    sequences: tuple[Path, ...]

    def samples(self) -> ZooInputs:
        """All inputs, decoded; needs Pillow."""
        return load_samples(self.pictures, self.sounds, self.sequences)


def open_zoo(folder: Path, extra: Path | None = None) -> Zoo:
    """folder: the repository's models/. extra: a folder containing models/ and data/inputs/.

    Byte-identical models are listed once.
    """
    roots = [folder] + ([extra / "models"] if extra else [])
    pictures = [folder / "astronaut.png"]
    sounds: list[Path] = []
    if extra:
        inputs = extra / "data" / "inputs"
        pictures += sorted(p for p in inputs.glob("*") if p.suffix in (".jpg", ".bmp", ".png"))
        sounds = sorted(inputs.glob("*.wav"))
    sequences = tuple(sorted(folder.glob("*.npz")))
    return Zoo(
        _distinct_files(roots, "*.tflite"),
        _distinct_files(roots, "*.onnx"),
        tuple(pictures),
        tuple(sounds),
        sequences,
    )


def extended_zoo(folder: Path) -> Zoo:
    """The zoo, with the folder that EDGEKIT_EXTRA_DATA names, if it is set."""
    extra = os.environ.get("EDGEKIT_EXTRA_DATA")
    return open_zoo(folder, Path(extra) if extra else None)


def zoo_options(model: Path) -> CompileOptions:
    """Compile options for a zoo model: sizes for the dynamic inputs of ONNX models."""
    return CompileOptions(shapes=_OPEN_SHAPES.get(model.stem, {}))


def compile_release(model: Path, board: str, folder: Path) -> Path:
    """Compiles `model` for the profile `board` into a new folder with model.so and weights.bin."""
    artifact = compile_artifact(model, load_board(board), options=zoo_options(model))
    release = folder / f"{model.stem}-{board}"
    release.mkdir(exist_ok=True)
    (release / LIBRARY).write_bytes(artifact.library)
    (release / WEIGHTS).write_bytes(artifact.weights)
    return release


def _distinct_files(roots: Sequence[Path], pattern: str) -> tuple[Path, ...]:
    found: dict[str, Path] = {}
    for root in roots:
        for path in sorted(root.rglob(pattern)):
            found.setdefault(hashlib.sha256(path.read_bytes()).hexdigest(), path)
    return tuple(found.values())
