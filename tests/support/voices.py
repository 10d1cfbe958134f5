"""A voice with the inputs and outputs of Piper's, and the samples of bounded number that it makes,
by NumPy: each phoneme is a tone as long as its duration."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from edgekit.host.compiler.ir.types import Array
from tests.support.onnx_models import model, node, save, value

RATE, HOP, FRAMES = 8000, 80, 60  # FRAMES is the bound
PHONEMES = {"_": [0], "^": [1], "$": [2], "a": [3], "b": [4, 5], "\u0303": [6]}
LENGTH_SCALE = 1.5
_DURATIONS = np.float32([0.4, 1, 1, 3, 2, 2, 4])
_TONES = np.float32([0, 0, 0, 300, 500, 700, 900]) * 2 * np.pi / RATE


def voice_model(folder: Path) -> Path:
    """Durations are scaled and rounded up, their sums show which phoneme a frame is of, as in VITS;
    the output `length` says how many samples count."""
    times = np.arange(FRAMES * HOP, dtype=np.float32).reshape(1, FRAMES, HOP)
    constants = {
        "durations": _DURATIONS, "tones": _TONES, "times": times,
        "frames": np.arange(FRAMES, dtype=np.float32).reshape(1, FRAMES, 1),
        "one": np.array([1]), "two": np.array([2]), "all": np.array([1, 1, 1, -1]),
        "hop": np.float32([HOP]), "least": np.float32([FRAMES]),
        "places": np.arange(512), "zero": np.array([0]),
    }  # fmt: skip
    nodes = [
        node("Shape", ["input"], ["extents"]),
        node("Gather", ["extents", "one"], ["count"]),
        node("Slice", ["places", "zero", "count"], ["place"]),
        node("Less", ["place", "input_lengths"], ["is_used"]),
        node("Cast", ["is_used"], ["used"], to=1),
        node("Gather", ["scales", "one"], ["slow"]),
        node("Gather", ["durations", "input"], ["duration"]),
        node("Mul", ["duration", "slow"], ["scaled"]),
        node("Ceil", ["scaled"], ["whole"]),
        node("Mul", ["whole", "used"], ["masked"]),
        node("CumSum", ["masked", "one"], ["ends"]),
        node("Sub", ["ends", "masked"], ["starts"]),
        node("Unsqueeze", ["ends", "one"], ["end"]),
        node("Unsqueeze", ["starts", "one"], ["start"]),
        node("Less", ["frames", "end"], ["before"]),
        node("Less", ["frames", "start"], ["too_early"]),
        node("Not", ["too_early"], ["behind"]),
        node("And", ["before", "behind"], ["inside"]),
        node("Cast", ["inside"], ["paths"], to=1),
        node("Gather", ["tones", "input"], ["pitch"]),
        node("Unsqueeze", ["pitch", "two"], ["pitches"]),
        node("MatMul", ["paths", "pitches"], ["turns"]),
        node("Mul", ["turns", "times"], ["phase"]),
        node("Sin", ["phase"], ["wave"]),
        node("Gather", ["scales", "zero"], ["loud"]),
        node("Mul", ["wave", "loud"], ["sound"]),
        node("Reshape", ["sound", "all"], ["output"]),
        node("ReduceSum", ["masked"], ["sum"], keepdims=0),
        node("Min", ["sum", "least"], ["bounded"]),
        node("Mul", ["bounded", "hop"], ["samples"]),
        node("Cast", ["samples"], ["length"], to=7),
    ]
    inputs = [
        value("input", ["batch_size", "phonemes"], "s64"),
        value("input_lengths", ["batch_size"], "s64"),
        value("scales", [3]),
    ]
    made = model(nodes, inputs, ["output", "length"], constants)
    made.graph.output[1].type.tensor_type.elem_type = 7
    path = save(made, folder, "voice.onnx")
    about = {
        "audio": {"sample_rate": RATE}, "phoneme_id_map": PHONEMES,
        "inference": {"noise_scale": 0.5, "length_scale": LENGTH_SCALE, "noise_w": 0.8},
    }  # fmt: skip
    (folder / "voice.onnx.json").write_text(json.dumps(about))
    return path


def expected_samples(numbers: list[int]) -> Array:
    frames = np.ceil(_DURATIONS[numbers] * LENGTH_SCALE).astype(int)
    pitch = np.repeat(_TONES[numbers], frames)[:FRAMES]
    found: Array = 0.5 * np.sin(np.repeat(pitch, HOP) * np.arange(len(pitch) * HOP))
    return found
