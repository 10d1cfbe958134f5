"""Models that read a license plate or a word: fast-plate-ocr, PARSeq (Bautista and Atienza, 2022)
and ViTSTR (Atienza, 2021), with one character in each slot, and LPRNet (Zherzdev and Gruzdev,
2018), with a score for each character along the plate (CTC)."""

from __future__ import annotations

import re
import string
from dataclasses import replace
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import (
    BGR,
    CUBIC,
    LETTERBOX,
    OCR,
    STRETCH,
    TaskSpec,
)
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.sidecars import (
    own_text_file,
    plate_files,
    read_sidecar,
    read_yaml_sidecar,
)
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.known import KnownModel
from edgekit.host.compiler.tasks.lines import (
    DOCTR,
    FILE,
    Usual,
    character_document,
    characters_seen,
)
from edgekit.host.compiler.tasks.prepared import Prepared, free_name

_OUTPUT, _PLATE = "characters", "plate"  # the latter of fast-plate-ocr
_LPR_SIZE, _LPR_PLACES = (24, 94), 18
_LPR_PIXELS: dict[str, Any] = {
    "fit": STRETCH, "channels": BGR, "mean": (127.5,), "scale": (128.0,),
}  # fmt: skip
_LPR_NONE = "-"
# Provinces of China, digits, and letters in the order of LPRNet_Pytorch.
_LPR_CHARACTERS = (
    "京沪津渝冀晋蒙辽吉黑苏浙皖闽赣鲁豫鄂湘粤桂琼川贵云藏陕甘青宁新"
    "0123456789ABCDEFGHJKLMNPQRSTUVWXYZIO-"
)


_WORD, _PARSEQ_SLOTS = (32, 128, 3), 26
_PARSEQ = Usual(
    "PARSeq",
    string.digits + string.ascii_letters + "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~",
    0,
    {"fit": STRETCH, "filter": CUBIC, "mean": (127.5,), "scale": (127.5,)},
)
# ViTSTR's authors' take gray words, and begin with a slot and a character that stand for nothing.
_GRAY_WORD, _GRAY_SLOTS = (224, 224, 1), (25, 26, 27)
_GRAY = Usual(
    "ViTSTR",
    string.digits + string.ascii_letters + string.punctuation,
    1,
    {"fit": STRETCH, "filter": CUBIC, "mean": (127.5,), "scale": (127.5,)},
)
_OF_DOCTR = re.compile(r"(parseq|vitstr|sar_)")  # begins names of its models with an end


def plate_reader(model: KnownModel) -> Prepared | None:
    """The graph with the characters of a plate as output; None for other models. Where the
    characters are missing, a note says so."""
    if not (model.options.task in ("auto", "guess") or model.asks_for(OCR)):
        return None
    return _of_slots(model) or _of_places(model) or _of_a_word(model)


def _of_slots(model: KnownModel) -> Prepared | None:
    """Scores of all characters in each slot [1, slots, characters], or in one row."""
    named = [t for t in model.ends.outputs if t.name == _PLATE]
    found = named or (model.ends.outputs if len(model.ends.outputs) == 1 else [])
    config = next((c for t in found if (c := _config(model, t))), None)
    if config is None and named:
        said = (
            f"it reads plates, as fast-plate-ocr, if its configuration, {model.path.stem}"
            f"_plate_config.yaml, is next to {model.path.name}: fetch it, too"
        )
        return _missing(model, said)
    if config is None:
        return None
    (scores,), alphabet = found, str(config["alphabet"])
    count, slots = len(alphabet), scores.elements // len(alphabet)
    graph, blank = model.ends.graph, alphabet.index(config["pad_char"])
    to = Appender(graph, _OUTPUT)
    rows = to.tensor(to.add(ops.Reshape((1, slots, count)), to.floats(scores.name)))
    seen = _apart(to, characters_seen(to, rows, blank, True))
    pixels: dict[str, Any] = {"fit": STRETCH}
    if config.get("keep_aspect_ratio") is True:
        fill = config.get("padding_color", 114)
        fill = fill[0] if isinstance(fill, list) and fill else fill
        pixels = {"fit": LETTERBOX, "fill": fill if type(fill) is int and 0 <= fill < 256 else 114}
    if config.get("interpolation") == "cubic":
        pixels["filter"] = CUBIC
    characters = [c for i, c in enumerate(alphabet) if i != blank]
    return _told(model, to, seen, characters, pixels, f"in {slots} slots, with those of a .yaml")


def _apart(to: Appender, seen: str) -> str:
    """Places [1, slots, CHARACTER_FIELDS] with nothing behind each, so that equal characters in two
    are two."""
    _, slots, fields = to.shape(seen)
    wide = to.add(ops.Reshape((1, slots, 1, fields)), seen)
    both = to.add(ops.Concat(2), wide, to.constant(np.zeros((1, slots, 1, fields))))
    return to.add(ops.Reshape((1, 2 * slots, fields)), both)


