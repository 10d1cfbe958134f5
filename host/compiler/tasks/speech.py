"""Models that transcribe speech: a score for each character at each place along a window of
samples, as wav2vec 2.0, HuBERT and WavLM give it (CTC; Graves et al., 2006)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import NORMALIZED, STRETCH, TRANSCRIBE, TaskSpec
from edgekit.host.compiler.frontends import outline_model
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.ir.types import DType, Graph, Tensor
from edgekit.host.compiler.sidecars import (
    CONFIG,
    PIXELS,
    SPEECH_VOCABULARY,
    TOKENIZER_CONFIG,
    config_folder,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.hub import read_json
from edgekit.host.compiler.tasks.lines import FILE, character_document, characters_seen
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized
from edgekit.host.errors import InputError

_MASKED = ("input_values", "attention_mask")
SECONDS = 10  # of a window, if nothing says how long it is
RATE = 16000
_LEAST = 4000  # samples of a window
_HOPS = (80, 4000)  # samples of a step from a place to the next
BLANKS = ("<pad>", "[PAD]", "<blank>", "<blk>", "<epsilon>", "_")
_SPECIAL = ("<s>", "</s>", "<unk>", "[UNK]", "[CLS]", "[SEP]", "<mask>")
WORD = "\N{LOWER ONE EIGHTH BLOCK}"  # begins a word in SentencePiece's vocabularies
_MORE = 8  # scores for which a vocabulary may have no entry
_STATED = "ForCTC"
_FEWEST = 20  # characters


@dataclass(frozen=True)
class Speech:
    """What the files next to a model say: a text for each score, and which of them is none;
    `stated` if these files are certainly of a model that transcribes speech."""

    characters: tuple[str, ...]
    blank: int
    rate: int
    normalized: bool
    stated: bool


def read_speech(path: Path) -> Speech | None:
    """What vocab.json and the configurations next to a model say; None without them."""
    folder = config_folder(path)
    vocabulary = read_json(folder / SPEECH_VOCABULARY)
    numbers = {n: text for text, n in vocabulary.items() if type(n) is int and 0 <= n < 1 << 20}
    if not numbers or len(numbers) != len(vocabulary):
        return None
    about, sound, tokens = (read_json(folder / n) for n in (CONFIG, PIXELS, TOKENIZER_CONFIG))
    names = about.get("architectures")
    stated = isinstance(names, list) and any(str(name).endswith(_STATED) for name in names)
    blank = _blank(vocabulary, about, tokens)
    if blank is None:
        return None
    space = tokens.get("word_delimiter_token")
    space = space if isinstance(space, str) else "|"
    count = max(numbers) + 1
    characters = tuple(_text(numbers.get(i, ""), space) for i in range(count))
    rate = sound.get("sampling_rate")
    return Speech(
        characters,
        blank,
        rate if type(rate) is int and 1000 <= rate <= 192000 else RATE,
        sound.get("do_normalize") is not False,
        stated,
    )


def transcriber(path: Path, graph: Graph, asked: bool, guesses: bool) -> Prepared | None:
    """The graph with the best character at each place as output; None for other models.

    Raises InputError if the task is asked for and the model does not fit, or its characters are not
    known.
    """
    ends = _ends(graph)
    if ends is None:
        return None
    sound, scores = ends
    speech, count = read_speech(path), scores.shape[2]
    if speech is None or not count - _MORE <= len(speech.characters) <= count:
        if asked:
            raise InputError(
                f"--task {TRANSCRIBE}: expected {SPEECH_VOCABULARY} next to the model with a "
                f"number for each of its {count} characters, as Hugging Face has it, found "
                f"{'none' if speech is None else f'{len(speech.characters)} of them'}"
            )
        return None
    if not (asked or speech.stated or guesses):
        return None
    to = Appender(graph, "characters")
    name = free_name(graph, "characters")
    made = to.with_output(characters_seen(to, scores, speech.blank), name)
    fit = NORMALIZED if speech.normalized else STRETCH
    spec = TaskSpec(TRANSCRIBE, sound.name, name, fit, rate=speech.rate, characters=FILE)
    source = f"with the characters of {SPEECH_VOCABULARY}"
    seconds = math.prod(sound.shape) / speech.rate
    does = f"transcribes speech in windows of {seconds:.3g} s"
    listed = [*speech.characters, *[""] * (count - len(speech.characters))]
    listed.pop(speech.blank)  # the board counts it as 0
    return recognized(made, spec, does, source, {FILE: character_document(listed)})


def masks_of_sound(path: Path) -> dict[str, str]:
    """Which samples count, as files of Hugging Face for padded sounds take it, with the name of
    the samples: all do, since windows are full, but for silence at the end. Empty for others."""
    if format_of(path) != "onnx":
        return {}
    inputs = outline_model(path).inputs
    names, kinds = [slot.name for slot in inputs], [slot.dtype for slot in inputs]
    is_masked = names == [*_MASKED] and kinds == [DType.F32.value, DType.I64.value]
    return {names[1]: names[0]} if is_masked else {}


def unlisted_speech(graph: Graph) -> str:
    """What is missing where scores along a window of samples may be of characters; else empty."""
    ends = _ends(graph)
    if ends is None or ends[1].shape[2] < _FEWEST:
        return ""
    return (
        f"'{ends[1].name}' may be characters of speech, which no file lists: put "
        f"{SPEECH_VOCABULARY}, {CONFIG} and {PIXELS} of its folder next to it"
    )


def _ends(graph: Graph) -> tuple[Tensor, Tensor] | None:
    """The window of samples, and the scores [1, places, characters]."""
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        return None
    sound, scores = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    samples = max(sound.shape, default=0)
    if sound.dtype is not DType.F32 or math.prod(sound.shape) != samples or samples < _LEAST:
        return None
    if len(scores.shape) != 3 or scores.shape[0] != 1 or scores.dtype is not DType.F32:
        return None
    fits = _HOPS[0] <= samples / max(scores.shape[1], 1) <= _HOPS[1]
    return (sound, scores) if fits and scores.shape[2] > 1 else None


def _blank(vocabulary: dict[str, Any], about: dict[str, Any], tokens: dict[str, Any]) -> int | None:
    """The number of what is no character, as a configuration or its name says."""
    stated = tokens.get("pad_token")
    for name in (stated if isinstance(stated, str) else "", *BLANKS):
        if name in vocabulary:
            return int(vocabulary[name])
    number = about.get("pad_token_id")
    return number if type(number) is int and number >= 0 else None


def _text(token: str, space: str) -> str:
    if token == space:
        return " "
    return "" if token in (*_SPECIAL, *BLANKS) else token.replace(WORD, " ")
