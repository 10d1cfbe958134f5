"""Voices as Piper exports them: samples of speech from the numbers of phonemes."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import SPEAK, TaskSpec
from edgekit.device.runtime.agent.voice import LENGTHS, SCALES, SCHEMA, SPEAKER, VoiceSpec, voice_of
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.device.runtime.record import asdict
from edgekit.host.compiler.ir.types import DType, Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import voice_file
from edgekit.host.compiler.tasks.hub import read_json
from edgekit.host.compiler.tasks.prepared import Prepared
from edgekit.host.errors import InputError

FILE = "voice.json"  # in the release
PHONEMES = 256  # of a text, with what is between them
_FRAMES = 5  # of a phoneme or what is between two, above the usual mean of 3 to 4
_USUAL = {"noise_scale": 0.667, "length_scale": 1.0, "noise_w": 0.8}
_INTEGERS = (DType.I32, DType.I64)


def is_voice(path: Path) -> bool:
    """Whether a file next to the model has the phonemes of a voice."""
    return isinstance(read_json(voice_file(path)).get("phoneme_id_map"), dict)


def most_frames(phonemes: int) -> int:
    """Frames that hold so many phonemes at a usual pace. Odd, as sizes of layers are even: it says
    which axis of a tensor is that of frames."""
    return _FRAMES * phonemes | 1


def voice_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared | None:
    """The graph of a voice with its task; None for others. Raises InputError if the task is asked
    for and the model does not fit, or the file next to it is damaged."""
    asked = options.task == SPEAK
    if not (asked or (options.task in ("auto", "guess") and is_voice(path))):
        return None
    found, name = _ends(graph), voice_file(path).name
    if found is None or not is_voice(path):
        if not asked:
            return None
        ends = (f"'{n}' {list(graph.tensors[n].shape)}" for n in (*graph.inputs, *graph.outputs))
        raise InputError(
            f"--task {SPEAK}: expected Piper's inputs of phonemes [1, n], {LENGTHS}, {SCALES} and "
            f"maybe {SPEAKER}, one output of samples, and {name} next to the model, found "
            f"{', '.join(ends)}; leave the option out"
        )
    phonemes, samples, length = found
    about = read_json(voice_file(path))
    audio = about.get("audio")
    rate = audio.get("sample_rate") if isinstance(audio, dict) else None
    if type(rate) is not int or not 1000 <= rate <= 192000:
        raise InputError(f"{name}: expected audio.sample_rate, found {rate!r:.40}")
    spec = TaskSpec(SPEAK, phonemes.name, samples.name, rate=rate, characters=FILE, mask=length)
    source = f"with the phonemes of {name}"
    most = f", at most {samples.elements / rate:.1f} s at a time" if length else ""
    note = f"speaks {source}{most}; --task none leaves the outputs as they are"
    noted = replace(graph, notes=(*graph.notes, note))
    return Prepared(noted, spec, source, {FILE: _file(about, name)})


def _ends(graph: Graph) -> tuple[Tensor, Tensor, str] | None:
    """The phonemes, the samples, and the name of the output with their number, if there is one."""
    inputs = {name: graph.tensors[name] for name in graph.inputs}
    others = {LENGTHS: _INTEGERS, SCALES: (DType.F32,), SPEAKER: _INTEGERS}
    phonemes = [t for name, t in inputs.items() if name not in others]
    if len(phonemes) != 1 or LENGTHS not in inputs or SCALES not in inputs:
        return None
    shape = phonemes[0].shape
    if len(shape) != 2 or shape[0] != 1 or phonemes[0].dtype not in _INTEGERS:
        return None
    if any(t.dtype not in others.get(n, _INTEGERS) for n, t in inputs.items()):
        return None
    if inputs[SCALES].shape != (3,) or math.prod(inputs[LENGTHS].shape) != 1:
        return None
    outputs = [graph.tensors[name] for name in graph.outputs]
    floats = [t for t in outputs if t.dtype is DType.F32 and math.prod(t.shape) == max(t.shape)]
    counts = [t for t in outputs if t.dtype in _INTEGERS and math.prod(t.shape) == 1]
    if len(floats) != 1 or len(counts) > 1:
        return None
    return phonemes[0], floats[0], counts[0].name if counts else ""


def _file(about: dict[str, Any], name: str) -> bytes:
    """The file of a release."""
    phonemes = about["phoneme_id_map"]
    numbers = tuple(tuple(n) if isinstance(n, list) else (n,) for n in phonemes.values())
    stated = about.get("inference")
    scales = {**_USUAL, **(stated if isinstance(stated, dict) else {})}
    spec = VoiceSpec(tuple(phonemes), numbers, tuple(scales[key] for key in _USUAL))
    made = json.dumps({"schema": SCHEMA, **asdict(spec)}, ensure_ascii=False).encode()
    try:
        voice_of(made, name)  # as the board will check it
    except DeviceInputError as error:
        raise InputError(str(error)) from None
    return made