def _of_a_word(model: KnownModel) -> Prepared | None:
    """Logits [1, slots, characters] of pictures as PARSeq, docTR and ViTSTR take them; what
    is behind the first end does not count."""
    image, scores = model.ends.image, model.ends.only(3)
    size = (image.height, image.width, image.channels)
    if scores is None or size not in (_WORD, _GRAY_WORD):
        return None
    _, slots, count = scores.shape
    is_gray = size == _GRAY_WORD and slots in _GRAY_SLOTS and count == len(_GRAY.characters) + 2
    if is_gray:
        usual = _GRAY
    elif size != _WORD:
        return None
    elif (slots, count) == (_PARSEQ_SLOTS, len(_PARSEQ.characters) + 1):
        usual = _PARSEQ
    elif count == len(DOCTR.characters) + 1 and _OF_DOCTR.match(model.path.stem.lower()):
        usual = DOCTR
    else:
        return None
    to = Appender(model.ends.graph, _OUTPUT)
    known = [*usual.characters]
    if is_gray:
        known, slots = ["", *known], slots - 1
        scores = to.tensor(to.add_all(ops.Split(1, (1, slots)), to.floats(scores.name))[1])
    seen = characters_seen(to, scores, usual.blank)
    number, sure = to.add_all(ops.Split(2, (1, 1)), seen)
    half, zero = (to.constant(np.full((1, 1, 1), value)) for value in (0.5, 0))
    one = to.constant(np.ones((1, slots, 1)))
    ends = to.add(ops.Where(), to.add(ops.Less(), number, half), one, zero)
    before = np.tril(np.ones((slots, slots)))[None]
    count_of_ends = to.add(ops.MatMul(), to.constant(before), ends)
    number = to.add(ops.Where(), to.add(ops.Less(), count_of_ends, half), number, zero)
    seen = _apart(to, to.add(ops.Concat(2), number, sure))
    pixels = {**usual.pixels, **model.pixels(0)}
    how = f"in {slots} slots, with those of {usual.whose}, since there are {count}"
    how += ", pixels as it takes them"
    return _told(model, to, seen, known, pixels, how, "a word")


def _config(model: KnownModel, scores: Tensor) -> dict[str, Any] | None:
    """What the authors' training program writes next to a model, if it fits the model."""
    image, found = model.ends.image, []
    for file in plate_files(model.path):
        config = read_yaml_sidecar(file)
        alphabet, none = config.get("alphabet"), config.get("pad_char")
        slots = config.get("max_plate_slots")
        if not (isinstance(alphabet, str) and isinstance(none, str) and type(slots) is int):
            continue
        size = (config.get("img_height"), config.get("img_width"))
        fits = slots * len(alphabet) == scores.elements and size == (image.height, image.width)
        if fits and len({*alphabet}) == len(alphabet) and len(none) == 1 and none in alphabet:
            found.append(config)
    same = found and all(each == found[0] for each in found)
    return found[0] if same else None


def _of_places(model: KnownModel) -> Prepared | None:
    """Scores [1, characters, places] along a plate."""
    image, scores = model.ends.image, model.ends.only(3)
    size = (image.height, image.width, image.channels)
    if size != (*_LPR_SIZE, 3) or scores is None or scores.shape[2] != _LPR_PLACES:
        return None
    count = scores.shape[1]
    own = (read_sidecar(own_text_file(model.path)) or b"").decode("utf-8", "replace").split()
    characters = own if len(own) == count and own.count(_LPR_NONE) == 1 else []
    whose = f"those of {own_text_file(model.path).name}"
    if not characters and count == len(_LPR_CHARACTERS):
        characters, whose = [*_LPR_CHARACTERS], f"those of plates of China, since there are {count}"
    if not characters:
        said = (
            f"it may read plates, as LPRNet, if {own_text_file(model.path).name} next to it has "
            f"its {count} characters, one in each line, with {_LPR_NONE} for none"
        )
        return _missing(model, said)
    to = Appender(model.ends.graph, _OUTPUT)
    rows = to.tensor(to.add(ops.Transpose((0, 2, 1)), to.floats(scores.name)))
    blank = characters.index(_LPR_NONE)
    seen = characters_seen(to, rows, blank)
    pixels = {**_LPR_PIXELS, **model.pixels(0)}
    known = [c for i, c in enumerate(characters) if i != blank]
    return _told(
        model, to, seen, known, pixels, f"as LPRNet, with {whose}, pixels as it takes them"
    )


def _told(
    model: KnownModel,
    to: Appender,
    seen: str,
    known: list[str],
    pixels: dict[str, Any],
    how: str,
    what: str = "a plate",
) -> Prepared:
    name = free_name(model.ends.graph, _OUTPUT)
    made = to.with_output(seen, name)
    source = f"characters {how}"
    spec = TaskSpec(OCR, model.ends.image.name, name, characters=FILE, **pixels)
    note = f"reads {what}, {source}; --task none leaves the outputs as they are"
    noted = replace(made, notes=(*made.notes, note))
    return Prepared(noted, spec, source, {FILE: character_document(known)})


def _missing(model: KnownModel, said: str) -> Prepared:
    graph, note = model.ends.graph, f"shows no results: {said}; --output FILE writes the tensors"
    return Prepared(replace(graph, notes=(*graph.notes, note)), source=note)
