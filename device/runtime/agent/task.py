"""A model's task: how a picture or sound becomes its input, and what its outputs mean."""

from __future__ import annotations

from typing import Tuple

from edgekit.device.runtime.agent.strict import bad, each, integer, keys_of, number, text
from edgekit.device.runtime.record import Record

CLASSIFY, DETECT, POSE, SEGMENT = "classify", "detect", "pose", "segment"
LETTERBOX, CORNER, STRETCH, CROP, LINE = "letterbox", "corner", "stretch", "crop", "line"
NORMALIZED = "normalized"  # sound of mean 0 and variance 1
LAST = "last"  # sound that ends where the window does
RGB, BGR = "rgb", "bgr"
EMBED, OCR, KEYWORD, VAD, GENERATE = "embed", "ocr", "keyword", "vad", "generate"
TRANSCRIBE, SPEAK, IMAGE = "transcribe", "speak", "image"
# Signatures of a model for `transcribe` with an encoder, which hears a window of sound, and a
# decoder, which gives the token behind those so far.
LISTEN, WRITE = "listen", "write"
# Signatures of a model that finds lines of text in a page, and of one that reads each.
FIND, READ = "find", "read"
PICTURES, HEARD = (CLASSIFY, DETECT, POSE, SEGMENT, EMBED, OCR, IMAGE), (KEYWORD, VAD)
SOUNDS = (*HEARD, TRANSCRIBE)
INSTANCES = "instances"  # --task segment where a model tells objects apart
OBB = "obb"  # --task detect where boxes are rotated
KINDS, CHANNELS = (*PICTURES, *SOUNDS, INSTANCES, OBB, GENERATE, SPEAK), (RGB, BGR)
ASKED = {INSTANCES: SEGMENT, OBB: DETECT}  # what --task names
BOXES = (DETECT, INSTANCES, OBB)  # outputs begin with rows of FIELDS
FITS = (LETTERBOX, CORNER, STRETCH, CROP, LINE, NORMALIZED, LAST)

LINEAR, CUBIC = "bilinear", "bicubic"
FILTERS = ("", LINEAR, CUBIC)

MOST_ZOOM = 4
_MOST_RATE = 1_000_000
FIELDS = 7  # of a detection: image, class, score, left, top, right, bottom
CHARACTER_FIELDS = 2  # of a place along a line of text: number of the character, score
POINT_FIELDS = 3  # of a point of a pose: x, y, score
CORNERS = 4  # of a rotated box: points


class TaskSpec(Record):
    """`kind` is one of KINDS. The picture is resized to `input` by `fit`: a letterbox keeps its
    proportions and fills the rest with `fill` (0 to 255), a corner does so with the picture at the
    top left, a line so that it has the full height, a crop cuts what is too much. Then it is made
    `zoom` times as large around its center. Pixels are resized with two taps in each direction, as
    OpenCV does by default, or by `filter`, one of FILTERS, as Pillow does. `channels` is the order
    of colors. A value of the input is (pixel - mean) / scale; both are empty for the input's own
    default.

    `output` holds a score per class for `classify`; for `detect` rows of FIELDS f32, best first in
    each class, in pixels of the input; rows of class -1 are empty. For `pose`, POINT_FIELDS f32 for
    each point follow in a row, and for `obb` those of the CORNERS of a box. For `segment` it is a
    map of classes, u8 [1, rows, columns]. For `instances` other values follow in a row, and output
    `masks`, s8 [rows, height, width], is above 0 where the object is.
    For `image` it is a picture, u8 [1, rows, columns, 1 or 3], red first, of what the input shows.
    For `embed` it is a vector of length 1, f32 [1, n]; with a `rate`, the input is a window of
    samples. For `ocr` it has CHARACTER_FIELDS f32 for
    each place along a line of text; `characters` is a file of the release with all of them.
    `labels` name the classes, in order; empty if unknown. For `keyword` and `vad`, the input is a
    window of samples, -1 to 1, of which `rate` are a second, and the output a score from 0 to 1 for
    each class, or, for `vad`, for each of equally long parts of the window, f32; the last window
    ends where the sound does if `fit` is LAST, and silence comes before a sound that is shorter.
    For `transcribe` the input is such a window, too, NORMALIZED if `fit` says so, and the output
    has CHARACTER_FIELDS f32 for each place along it, as for `ocr`; with the signatures LISTEN and
    WRITE, `characters` is agent/dictation.py's file. For `detect` with the signatures FIND and
    READ, `characters` is the file of READ.

    For `speak`, `input` takes the numbers of phonemes of a voice, agent/voice.py's file
    `characters`; `output` is samples, of which output `mask`, if there is one, says how many count.

    A model of texts has a `tokenizer`, a file of the release: `input` takes the tokens, `mask` (if
    it has that input) 1 for each that counts, `segments` 0 for each. It gives a vector, or scores.
    For `generate` that file is agent/language.py's, and `output` the logits of the most likely
    next tokens.
    """

    kind: str
    input: str
    output: str
    fit: str = STRETCH
    fill: int = 114
    channels: str = RGB
    mean: Tuple[float, ...] = ()
    scale: Tuple[float, ...] = ()
    labels: Tuple[str, ...] = ()
    rate: int = 0
    zoom: float = 1.0
    tokenizer: str = ""
    mask: str = ""
    segments: str = ""
    characters: str = ""
    masks: str = ""
    filter: str = ""

    @property
    def hears(self) -> bool:
        """Whether its input is samples of sound."""
        return bool(self.rate) and self.kind != SPEAK

    @property
    def files(self) -> Tuple[str, ...]:
        """The files that it needs in the release."""
        return tuple(name for name in (self.tokenizer, self.characters) if name)


_TEXTS = ("tokenizer", "mask", "segments", "characters", "masks", "filter")


def task_of(raw: object, where: str) -> TaskSpec:
    """Checks a task in a manifest or an answer."""
    optional = ("rate", "zoom", *_TEXTS)
    names = tuple(name for name in TaskSpec.field_names if name not in optional)
    keys = keys_of(raw, where, names, optional)
    for name, known in (("kind", KINDS), ("fit", FITS), ("channels", CHANNELS)):
        if keys[name] not in known:
            raise bad(f"{where}.{name}", " or ".join(known), keys[name])
    made = TaskSpec(
        keys["kind"],
        text(keys["input"], f"{where}.input"),
        text(keys["output"], f"{where}.output"),
        keys["fit"],
        integer(keys["fill"], f"{where}.fill", 0, 255),
        keys["channels"],
        each(keys["mean"], f"{where}.mean", number),
        each(keys["scale"], f"{where}.scale", number),
        each(keys["labels"], f"{where}.labels", text),
        integer(keys.get("rate", 0), f"{where}.rate", 0, _MOST_RATE),
        number(keys.get("zoom", 1.0), f"{where}.zoom"),
        *(text(keys.get(name, ""), f"{where}.{name}") for name in _TEXTS),
    )
    if made.filter not in FILTERS:
        raise bad(f"{where}.filter", " or ".join(FILTERS[1:]), made.filter)
    if made.kind in (*SOUNDS, SPEAK) and not made.rate:
        raise bad(f"{where}.rate", "samples per second", "0")
    if made.kind == INSTANCES and not made.masks:
        raise bad(f"{where}.masks", "the name of an output", "none")
    if not 1 <= made.zoom <= MOST_ZOOM:
        raise bad(f"{where}.zoom", f"1 to {MOST_ZOOM}", f"{made.zoom:g}")
    if 0.0 in made.scale:
        raise bad(f"{where}.scale", "numbers other than 0", "0")
    return made
