"""Models that listen: for words in samples of sound, or for speech."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.task import (
    KEYWORD,
    LAST,
    SOUNDS,
    STRETCH,
    TRANSCRIBE,
    VAD,
    TaskSpec,
)
from edgekit.device.runtime.agent.transcribe import LEAST_VARIANCE
from edgekit.host.compiler.inputs import read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import probabilities
from edgekit.host.compiler.ir.types import DType, Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import PIXELS, config_folder, features_file
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.dictation import without_decoder
from edgekit.host.compiler.tasks.features import (
    WhisperFeatures,
    mlperf_tiny,
    on_samples,
    smart_turn,
    stated_features,
    whisper_features,
)
from edgekit.host.compiler.tasks.hub import read_config, read_json
from edgekit.host.compiler.tasks.label_file import read_label_file
from edgekit.host.compiler.tasks.open_wake_word import is_open_wake_word, open_wake_word
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized, without_task
from edgekit.host.compiler.tasks.shares import SCORES, as_shares, is_share
from edgekit.host.compiler.tasks.speech import transcriber
from edgekit.host.compiler.tasks.spoken import pyannote
from edgekit.host.compiler.tasks.unsupported import known_listener
from edgekit.host.errors import InputError

_RATE = 16000
_LEAST = 4000  # samples of a word; shorter inputs may be features
_FRAMES = (256, 288, 512, 576, 768, 1024, 1536)  # samples of a window of Silero's models
_BIRDS = 144_000  # samples of BirdNET's window
_LENGTHS = {_BIRDS: (48_000, "as BirdNET takes them"),
            44_032: (44_100, "as Teachable Machine takes them")}  # fmt: skip
_SLOW = 8000  # samples that may be a second at this rate, or half a second
# The rate of a window of so many samples for so many classes, and whose it is.
_PERCH, _PERCH_PEAK = (160_000, 14_795), 0.25
_WINDOWS = {(320_000, 527): (32_000, "as PANNs take them"),
            _PERCH: (32_000, "as Perch takes them")}  # fmt: skip
_YAMNET = 521  # classes, next to which TensorFlow Lite's Model Maker puts those of the user
_BOTH = (1, 2, 1)  # scores of silence and speech, as the third version has them
_LEAST_PEAK = 1e-6  # of samples
_SAMPLES = (DType.F32, DType.I16, DType.I8, DType.U8)
# Models of features of sound, whose rows have so many numbers.
CHANNELS = 40
MICRO_WAKE_WORD, MICRO_SPEECH = "microWakeWord", "micro_speech"
_SPEECH = (49 * CHANNELS, 4)  # values of micro_speech's input and output


def sound_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared | None:
    """The graph of a model for sound; None if it is not known to be one.

    Raises InputError if the options name a task that the model does not fit.
    """
    task, guesses, made = options.task, options.task == "guess", None
    if task in ("auto", "guess", TRANSCRIBE):
        made = without_decoder(path, graph, task == TRANSCRIBE)
        is_other = made is not None or known_listener(graph)
        made = made if is_other else transcriber(path, graph, task == TRANSCRIBE, guesses)
    if made is None and task in ("auto", "guess", KEYWORD) and is_open_wake_word(graph):
        made = open_wake_word(path, graph, task == "auto")
    if made is None and (guesses or task == VAD):
        made = pyannote(graph) or _vad(graph, task == VAD)
    if made is None and (guesses or task == KEYWORD):
        made = _keyword(path, graph, task == KEYWORD, guesses)
    if made is None and task in SOUNDS:
        why = known_listener(graph)
        raise InputError(f"--task {task}: {why}") if why else _misfit(task, graph)
    return made or (_of_features(graph) if guesses else None)


def feature_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared | None:
    """The graph of a model for words, with what computes its features of samples before it, if a
    file next to it says how, or its shapes are known.

    Raises InputError if the model does not fit the file.
    """
    if options.task not in ("auto", "guess", KEYWORD):
        return None
    features, whose = stated_features(path), f"in {features_file(path).name}"
    if features is None:
        features, whose = whisper_features(path, graph), f"in {PIXELS}"
    if features is None and options.task != "auto":
        features, whose = smart_turn(graph), "of Smart Turn, whose shapes it has"
    if features is None and options.task != "auto":
        features, whose = mlperf_tiny(path, graph), "of MLPerf Tiny, by the file's name"
    if features is None:
        return None
    found = [t for t in _tensors(graph, graph.outputs) if _length(t)]
    if len(found) != 1:
        raise _misfit(KEYWORD, graph)
    given = on_samples(path, graph, features)
    if isinstance(features, WhisperFeatures) and features.normalize:
        given = _on_any_level(given)
    made, scores, _ = as_shares(given, found[0], read_config(path).independent)
    lists = [each for each in (read_label_file(path)[0], features.labels) if each]
    labels = next((each for each in lists if len(each) == _length(found[0])), ())
    fit = LAST if features.last else STRETCH
    spec = TaskSpec(KEYWORD, made.inputs[0], scores, fit, labels=labels, rate=features.rate)
    return recognized(made, spec, "hears", f"with the features of sound {whose}")


def _of_features(graph: Graph) -> Prepared | None:
    """The graph as it is: what runs it computes the features."""
    inputs, outputs = _tensors(graph, graph.inputs), _tensors(graph, graph.outputs)
    if len(inputs) != 1 or len(outputs) != 1 or inputs[0].quant is None:
        return None
    count = math.prod(outputs[0].shape)
    family = features_of(inputs[0].shape, inputs[0].dtype.value, count, bool(graph.states))
    said = f"hears words in WAV files, because the input is like {family}'s features of sound"
    return Prepared(graph, source=said) if family else None


def features_of(shape: Sequence[int], dtype: str, count: int, stateful: bool) -> str:
    """The family of a model with a quantized input of this shape and `count` scores; empty if it
    takes no known features."""
    if dtype != "s8":
        return ""
    if stateful and len(shape) == 3 and tuple(shape[::2]) == (1, CHANNELS) and count == 1:
        return MICRO_WAKE_WORD
    return MICRO_SPEECH if not stateful and (math.prod(shape), count) == _SPEECH else ""


def _vad(graph: Graph, asked: bool) -> Prepared | None:
    """Silero's conventions: a window of samples, a state that is carried, and the sample rate; one
    score, or two of which the second is that of speech."""
    sounds = [t for t in _tensors(graph, graph.inputs) if _length(t) in _FRAMES]
    scores = [t for t in _tensors(graph, graph.outputs) if t.shape and math.prod(t.shape) == 1]
    both = [t for t in _tensors(graph, graph.outputs) if t.shape == _BOTH]
    if not scores and len(both) == 1 and is_share(graph, both[0].name):
        graph, name = _second(graph, both[0].name)
        scores = [graph.tensors[name]]
    states = [t for t in _tensors(graph, graph.inputs) if len(t.shape) == 3]
    known = bool(states or graph.states) or asked
    kept = [[(t.shape, t.dtype) for t in ends] for ends in (states, _tensors(graph, graph.outputs))]
    if any(kept[0].count(each) > kept[1].count(each) for each in kept[0]):
        return None  # a state that no output continues
    if len(sounds) != 1 or len(scores) != 1 or not known or scores[0].dtype is not DType.F32:
        return None
    source = "because a window of samples and a state give one score"
    spec = TaskSpec(VAD, sounds[0].name, scores[0].name, labels=("speech",), rate=_RATE)
    return recognized(graph, spec, "finds speech", source)


def _second(graph: Graph, scores: str) -> tuple[Graph, str]:
    """The graph with the second of two scores as an output, and its name."""
    to = Appender(graph, SCORES)
    _, speech = to.add_all(ops.Split(1, (1, 1)), scores)
    name = free_name(graph, SCORES)
    return to.with_output(speech, name), name


def _unnamed(path: Path, graph: Graph, scores: Tensor) -> Prepared:
    """The graph as it is, with a note of what is missing."""
    note = (
        f"hears no words: '{scores.name}' may be {_length(scores)} scores, whose labels no file "
        f"lists: put them into {path.stem}.txt next to it, one in each line"
    )
    return without_task(graph, note)


def _keyword(path: Path, graph: Graph, asked: bool, guesses: bool) -> Prepared | None:
    inputs, outputs = _tensors(graph, graph.inputs), _tensors(graph, graph.outputs)
    if len(inputs) != 1 or inputs[0].dtype not in _SAMPLES or _length(inputs[0]) < _LEAST:
        return None
    found = [t for t in outputs if _length(t)]
    known = [t for t in found if (_length(inputs[0]), _length(t)) in _WINDOWS]
    notes = read_notes(path)
    named = [t for t, names in zip(outputs, notes.labels, strict=False) if len(names) == _length(t)]
    own = [t for t in named if _length(t) != _YAMNET]
    if len(own) == 1 and len(named) > 1:  # classes of the user, and YAMNet's
        found = own
    elif len(found) > 1:  # features of the sound are others
        found = known or [t for t in found if t.dtype is DType.F32 and is_share(graph, t.name)]
    if len(found) != 1:
        return None
    scores = found[0]
    lists = (*notes.labels, read_label_file(path)[0], read_config(path).labels)
    labels = next((each for each in lists if each and len(each) == _length(scores)), ())
    if not asked and not labels:
        if not guesses or _length(scores) < 2:
            return None
        if scores.name not in probabilities(graph, (scores.name,)):
            return _unnamed(path, graph, scores)
    about = read_json(config_folder(path) / PIXELS)
    stated = about.get("sampling_rate")
    rates = [each.sample_rate for each in notes.inputs if each.sample_rate]
    rate = next(iter(rates), stated if type(stated) is int and 1000 <= stated <= 192000 else 0)
    window = _length(inputs[0]), _length(scores)
    usual, why = _WINDOWS.get(window) or _LENGTHS.get(window[0], (_RATE, "which is usual"))
    birds = window[0] == _BIRDS and not rate
    if window[0] == _SLOW and not (rate or asked):
        return without_task(
            graph,
            f"hears no words: {_SLOW} samples may be a second or half of it; "
            f"use --task keyword, with --sample-rate {_SLOW} for the former",
        )
    graph, name, _ = as_shares(graph, scores, birds or read_config(path).independent)
    if window == _PERCH:
        graph = _of_peak(graph, _PERCH_PEAK)
    if stated and about.get("do_normalize") is True and inputs[0].dtype is DType.F32:
        graph = _on_any_level(graph)
    spec = TaskSpec(KEYWORD, graph.inputs[0], name, labels=labels, rate=rate or usual)
    at = "at the rate in the file" if rate else f"at {usual} samples per second, {why}"
    source = f"because {_length(inputs[0])} samples give scores, {at}"
    source += f", by '{scores.name}', without YAMNet's" if len(named) > 1 else ""
    source += "" if labels else f", by number, since {path.stem}.txt next to it lists no labels"
    return recognized(graph, spec, "hears", source)


def _on_any_level(graph: Graph) -> Graph:
    """The graph with samples of any level and offset as input: the model's own has the mean 0 and
    the variance 1, as Wav2Vec2FeatureExtractor of Hugging Face makes it."""

    def divisor(to: Appender, centered: str) -> str:
        squares = to.add(ops.Mul(), centered, centered)
        variance = _mean(to, squares)
        return to.add(ops.Sqrt(), to.add(ops.Add(), variance, to.constant([[LEAST_VARIANCE]])))

    return _centered(graph, divisor)


def _of_peak(graph: Graph, peak: float) -> Graph:
    """The graph with samples of any level and offset as input: the model's own has the mean 0, and
    `peak` as its largest value. Silence stays so."""

    def divisor(to: Appender, centered: str) -> str:
        largest = to.add(ops.ReduceMax((1,), keep_dims=True), to.add(ops.Abs(), centered))
        largest = to.add(ops.Maximum(), largest, to.constant([[_LEAST_PEAK]]))
        return to.add(ops.Mul(), largest, to.constant([[1 / peak]]))

    return _centered(graph, divisor)


def _centered(graph: Graph, divisor: Callable[[Appender, str], str]) -> Graph:
    """The graph with samples as input, which are divided by what `divisor` appends to those of mean
    0."""
    own = graph.tensors[graph.inputs[0]]
    name = free_name(graph, "samples")
    samples = Tensor(name, (1, _length(own)), DType.F32)
    to = Appender(Graph(graph.name, {name: samples}, (), (name,), ()), "level")
    centered = to.add(ops.Sub(), name, _mean(to, name))
    made = to.add(ops.Div(), centered, divisor(to, centered))
    front = to.with_output(to.add(ops.Reshape(own.shape), made), own.name)
    tensors, nodes = {**front.tensors, **graph.tensors}, (*front.nodes, *graph.nodes)
    return replace(graph, tensors=tensors, nodes=nodes, inputs=(name,))


def _mean(to: Appender, x: str) -> str:
    total = to.add(ops.ReduceSum((1,), keep_dims=True), x)
    return to.add(ops.Mul(), total, to.constant([[1 / to.shape(x)[1]]]))


def _tensors(graph: Graph, names: tuple[str, ...]) -> list[Tensor]:
    return [graph.tensors[name] for name in names]


def _length(tensor: Tensor) -> int:
    """Of a vector, whose other axes are 1 long; 0 for other shapes."""
    largest = max(tensor.shape, default=0)
    return largest if math.prod(tensor.shape) == largest else 0


def _misfit(task: str, graph: Graph) -> InputError:
    wanted = {
        KEYWORD: f"an input of at least {_LEAST} samples and an output with a score for each word",
        TRANSCRIBE: f"an input of at least {_LEAST} samples and an output [1, places, characters]",
        VAD: f"an input of {_FRAMES[0]} to {_FRAMES[-1]} samples, an output with one score and one "
        "for each state",
    }[task]
    ends = (f"'{n}' {list(graph.tensors[n].shape)}" for n in (*graph.inputs, *graph.outputs))
    return InputError(
        f"--task {task}: expected {wanted}, found {', '.join(ends)}; leave the option out"
    )
