"""Imports models whose open shapes follow from what they are for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from edgekit.device.runtime.agent.task import (
    BOXES,
    CLASSIFY,
    IMAGE,
    OCR,
    POSE,
    SEGMENT,
    SPEAK,
)
from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.frontends.common.open_shapes import OpenInput, open_inputs
from edgekit.host.compiler.ir.types import DType, Graph
from edgekit.host.compiler.options import CompileOptions, Shapes
from edgekit.host.compiler.sidecars import (
    CONFIG,
    PIXELS,
    TOKENIZER,
    VOCABULARY,
    character_files,
    config_folder,
)
from edgekit.host.compiler.tasks.craft import is_craft
from edgekit.host.compiler.tasks.dictation import dictation_graph, is_dictation
from edgekit.host.compiler.tasks.find import with_task
from edgekit.host.compiler.tasks.hub import read_config, read_json
from edgekit.host.compiler.tasks.kaldi import kaldi_recipe
from edgekit.host.compiler.tasks.label_file import listed_characters
from edgekit.host.compiler.tasks.lines import (
    HEIGHTS,
    TURNED_SIZE,
    is_line_direction,
    usual_height,
)
from edgekit.host.compiler.tasks.named import named_file
from edgekit.host.compiler.tasks.page import part_of
from edgekit.host.compiler.tasks.speech import SECONDS, masks_of_sound, read_speech
from edgekit.host.compiler.tasks.spoken import WINDOW, takes_speakers_apart
from edgekit.host.compiler.tasks.text_map import is_text_map
from edgekit.host.compiler.tasks.texts import takes_tokens
from edgekit.host.compiler.tasks.ultralytics import read_ultralytics
from edgekit.host.compiler.tasks.voices import PHONEMES, is_voice, most_frames
from edgekit.host.errors import InputError

_TOKENS = 128  # of a text
# Pixels of a line, and of each edge of a page, or a picture for a classifier.
_LINE, _PAGE, _CROP = (48, 320), 640, 224
_MAP, _IMAGE = 512, 256  # of pictures for models of pixels, and of those that become others
_STUB = 32
_HEARS = ("ForSequenceClassification", "ForAudioClassification")  # the ends of architectures
_LEAST_RATE, _MOST_RATE = 1000, 192_000
# Samples of a window by the length of the state of Silero's models; those with 128 take 64 samples
# of the window before with each.
_WINDOWS = {64: 512, 128: 576}
_STATES, _THIRD = ("state", "h", "c", "h0", "c0"), "h0"
_THIRD_WINDOW = 1536  # of the third version


def import_for_task(path: Path, options: CompileOptions) -> Graph:
    """The graph of a model's file. Open shapes that are not given are what is usual for models of
    its kind, if that is known; a note says so.

    Raises InputError as `import_model` does.
    """
    if options.recognizer is not None:
        return import_for_task(*part_of(path, options))
    if options.signature and is_dictation(path, options):
        return dictation_graph(path, options)
    rows = _rows_of_voice(path, options.shapes, options)
    try:
        made = import_model(path, options.shapes, options.signature, options.decoder, rows)
        return _of_one_picture(path, made, options)
    except InputError as error:
        known = options.task != "none" and not options.shapes
        ones = masks_of_sound(path) if known else {}
        asked = [each for each in open_inputs(error) if each.name not in ones]
        found = _proposals(path, asked, options) if known else iter(())
        shapes, why = next(found, ({}, ""))
        if not shapes and options.task == "guess" and (said := named_file(path)):
            raise InputError(f"{path.name}: {said}; for its tensors alone, {error}") from None
        if not shapes and (asked or not ones):
            raise
    rows = _rows_of_voice(path, shapes, options)
    graph = import_model(path, shapes, options.signature, max_rows=rows, ones=ones)
    if not shapes:
        return graph
    given = " ".join(f"{name}={','.join(map(str, shape))}" for name, shape in shapes.items())
    note = f"open shapes are {given}, {why}; --input-shape gives others"
    return replace(graph, notes=(*graph.notes, note))


def _of_one_picture(path: Path, graph: Graph, options: CompileOptions) -> Graph:
    """The graph of one picture where the file takes several, for which a task is then known; a note
    says so. Pictures of a few pixels are what a network was exported with that takes any."""
    if options.task != "guess" or options.shapes or len(graph.inputs) != 1:
        return graph
    name = graph.inputs[0]
    count, *rest = graph.tensors[name].shape or (1,)
    if count == 1 or len(rest) != 3 or 3 not in (rest[0], rest[2]):
        return graph
    if rest[0] == 3 and max(rest[1:]) <= _STUB:
        rest = [3, _PAGE, _PAGE]
    with suppress(InputError):
        made = import_model(path, {name: (1, *rest)}, options.signature)
        if with_task(path, made, options).task is not None:
            note = f"takes one picture {rest} at a time, not {count}; --input-shape gives others"
            return replace(made, notes=(*graph.notes, note))
    return graph


def _rows_of_voice(path: Path, shapes: Shapes, options: CompileOptions) -> int | None:
    """The frames of a voice for so many phonemes, unless the option or the file says how many."""
    if options.max_rows is not None or options.task not in ("auto", "guess", SPEAK):
        return options.max_rows
    if not is_voice(path):
        return None
    return most_frames(max((shape[-1] for shape in shapes.values() if shape), default=PHONEMES))


def _most_tokens(folder: Path) -> int:
    """Of a text, unless the model has fewer places."""
    places = read_json(folder / CONFIG).get("max_position_embeddings")
    return min(_TOKENS, places) if type(places) is int and places > 1 else _TOKENS


def _proposals(
    path: Path, asked: Sequence[OpenInput], options: CompileOptions
) -> Iterator[tuple[Shapes, str]]:
    """Shapes and what they are for."""
    if not asked:
        return
    folder, (first, *others) = config_folder(path), asked
    kinds = [(each.name, each.dtype, len(each.shape or ())) for each in asked]
    if takes_tokens(kinds) and any((folder / n).is_file() for n in (TOKENIZER, VOCABULARY)):
        length = _most_tokens(folder)
        yield {each.name: (1, length) for each in asked}, "for texts of as many tokens"
    if is_voice(path):
        yield {each.name: (1, PHONEMES) for each in asked}, "for so many phonemes"
    if heard := kaldi_recipe(path):
        seconds = heard.features.samples(heard.rows) / heard.features.rate
        yield heard.shapes, f"{seconds:.3g} s of sound"
    is_sound = not others and first.dtype is DType.F32 and len(first.shape or ()) == 2
    if is_sound and (speech := read_speech(path)) and speech.stated:
        length = SECONDS * speech.rate
        yield {first.name: (1, length)}, f"{SECONDS} s of sound"
    if is_sound and (rate := _rate_of_words(path)):
        yield {first.name: (1, rate)}, "1 s of sound"
    if window := _silero_window(path):
        yield (
            {each.name: _silero_shape(each, window) for each in asked},
            "for a window of speech as Silero's models take it",
        )
    made = [slot.shape or () for slot in outline_model(path).outputs]
    if len(made) == 1 and not others and takes_speakers_apart(first.shape or (), made[0]):
        yield {first.name: (1, 1, WINDOW)}, "10 s of sound"
    channels, *extents = (first.shape or ())[1:] or (None,)
    config = read_config(path)
    # Optimum leaves the channels open, too.
    is_colors = channels == 3 or (not isinstance(channels, int) and config.scale)
    if channels == 1 and extents[:1] == [HEIGHTS[-1]] and any(character_files(path)):
        yield {first.name: (1, 1, HEIGHTS[-1], _LINE[1])}, "for a line of text"
    is_last = extents[1:] == [3] and not any(isinstance(n, int) for n in (channels, extents[0]))
    if is_last and not others and options.task == "guess":
        yield from _of_pictures(path, first.name, options, last=True)
    if others or not is_colors or len(extents) != 2:
        return
    if sizes := read_ultralytics(path).size:
        yield {first.name: (1, 3, *sizes)}, "the size in the file's metadata"
    outputs = {each.name for each in outline_model(path).outputs}
    if config.side and (config.file in (PIXELS, CONFIG) or outputs == {"dets", "labels"}):
        yield {first.name: (1, 3, config.side, config.side)}, f"the size in {config.file}"
    reads = options.task == OCR or any(character_files(path)) or bool(usual_height(path))
    # Models of tables list the parts of tables as characters, but have places as another output.
    listed = listed_characters(path) and len(outline_model(path).outputs) == 1
    if listed or (reads and extents[0] in HEIGHTS):
        pairs = zip(extents, _LINE, strict=True)
        sizes = tuple(n if isinstance(n, int) else usual for n, usual in pairs)
        yield {first.name: (1, 3, *sizes)}, "for a line of text"
    elif all(not isinstance(n, int) for n in extents):
        shapes = {first.name: (1, 3, _PAGE, _PAGE)}
        with suppress(InputError):
            graph = import_model(path, shapes)
            if is_text_map(graph, graph.tensors[graph.outputs[0]]) or is_craft(graph):
                yield shapes, "for a page of text"
        if height := usual_height(path) if reads else 0:
            yield {first.name: (1, 3, height, _LINE[1])}, "for a line of text"
        if is_line_direction(path):
            yield {first.name: (1, 3, *TURNED_SIZE)}, "for a line of text"
        elif options.task == "guess":
            yield from _of_pictures(path, first.name, options)


def _rate_of_words(path: Path) -> int:
    """Samples per second of a model of Hugging Face that hears classes; 0 for others."""
    about = read_json(config_folder(path) / CONFIG).get("architectures")
    rate = read_json(config_folder(path) / PIXELS).get("sampling_rate")
    heard = isinstance(about, list) and any(str(each).endswith(_HEARS) for each in about)
    return rate if heard and type(rate) is int and _LEAST_RATE <= rate <= _MOST_RATE else 0


def _of_pictures(
    path: Path, name: str, options: CompileOptions, last: bool = False
) -> Iterator[tuple[Shapes, str]]:
    """The usual size of detectors, or of classifiers whose labels are known, or of models that make
    maps or pictures, if the model is one of these then. `last`: colors are the last axis, as of
    MoveNet, which takes smaller pictures than YOLO's poses."""
    for side, kinds, whose in (
        *([(_IMAGE, (POSE,), "MoveNet's files")] if last else []),
        (_PAGE, (*BOXES, POSE), "detectors"),
        (_CROP, (CLASSIFY,), "classifiers"),
        (_MAP, (SEGMENT,), "models of pixels"),
        (_IMAGE, (IMAGE,), "models that make pictures"),
    ):
        shapes = {name: (1, side, side, 3) if last else (1, 3, side, side)}
        with suppress(InputError):
            made = with_task(path, import_model(path, shapes), options)
            known = made.task is not None and (made.task.labels or kinds[0] in (SEGMENT, IMAGE))
            if made.task is not None and known and made.task.kind in kinds:
                yield shapes, f"as {whose} usually take pictures"


def _silero_window(path: Path) -> int:
    """The samples of a window; 0 if the model has other inputs than Silero's."""
    inputs = {slot.name: slot for slot in outline_model(path).inputs}
    states = [inputs[name].shape or (0,) for name in _STATES if name in inputs]
    sound = inputs.get("input")
    if not states or {*inputs} - {"input", "sr", *_STATES}:
        return 0
    if sound is None or sound.dtype != DType.F32.value or len(sound.shape or ()) != 2:
        return 0
    if _THIRD in inputs:
        return _THIRD_WINDOW
    last = states[0][-1]
    return _WINDOWS.get(last, 0) if isinstance(last, int) else 0


def _silero_shape(asked: OpenInput, window: int) -> tuple[int, ...]:
    """Open extents are 1, but for the samples."""
    if asked.name == "input":
        return 1, window
    return tuple(n if isinstance(n, int) else 1 for n in asked.shape or ())
