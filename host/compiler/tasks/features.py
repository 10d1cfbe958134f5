"""Features of sound that a .toml file next to a model states: how they are computed of samples.

The operators that compute them come before the model's own, so that it takes samples.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import maker_of
from edgekit.host.compiler.ir.types import DType, Graph, Node, Operator, Shape, Tensor
from edgekit.host.compiler.sidecars import (
    CONFIG,
    PIXELS,
    config_folder,
    features_file,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.feature_rows import (
    CURVES,
    MELS,
    POVEY,
    RATE,
    Features,
    feature_rows,
)
from edgekit.host.compiler.tasks.hub import read_config, read_json
from edgekit.host.compiler.tasks.log_mel import LogMel, log_mel
from edgekit.host.compiler.tasks.prepared import free_name
from edgekit.host.compiler.tasks.stated import stated_table
from edgekit.host.errors import InputError

TABLE, _LIKE = "features", "like"
_WHISPER, _WHISPER_BANDS = "whisper", (80, 128)
_EXTRACTOR, _INPUT = "WhisperFeatureExtractor", "input_features"  # in files of Hugging Face
_TURN = (1, 80, 800)  # frames of 8 s
_CLASSIFIES = "ForAudioClassification"  # the end of the names of architectures
_SAMPLES = "samples"
_MOST, _MOST_STACK = 1 << 20, 64
_TYPES = (DType.F32, DType.I8, DType.U8)
Scaled = Sequence[tuple[Operator, Sequence[float]]]  # what is done to each number of a row


@dataclass(frozen=True)
class WhisperFeatures:
    """Those of Whisper, along as many samples as the model's input has frames. `normalize`: of
    samples of mean 0 and variance 1. `last` as above."""

    normalize: bool = False
    last: bool = False
    labels: tuple[str, ...] = ()
    rate: int = RATE


# Of Kaldi, and of torchaudio's compliance.kaldi.fbank, without noise that is added.
KALDI = Features(
    window=400, bands=80, high=RATE / 2, power=2, curve=POVEY, centered=True, emphasis=0.97,
    floor=float(np.finfo(np.float32).eps),
)  # fmt: skip
_TEN = ("down", "go", "left", "no", "off", "on", "right", "stop", "up", "yes")
_TINY, _TINY_NAME, _TINY_ROWS = "mlperf-tiny", "kws_ref_model", 49
_KNOWN = {
    # Of the reference of MLPerf Tiny, and its order of the classes.
    _TINY: Features(step=320, coefficients=10, peak=True, labels=(*_TEN, "silence", "unknown")),
    # Of "Hello Edge" (Zhang et al., 2017), and of TensorFlow's speech_commands.
    "hello-edge": Features(window=640, step=320, fft=1024, coefficients=10, offset=1e-12),
    "speech-commands": Features(coefficients=40, offset=1e-12),
    "kaldi": KALDI,
}


# By the numbers of a row.
_USUAL = {10: _TINY, 40: "speech-commands", 80: "kaldi"}


def how_computed(shape: Shape) -> str:
    """What to write into a file next to a model whose input has this shape."""
    sizes = [n for n in shape if n != 1]
    like = _USUAL.get(sizes[-1] if sizes else 0, "")
    like = _WHISPER if sizes[:1] and sizes[0] in _WHISPER_BANDS else like
    lines = f'[{TABLE}] and then {_LIKE} = "{like or "kaldi"}"'
    return f"how they are computed, such as the lines {lines}"


def stated_features(model: Path) -> Features | WhisperFeatures | None:
    """What the file next to the model says; None without one. Raises InputError."""
    file, table = features_file(model), stated_table(model, TABLE)
    if table is None:
        return None
    own = dict(table)
    like = own.pop(_LIKE, "")
    if like == _WHISPER:
        return replace(WhisperFeatures(), **_typed(file, WhisperFeatures(), own))
    if like and like not in _KNOWN:
        known = " or ".join((*_KNOWN, _WHISPER))
        raise InputError(f"{file}: {_LIKE}: expected {known}, found {like!r}")
    return _checked(file, _KNOWN[like] if like else Features(), own)


def whisper_features(model: Path, graph: Graph) -> WhisperFeatures | None:
    """What preprocessor_config.json and config.json next to a classifier of sounds say."""
    folder = config_folder(model)
    about, sound = read_json(folder / CONFIG), read_json(folder / PIXELS)
    made = about.get("architectures")
    classifies = isinstance(made, list) and any(str(n).endswith(_CLASSIFIES) for n in made)
    if not classifies or sound.get("feature_extractor_type") != _EXTRACTOR:
        return None
    if [*graph.inputs] != [_INPUT] or sound.get("sampling_rate", RATE) != RATE:
        return None
    normalize, last = sound.get("do_normalize") is True, sound.get("padding_side") == "left"
    return WhisperFeatures(normalize, last, read_config(model).labels)


def mlperf_tiny(model: Path, graph: Graph) -> Features | None:
    """The features of MLPerf Tiny's model for words, which is known by its name: others of its
    shapes take different ones."""
    known = _KNOWN[_TINY]
    wide = [n for n in graph.tensors[graph.inputs[0]].shape if n != 1]
    named = model.stem.startswith(_TINY_NAME) and len(graph.inputs) == 1
    return known if named and wide == [_TINY_ROWS, known.width] else None


def smart_turn(graph: Graph) -> WhisperFeatures | None:
    """The features of Smart Turn, whose file has none next to it: one score from 0 to 1 for whether
    a speaker has finished, of the last 8 s."""
    given, outputs = graph.inputs, [graph.tensors[name] for name in graph.outputs]
    if [*given] != [_INPUT] or graph.tensors[_INPUT].shape != _TURN:
        return None
    if len(outputs) != 1 or math.prod(outputs[0].shape) != 1:
        return None
    node = maker_of(graph.producer(), outputs[0].name)
    finished = node is not None and isinstance(node.op, ops.Logistic)
    return WhisperFeatures(normalize=True, last=True, labels=("complete",)) if finished else None


def _typed(file: Path, base: Features | WhisperFeatures, own: dict[str, Any]) -> dict[str, Any]:
    """The values with the types of the fields of `base`. Raises InputError."""
    kinds = {field.name: type(getattr(base, field.name)) for field in fields(base)}
    for key, value in own.items():
        kind = kinds.get(key)
        if kind is None:
            raise InputError(f"{file}: expected {', '.join((_LIKE, *kinds))}, found {key!r}")
        if kind is tuple:
            fits = isinstance(value, list) and all(isinstance(each, str) for each in value)
            own[key] = tuple(value) if fits else value
        else:
            fits = type(value) is kind or (kind is float and type(value) is int)
        if not fits:
            name = {tuple: "a list of texts", bool: "true or false"}.get(kind, "a number")
            raise InputError(f"{file}: {key}: expected {name}, found {value!r}")
    return own


def _checked(file: Path, base: Features, own: dict[str, Any]) -> Features:
    made = replace(base, **_typed(file, base, own))
    numbers = (made.rate, made.window, made.step, made.fft, made.bands)
    half = made.rate / 2
    for wrong, expected in (
        (not all(0 < n <= _MOST for n in numbers), f"numbers of 1 to {_MOST}"),
        (made.fft < made.window or made.fft > 1 << 14, "fft of at least window, at most 16384"),
        (not 0 <= made.coefficients <= made.bands, "coefficients of at most bands"),
        (made.power not in (1, 2), "power of 1 or 2"),
        (not 0 <= made.low < made.high <= half, f"low and high frequencies up to {half:g}"),
        (not 0 < made.offset < math.inf, "an offset above 0"),
        (made.curve not in CURVES, f"a curve of {', '.join(CURVES)}"),
        (not 0 < made.stack <= _MOST_STACK, f"a stack of 1 to {_MOST_STACK}"),
        (not 0 < made.skip <= _MOST_STACK, f"a skip of 1 to {_MOST_STACK}"),
        (not 0 <= made.emphasis < 1, "an emphasis below 1"),
        (not 0 <= made.floor < math.inf, "a floor of at least 0"),
        (not 0 < made.gain <= _MOST, f"a gain of at most {_MOST}"),
        (made.mel not in MELS, f"a mel of {', '.join(MELS)}"),
        (not 0 <= made.range < math.inf, "a range of at least 0"),
        (made.mirrored and made.step > made.window, "a mirrored window of at least step"),
        (made.mirrored and made.around, "one of mirrored and around"),
    ):
        if wrong:
            raise InputError(f"{file}: expected {expected}, found {own or made}")
    return made


def on_samples(model: Path, graph: Graph, features: Features | WhisperFeatures) -> Graph:
    """The graph with samples as input, f32 [1, n]. Raises InputError if the model's own input is
    not rows of these features."""
    if isinstance(features, WhisperFeatures):
        return _on_whisper(model, graph, features)
    tensor = graph.tensors[graph.inputs[0]]
    shape = [n for n in tensor.shape if n != 1]
    rows = math.prod(shape) // features.width
    fits = shape in ([rows, features.width], [features.width, rows], [rows * features.width])
    if len(graph.inputs) != 1 or tensor.dtype not in _TYPES or not fits:
        ends = ", ".join(f"'{n}' {list(graph.tensors[n].shape)}" for n in graph.inputs)
        raise InputError(
            f"{features_file(model)}: expected an input of rows of {features.width} numbers, as "
            f"'{TABLE}' says, found {ends}; change the file, or remove it"
        )
    return rows_before(graph, tensor.name, features, rows)


def rows_before(
    graph: Graph, called: str, features: Features, rows: int, scaled: Scaled = ()
) -> Graph:
    """The graph with samples, f32 [1, n], in place of its input `called`, which is so many rows of
    the features, or their transpose."""
    tensor = graph.tensors[called]
    name = free_name(graph, _SAMPLES)
    samples = Tensor(name, (1, features.samples(rows)), DType.F32)
    to = Appender(Graph(graph.name, {name: samples}, (), (name,), ()), TABLE)
    made = feature_rows(to, name, rows, features)
    for op, values in scaled:
        made = to.add(op, made, to.constant(np.reshape(values, (1, -1))))
    shape = [n for n in tensor.shape if n != 1]
    if shape == [features.width, rows] != [rows, features.width]:
        made = to.add(ops.Transpose((1, 0)), made)
    made = to.add(ops.Reshape(tensor.shape), made)
    given = called if tensor.quant is None else f"{TABLE}/rows"
    front = to.with_output(made, given)
    nodes = front.nodes
    if given != called:
        step = Node(f"{TABLE}/codes", ops.Quantize(tensor.dtype), (given,), (called,))
        nodes = (*nodes, step)
    return replace(
        graph,
        tensors={**front.tensors, **graph.tensors},
        nodes=(*nodes, *graph.nodes),
        inputs=tuple(name if each == called else each for each in graph.inputs),
    )


def _on_whisper(model: Path, graph: Graph, features: WhisperFeatures) -> Graph:
    tensor = graph.tensors[graph.inputs[0]]
    first, bands, frames = tensor.shape if len(tensor.shape) == 3 else (0, 0, 0)
    fits = first == 1 and bands in _WHISPER_BANDS and tensor.dtype is DType.F32
    if len(graph.inputs) != 1 or not fits:
        raise InputError(
            f"{model}: expected an input [1, {' or '.join(map(str, _WHISPER_BANDS))}, frames] for "
            f"Whisper's features, found '{tensor.name}' {list(tensor.shape)}; change what "
            f"{features_file(model).name} or {PIXELS} says"
        )
    name = free_name(graph, _SAMPLES)
    hop = LogMel(features.rate, 0, bands).hop
    front = log_mel(LogMel(features.rate, frames * hop, bands), name, tensor.name)
    made, nodes = {**front.tensors, **graph.tensors}, (*front.nodes, *graph.nodes)
    return replace(graph, tensors=made, nodes=nodes, inputs=(name,))
