"""Models that read a line of text in a picture: a score for each character along the line."""

from __future__ import annotations

import json
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.lines import LINE_PIXELS, SCHEMA
from edgekit.device.runtime.agent.task import CLASSIFY, LINE, OCR, STRETCH, TaskSpec
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.sidecars import (
    PADDLE_FILES,
    character_files,
    config_folder,
    read_sidecar,
    read_yaml_sidecar,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.known import KnownModel
from edgekit.host.compiler.tasks.label_file import listed_characters
from edgekit.host.compiler.tasks.prepared import Prepared, free_name
from edgekit.host.errors import InputError

FILE = "characters.json"  # in the release
_OUTPUT = "characters"
HEIGHTS = (32, 48, 64)  # pixels of a line
_BLANKS = ("<blank>", "[blank]", "blank")  # lines that stand for no character
_OLD_HEIGHT, _SINCE = 32, 3  # before that version of PP-OCR
_PLAIN_CLS = re.compile(r"cls([-_](model|infer|inference|mobile))?|(model|inference)[-_]cls")
_FOLDERS = 3  # around a file, whose names are read
TURNED_SIZE = (48, 192)  # of the classifier of lines
_TURNS = ("0 degrees", "180 degrees")
_WORD = (32, 100, 1)  # of CRNN, which takes words of any proportions so (Shi et al., 2015)
_KERAS = (31, 200)  # height and width of a word for keras-ocr
_FEWEST = 3  # places along a line
_AXES = 3  # of the size of a line


def line_reader(model: KnownModel) -> Prepared | None:
    """The graph with the best character at each place as output; None for other models.

    Raises InputError if the task is asked for and the characters are not known.
    """
    scores = scores_of(model.ends, model.asks_for(OCR))
    if scores is None or not (model.options.task in ("auto", "guess") or model.asks_for(OCR)):
        return None
    count = scores.shape[2]
    found = next((each for each in _lists(model, count)), None)
    if found is None:
        if not model.asks_for(OCR):
            return None
        raise InputError(
            f"--task {OCR}: expected {count - 1} or {count - 2} characters in the file's metadata, "
            f"or one in each line of {model.path.stem}.txt next to it, found neither"
        )
    characters, source, blank = found
    graph = model.ends.graph
    to = Appender(graph, _OUTPUT)
    is_shares = model.ends.is_from(scores.name, ops.Softmax.kind)
    name = free_name(graph, _OUTPUT)
    made = to.with_output(characters_seen(to, scores, blank, is_shares), name)
    image = model.ends.image
    is_word = (image.height, image.width, image.channels) == _WORD
    usual = _usual_of(model, count)
    pixels = {**(usual.pixels if usual else LINE_PIXELS), **({"fit": STRETCH} if is_word else {})}
    spec = TaskSpec(OCR, image.name, name, characters=FILE, **pixels)
    note = f"reads a line of text, with the characters of {source}; --task none leaves the outputs"
    noted = replace(made, notes=(*made.notes, note))
    files = {FILE: character_document(characters)}
    return Prepared(noted, spec, f"with the characters of {source}", files)


def characters_seen(to: Appender, scores: Tensor, blank: int, is_shares: bool = False) -> str:
    """The number of the best character at each place and its score, f32 [1, places, 2]; `blank` is
    the number of the one that is none, which becomes 0. `is_shares`: a softmax made the scores."""
    count, length = scores.shape[2], max(scores.shape[:2])
    shares = to.add(ops.Reshape((1, length, count)), to.floats(scores.name))
    if blank:  # as the first, which it is on the board
        order = np.array([blank, *(i for i in range(count) if i != blank)])
        shares = to.add(ops.Gather(2), shares, to.constant(order, DType.I64))
    if not is_shares:
        shares = to.add(ops.Softmax(), shares)
    places = (1, length, 1)
    best = to.add(ops.Convert(DType.F32), to.add(ops.ArgExtreme(2), shares))
    parts = (
        to.add(ops.Reshape(places), part) for part in (best, to.add(ops.ReduceMax((2,)), shares))
    )
    return to.add(ops.Concat(2), *parts)


def paddle_line(path: Path) -> tuple[list[str], int]:
    """The characters, and the height of a line, in what PaddleX writes for a recognizer; nothing
    and 0 for others."""
    folder = config_folder(path)
    file = next((folder / name for name in PADDLE_FILES if (folder / name).is_file()), None)
    about = read_yaml_sidecar(file) if file else {}
    after, before = about.get("PostProcess"), about.get("PreProcess")
    listed = after.get("character_dict") if isinstance(after, dict) else None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        return [], 0
    steps = before.get("transform_ops") if isinstance(before, dict) else None
    sizes = [each.get("RecResizeImg", {}) for each in steps or () if isinstance(each, dict)]
    shapes = [each["image_shape"] for each in sizes if isinstance(each, dict) and each]
    height = shapes[0][1] if len(shapes) == 1 and len(shapes[0]) == _AXES else 0
    return listed, height if height in HEIGHTS else 0


def character_document(characters: Sequence[str]) -> bytes:
    """The file of a release that lists the characters from number 1."""
    document = {"schema": SCHEMA, "characters": list(characters)}
    return json.dumps(document, ensure_ascii=False).encode()


def line_direction(model: KnownModel) -> Prepared | None:
    """PaddleOCR's classifier that tells whether a line of text is upside down; None for other
    models. Only the name of the file shows what its two scores are."""
    ends = model.ends
    size = (ends.image.height, ends.image.width)
    is_one = len(ends.outputs) == 1 and ends.outputs[0].shape == (1, 2)
    if size != TURNED_SIZE or not is_one or not is_line_direction(model.path):
        return None
    if model.options.task not in ("guess", CLASSIFY):
        return None
    (scores,) = ends.outputs
    spec = TaskSpec(CLASSIFY, ends.image.name, scores.name, labels=_TURNS, **LINE_PIXELS)
    source = "because the file, or its folder, is named like PaddleOCR's classifier of lines"
    note = f"tells whether a line of text is upside down, {source}"
    return Prepared(replace(ends.graph, notes=(*ends.graph.notes, note)), spec, source)


def is_line_direction(path: Path) -> bool:
    """Whether a file is named like PaddleOCR's classifier of lines, or `cls` in a folder that is
    named so."""
    name = path.stem.lower()
    folders = (folder.name.lower() for folder in path.absolute().parents[:_FOLDERS])
    in_folder = _PLAIN_CLS.fullmatch(name) and any("ocr" in folder for folder in folders)
    return bool(in_folder) or re.search(r"ocr.*cls|cls.*ocr", name) is not None


def usual_height(path: Path) -> int:
    """The height of lines for a recognizer of PaddleOCR, by the file next to it or the version in
    its name; 0 if these say nothing."""
    if height := paddle_line(path)[1]:
        return height
    found = re.search(r"ocr_?v?([1-9])|_v([12])\.0", path.stem.lower())
    if found is None or "rec" not in path.stem.lower():
        return 0
    return _OLD_HEIGHT if int(found[1] or found[2]) < _SINCE else HEIGHTS[1]


def scores_of(ends: Ends, asked: bool = False) -> Tensor | None:
    """The only output, [1, places, characters] or [places, 1, characters], of a picture that is a
    line: of a usual height, unless the task is asked for."""
    image = ends.image
    usual = image.height in HEIGHTS and image.width >= 2 * image.height
    usual = usual or (image.height, image.width) == _KERAS
    if len(ends.outputs) != 1 or not (usual or asked):
        return None
    (scores,) = ends.outputs
    if len(scores.shape) != 3 or 1 not in scores.shape[:2]:
        return None
    return scores if _FEWEST <= max(scores.shape[:2]) <= image.width else None


@dataclass(frozen=True)
class Usual:
    """Whose the characters of a model of this height, channels and number of scores are, the number
    of the one that is none, and fields of a TaskSpec. `name`: a pattern for parts of the file's;
    `width`: of the picture, 0 for any."""

    whose: str
    characters: str
    blank: int = 0
    pixels: Mapping[str, Any] = field(default_factory=lambda: LINE_PIXELS)
    name: str = ""
    width: int = 0


_ENGLISH = string.digits + string.ascii_letters + string.punctuation
DOCTR = Usual(
    "docTR for French",
    f"{_ENGLISH}°£€¥¢฿àâéèêëîïôùûüçÀÂÉÈÊËÎÏÔÙÛÜÇ",
    126,
    {"fit": LINE, "fill": 0, "mean": (176.97, 177.225, 176.715), "scale": (76.245, 75.48, 76.755)},
    "crnn|viptr",  # whose other models have an end instead of a place for none
)
_USUAL = {
    (_KERAS[0], 1, 37): Usual(
        "keras-ocr",
        string.digits + string.ascii_lowercase,
        36,
        {"fit": LINE, "fill": 0, "mean": (0.0,), "scale": (255.0,)},
        width=_KERAS[1],
    ),
    (32, 1, 37): Usual("CRNN", string.digits + string.ascii_lowercase, width=_WORD[1]),
    (64, 1, 97): Usual(
        "EasyOCR for English",
        f"{string.digits}{string.punctuation} €{string.ascii_uppercase}{string.ascii_lowercase}",
    ),
    (32, 3, 127): DOCTR,
}  # fmt: skip


def _usual_of(model: KnownModel, count: int) -> Usual | None:
    """What a model of this size usually is."""
    image = model.ends.image
    usual = _USUAL.get((image.height, image.channels, count))
    if usual is None or not re.search(usual.name, model.path.stem.lower()):
        return None
    return usual if usual.width in (0, image.width) else None


def _lists(model: KnownModel, count: int) -> Iterator[tuple[list[str], str, int]]:
    """Lists of characters with as many as the output has, where they are from, and the number of
    the one that is none: that of a line that says so, else 0. Where the output has one more, a
    space follows them."""
    path = model.path
    yield from _fitting(listed_characters(path), count, "the file's metadata")
    yield from _fitting("\n".join((*paddle_line(path)[0], "")), count, PADDLE_FILES[1])
    for file in character_files(path):
        data = read_sidecar(file)
        if file.suffix == ".json":
            if found := _of_json(data or b"", count):
                yield found, file.name, 0
            continue
        yield from _fitting((data or b"").decode("utf-8", "replace"), count, file.name)
    if usual := _usual_of(model, count):
        yield [*usual.characters], f"{usual.whose}, because there are {count}", usual.blank


def _of_json(data: bytes, count: int) -> list[str]:
    """Of ddddocr: a list, or one in a document, that begins with an empty text for none."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return []
    found = found.get("charset") if isinstance(found, dict) else found
    if not isinstance(found, list) or len(found) != count or found[0] != "":
        return []
    return found[1:] if all(isinstance(each, str) for each in found) else []


def _fitting(text: str, count: int, source: str) -> Iterator[tuple[list[str], str, int]]:
    lines = text.split("\n")
    lines = [line.rstrip("\r") for line in (lines if lines[-1] else lines[:-1])]
    blanks = [i for i, line in enumerate(lines) if line.lower() in _BLANKS]
    if len(lines) == count and len(blanks) == 1:
        yield [line for i, line in enumerate(lines) if i != blanks[0]], source, blanks[0]
    elif len(lines) == count - 1:
        yield lines, source, 0
    elif len(lines) == count - 2:
        yield [*lines, " "], source, 0
