"""Models that take Kaldi's features of sound: what their metadata, or files next to them, say.

Speakers' vectors of WeSpeaker and 3D-Speaker, speech of SenseVoice and Zipformer with CTC as
sherpa-onnx exports them, and classes of sounds by the Audio Spectrogram Transformer. Speakers'
features are those of wespeaker/bin/infer_onnx.py (WeSpeaker) and speakerlab/process/processor.py
(3D-Speaker).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from edgekit.device.runtime.agent.task import EMBED, KEYWORD, TRANSCRIBE, VAD, TaskSpec
from edgekit.host.compiler.frontends import outline_model
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Graph, Tensor
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import (
    CONFIG,
    PIXELS,
    SPEECH_TOKENS,
    config_folder,
    read_sidecar,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.features import KALDI, Scaled, rows_before
from edgekit.host.compiler.tasks.hub import read_config, read_json
from edgekit.host.compiler.tasks.label_file import read_label_file
from edgekit.host.compiler.tasks.lines import FILE, character_document, characters_seen
from edgekit.host.compiler.tasks.nemo import VECTORS, nemo_recipe, speech_brain_recipe
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized, without_task
from edgekit.host.compiler.tasks.shares import as_shares
from edgekit.host.compiler.tasks.sound_recipe import Recipe
from edgekit.host.compiler.tasks.speech import BLANKS, WORD
from edgekit.host.compiler.tasks.spoken import marble_net_recipe, with_speech
from edgekit.host.compiler.tasks.vectors import unit_vector
from edgekit.host.errors import InputError

_LOUD = 32768.0  # samples of 16 bits
_SPEAKER_ROWS, _SPEECH_ROWS = 298, 998  # of 3 s and 10 s
_BANDS, _LFR = 80, (7, 6)
_BEFORE_WORDS = 4  # places of SenseVoice for language, emotion, event and style
_PLAIN = ("campplus", "cam++", "eres2net")  # in the names of files of 3D-Speaker's models
_K2 = replace(KALDI, high=7600.0, mirrored=True)  # as lhotse computes them
_AST = ("ASTForAudioClassification", "ASTFeatureExtractor")
_WE_SPEAKER = "WeSpeakerFeatureExtractor"  # in files of Hugging Face
_MOST_ROWS, _MOST_BANDS = 4096, 256
_LEAST_VECTOR = 8  # numbers


def kaldi_recipe(path: Path) -> Recipe | None:
    """What the file says; None for other models."""
    if format_of(path) != "onnx":
        return None
    outline = outline_model(path)
    inputs = {slot.name: slot for slot in outline.inputs}
    first = outline.inputs[0] if outline.inputs else None
    if first is None or first.dtype != "f32" or len(first.shape or ()) != 3:
        return None
    names, rows = [*inputs], (first.shape or (0, 0))[1]
    outputs = [slot.name for slot in outline.outputs]
    found = _ast(path, names) or _of_metadata(path, names, outputs)
    found = found or speech_brain_recipe(path, names)
    width = (first.shape or ())[2]
    if found is None:
        shapes = {slot.name: slot.shape or () for slot in outline.outputs}
        found = nemo_recipe(onnx_metadata(path), names, outputs, rows)
        found = found or marble_net_recipe(names, shapes, rows)
        rows, width = width, rows
    if found is None:
        return None
    if isinstance(width, int) and width != found.features.width:
        return None
    return replace(found, rows=rows) if isinstance(rows, int) else found


def _of_metadata(path: Path, names: Sequence[str], outputs: Sequence[str]) -> Recipe | None:
    about = onnx_metadata(path)
    kind, framework = about.get("model_type", ""), about.get("framework", "")
    first, *others = names
    plain = any(each in path.stem.lower() for each in _PLAIN)
    whose = read_json(config_folder(path) / PIXELS).get("feature_extractor_type")
    if (
        framework == "wespeaker"
        or whose == _WE_SPEAKER
        or (names, [*outputs]) == (["feats"], ["embs"])
    ):
        own = replace(KALDI, curve="hamming", level=True)
        loud = _LOUD if about.get("normalize_samples", "0") == "0" else 1.0
        made = Recipe(EMBED, first, replace(own, gain=loud), _SPEAKER_ROWS, "WeSpeaker")
    elif framework == "3d-speaker" or plain:
        own = replace(KALDI, level=True)
        loud = _LOUD if about.get("normalize_samples", "1") == "0" else 1.0
        made = Recipe(EMBED, first, replace(own, gain=loud), _SPEAKER_ROWS, "3D-Speaker")
    elif kind == "zipformer2_ctc" and len(others) == 1:
        made = Recipe(TRANSCRIBE, first, _K2, _SPEECH_ROWS, "Zipformer with CTC")
        made = replace(made, others={others[0]: None})
    elif kind == "wenet_ctc" and len(others) == 1:
        own = replace(KALDI, gain=_LOUD)
        made = Recipe(TRANSCRIBE, first, own, _SPEECH_ROWS, "WeNet", {others[0]: None})
    elif kind == "zipformer2" and len(others) == 1 and [*outputs] == ["logits"]:
        made = Recipe(KEYWORD, first, _K2, _SPEECH_ROWS, "Zipformer for classes of sounds")
        made = replace(made, others={others[0]: None})
    elif "sense_voice" in kind.replace("-", "_") and len(others) == 3:
        return _sense_voice(about, names)
    else:
        return None
    return made if len(others) == len(made.others) else None


def _sense_voice(about: Mapping[str, str], names: Sequence[str]) -> Recipe | None:
    try:
        stack, skip = (int(about[f"lfr_window_{name}"]) for name in ("size", "shift"))
        shift, factor = (_numbers(about[name]) for name in ("neg_mean", "inv_stddev"))
        language, style = int(about["lang_auto"]), int(about["with_itn"])
    except (KeyError, ValueError):
        return None
    own = replace(KALDI, curve="hamming", stack=stack, skip=skip)
    if (stack, skip) != _LFR or not len(shift) == len(factor) == own.width:
        return None
    loud = _LOUD if about.get("normalize_samples", "0") == "0" else 1.0
    rows = (_SPEECH_ROWS - stack) // skip + 1
    first, length, spoken, normal = names
    return Recipe(
        TRANSCRIBE, first, replace(own, gain=loud), rows, "SenseVoice",
        {length: None, spoken: language, normal: style},
        ((ops.Add(), shift), (ops.Mul(), factor)), _BEFORE_WORDS,
    )  # fmt: skip


def _numbers(text: str) -> list[float]:
    made = [float(part) for part in text.split(",") if part.strip()]
    if not np.isfinite(made).all():
        raise ValueError(text[:40])
    return made


def _ast(path: Path, names: Sequence[str]) -> Recipe | None:
    """What config.json and preprocessor_config.json next to an Audio Spectrogram Transformer
    say."""
    folder = config_folder(path)
    about, sound = read_json(folder / CONFIG), read_json(folder / PIXELS)
    made = about.get("architectures")
    if len(names) != 1 or made != [_AST[0]] or sound.get("feature_extractor_type") != _AST[1]:
        return None
    bands, rows, rate = (sound.get(n, usual) for n, usual in (
        ("num_mel_bins", 128), ("max_length", 1024), ("sampling_rate", KALDI.rate)
    ))  # fmt: skip
    mean, deviation = sound.get("mean", -4.2677393), sound.get("std", 4.5689974)
    counts = type(bands) is int and type(rows) is int and rate == KALDI.rate
    if not counts or not (0 < bands <= _MOST_BANDS and 0 < rows <= _MOST_ROWS):
        return None
    scaled: Scaled = ()
    if sound.get("do_normalize") is not False:
        if not (isinstance(mean, float) and isinstance(deviation, float) and deviation > 0):
            return None
        scaled = ((ops.Add(), [-mean] * bands), (ops.Mul(), [0.5 / deviation] * bands))
    own = replace(KALDI, bands=bands, curve="hanning", hushed=True)
    return Recipe(KEYWORD, names[0], own, rows, "the Audio Spectrogram Transformer", {}, scaled)


def kaldi_task(path: Path, graph: Graph, options: CompileOptions) -> Prepared | None:
    """The graph with the features before it, and its task; None for other models. Raises InputError
    if files are missing and the task is asked for."""
    recipe = kaldi_recipe(path) if options.task not in ("none", "") else None
    if recipe is None or options.task not in ("auto", "guess", recipe.task):
        return None
    shape = graph.tensors[recipe.input].shape
    tensors, rows = dict(graph.tensors), shape[2 if recipe.across else 1]
    for name, value in recipe.others.items():
        one = tensors[name]
        data = np.full(one.shape, rows if value is None else value, one.dtype.numpy)
        tensors[name] = replace(one, data=data)
    own = replace(graph, tensors=tensors, inputs=(recipe.input,))
    own = rows_before(own, recipe.input, recipe.features, rows, recipe.scaled)
    if recipe.task == VAD:
        made, spec = with_speech(own, own.tensors[own.outputs[0]], recipe.features.rate)
        return _with_source(made, spec, recipe, "finds speech as MarbleNet")
    if recipe.task == TRANSCRIBE:
        return _transcriber(path, own, recipe, options.task == TRANSCRIBE)
    return _embedder(own, recipe) if recipe.task == EMBED else _classifier(path, own, recipe)


def _embedder(graph: Graph, recipe: Recipe) -> Prepared | None:
    vectors = [t for t in _outputs(graph) if _LEAST_VECTOR <= max(t.shape, default=0) == t.elements]
    vectors = [t for t in vectors if t.name in VECTORS] or vectors  # not scores of speakers
    if len(vectors) != 1:
        return None
    to = Appender(graph, "embedding")
    name = free_name(graph, "embedding")
    made = to.with_output(unit_vector(to, vectors[0]), name)
    rate = recipe.features.rate
    seconds = graph.tensors[graph.inputs[0]].elements / rate
    spec = TaskSpec(EMBED, graph.inputs[0], name, rate=rate)
    return _with_source(
        made, spec, recipe, f"gives the vectors of speakers in windows of {seconds:.3g} s"
    )


def _transcriber(path: Path, graph: Graph, recipe: Recipe, asked: bool) -> Prepared | None:
    scores = next((t for t in _outputs(graph) if len(t.shape) == 3 and t.shape[0] == 1), None)
    if scores is None or scores.shape[1] <= recipe.skipped:
        return None
    count = scores.shape[2]
    tokens, blank, file = _tokens(path, count, recipe.tokens)
    if not tokens:
        said = (
            f"it transcribes speech, as {recipe.whose}, if {SPEECH_TOKENS} with its {count} tokens "
            f"is next to {path.name}: fetch it, too"
        )
        return _missing(graph, said, asked)
    to = Appender(graph, FILE)
    name, seen = free_name(graph, "characters"), scores
    if recipe.skipped:
        parts = (recipe.skipped, scores.shape[1] - recipe.skipped)
        _, later = to.add_all(ops.Split(1, parts), scores.name)
        seen = to.tensor(later)
    made = to.with_output(characters_seen(to, seen, blank), name)
    rate = recipe.features.rate
    seconds = graph.tensors[graph.inputs[0]].elements / rate
    spec = TaskSpec(TRANSCRIBE, graph.inputs[0], name, rate=rate, characters=FILE)
    tokens.pop(blank)  # the board counts it as 0
    files = {FILE: character_document(tokens)}
    what = f"transcribes speech in windows of {seconds:.3g} s, by {file}"
    return replace(_with_source(made, spec, recipe, what), files=files)


def _classifier(path: Path, graph: Graph, recipe: Recipe) -> Prepared | None:
    found = [t for t in _outputs(graph) if 1 < max(t.shape, default=0) == t.elements]
    if len(found) != 1:
        return None
    (scores,) = found
    config = read_config(path)
    lists = (config.labels, read_label_file(path)[0])
    labels = next((each for each in lists if len(each) == scores.elements), ())
    made, name, _ = as_shares(graph, scores, config.independent)
    spec = TaskSpec(KEYWORD, made.inputs[0], name, labels=labels, rate=recipe.features.rate)
    named = "" if labels else f", by number, since {path.stem}.txt next to it lists no labels"
    return _with_source(made, spec, recipe, f"hears classes of sounds{named}")


def _outputs(graph: Graph) -> Iterable[Tensor]:
    return (graph.tensors[name] for name in graph.outputs)


def _with_source(graph: Graph, spec: TaskSpec, recipe: Recipe, does: str) -> Prepared:
    source = f"with the features of sound as {recipe.whose} takes them"
    return recognized(graph, spec, does, source)


def _missing(graph: Graph, said: str, asked: bool) -> Prepared:
    if asked:
        raise InputError(said)
    note = f"shows no results: {said}"
    return without_task(graph, note)


def _tokens(path: Path, count: int, files: Sequence[str]) -> tuple[list[str], int, str]:
    """A text for each of so many scores, which of them is none, and the first of the files that has
    them as icefall and FunASR write it: a token and its number in each line; empty if none does."""
    for file in files:
        data = read_sidecar(config_folder(path) / file) or b""
        lines = [line.rpartition(" ") for line in data.decode("utf-8", "replace").splitlines()]
        texts, blank = [""] * count, 0
        if not all(n.isdecimal() and int(n) < count for _, _, n in lines):
            continue
        for token, _, number in lines:
            hidden = token in BLANKS or (token[:1], token[-1:]) == ("<", ">")
            texts[int(number)] = "" if hidden else token.replace(WORD, " ")
            blank = int(number) if token in BLANKS else blank
        if lines:
            return texts, blank, file
    return [], 0, ""
