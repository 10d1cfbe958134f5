"""Models that take the features of sound of NeMo (nemo.collections.asr, FilterbankFeatures) or of
SpeechBrain (speechbrain.lobes.features.Fbank, with the mean of a sentence subtracted)."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from edgekit.device.runtime.agent.task import EMBED, TRANSCRIBE
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.sidecars import (
    SPEECH_BRAIN_FILE,
    SPEECH_TOKENS,
    VOCABULARY,
    config_folder,
    read_sidecar,
)
from edgekit.host.compiler.tasks.feature_rows import RATE, SLANEY, SPEECH_BRAIN, Features
from edgekit.host.compiler.tasks.sound_recipe import Recipe

_INPUTS, _SCORES = ["audio_signal", "length"], "logprobs"
VECTORS = ("embs",)  # outputs of speakers
_NARROW, _BANDS = 64, (64, 80, 128)  # bands of models whose windows are of 20 ms, and of all
_SPEECH_ROWS, _SPEAKER_ROWS = 1000, 300  # of 10 s and 3 s
_NORMALIZED = "per_feature"
_DECIBELS = 10 / math.log(10)
_SENTENCE = re.compile(r"norm_type:\s*sentence\s+std_norm:\s*False")
_MELS = re.compile(r"^n_mels:\s*(\d+)\s*$", re.M)


def nemo_recipe(
    about: Mapping[str, str], names: Sequence[str], outputs: Sequence[str], bands: object
) -> Recipe | None:
    """The recipe of a model of NeMo for speech (CTC) or speakers; None for others, such as those
    whose features are not of deviation 1. `bands`: the rows of its first input."""
    is_speech, is_vector = _SCORES in outputs, not {*VECTORS}.isdisjoint(outputs)
    other = about.get("normalize_type", _NORMALIZED) != _NORMALIZED or "is_giga_am" in about
    if [*names] != _INPUTS or other or is_speech == is_vector or bands not in _BANDS:
        return None
    first, length = names
    features = Features(
        window=320 if bands == _NARROW else 400, bands=int(str(bands)), high=RATE / 2, low=0,
        power=2, offset=2**-24, curve="hanning", emphasis=0.97, around=True, mel=SLANEY,
        deviation=True,
    )  # fmt: skip
    task, rows = (TRANSCRIBE, _SPEECH_ROWS) if is_speech else (EMBED, _SPEAKER_ROWS)
    return Recipe(
        task, first, features, rows, "NeMo", {length: None}, across=True,
        tokens=(SPEECH_TOKENS, VOCABULARY),
    )  # fmt: skip


def speech_brain_recipe(path: Path, names: Sequence[str]) -> Recipe | None:
    """The recipe of a model for the vectors of speakers with SpeechBrain's hyperparams.yaml next to
    it; None for others."""
    stated = (read_sidecar(config_folder(path) / SPEECH_BRAIN_FILE) or b"").decode(
        "utf-8", "replace"
    )
    found = _MELS.search(stated)
    if len(names) != 1 or found is None or "features.Fbank" not in stated:
        return None
    if not _SENTENCE.search(stated):
        return None
    features = Features(
        window=400, fft=400, bands=int(found[1]), low=0, high=RATE / 2, power=2, floor=1e-10,
        curve="periodic-hamming", around=True, mel=SPEECH_BRAIN, range=80 / _DECIBELS, level=True,
    )  # fmt: skip
    loud = ((ops.Mul(), [_DECIBELS] * features.bands),)
    return Recipe(EMBED, names[0], features, _SPEAKER_ROWS, "SpeechBrain", scaled=loud)
