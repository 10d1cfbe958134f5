"""Semantic segmentation: scores of classes for each pixel, or the classes themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import DType, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends

_MOST_CLASSES = 256  # a byte for each pixel
VOC = (
    "background", "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair",
    "cow", "dining table", "dog", "horse", "motorbike", "person", "potted plant", "sheep", "sofa",
    "train", "tv monitor",
)  # fmt: skip
_CITYSCAPES = (
    "road", "sidewalk", "building", "wall", "fence", "pole", "traffic light", "traffic sign",
    "vegetation", "terrain", "sky", "person", "rider", "car", "truck", "bus", "train",
    "motorcycle", "bicycle",
)  # fmt: skip
_FACE = (
    "background", "skin", "left brow", "right brow", "left eye", "right eye", "glasses", "left ear",
    "right ear", "earring", "nose", "mouth", "upper lip", "lower lip", "neck", "necklace", "cloth",
    "hair", "hat",
)  # fmt: skip
_BISENET_MAPS = 3
_TORCHVISION = ("out", "aux")  # of its models, which train with another output
_LEAST_SCORES = 4  # for each pixel: three may be colors


@dataclass(frozen=True)
class ClassMap:
    """An output of `rows` x `columns` pixels. `classes` along `axis` have a score each; it is 1 for
    the share of one class, and 0 for numbers of classes, which were chosen among `chosen`, if that
    is known. `logits`: the share is before its sigmoid."""

    tensor: Tensor
    rows: int
    columns: int
    axis: int
    classes: int
    chosen: int = 0
    logits: bool = False

    @property
    def count(self) -> int:
        """The number of classes; 0 if it is not known."""
        return self.classes or self.chosen

    def numbers(self, to: Appender) -> str:
        """Appends what computes the classes, u8 [1, rows, columns]."""
        x = self.tensor.name
        if self.classes == 1:
            half = to.constant(np.full((1,) * len(self.tensor.shape), 0 if self.logits else 0.5))
            x = to.add(ops.Less(), half, to.floats(x))
        elif self.classes:
            x = to.add(ops.ArgExtreme(self.axis), x)
        flat = to.add(ops.Reshape((1, self.rows, self.columns)), x)
        return to.add(ops.Convert(DType.U8), flat)


def class_map(ends: Ends, logits: bool = False) -> ClassMap | None:
    """The output that is a map of classes with the proportions of the input, if just one is.
    `logits`: the share of one class may be before its sigmoid."""
    outputs = ends.outputs
    if {tensor.name for tensor in outputs} == {*_TORCHVISION}:
        outputs = [tensor for tensor in outputs if tensor.name == _TORCHVISION[0]]
    found = [each for t in outputs for each in _maps_of(ends, t, logits)]
    found = [each for each in found if not _is_of_objects(each, outputs)]
    if not found:
        return None
    alike = len({(each.tensor.shape, each.axis) for each in found}) == 1
    # Those of U²-Net, and BiSeNet's of faces, have the map several times, the best one first.
    alike &= found[0].classes == 1 or _is_of_face(ends, found[0])
    return found[0] if len(found) == 1 or (alike and len(found) == len(outputs)) else None


def _is_of_face(ends: Ends, seen: ClassMap) -> bool:
    """Whether there are BiSeNet's three maps of the parts of a face (CelebAMask-HQ)."""
    square = ends.image.height == ends.image.width
    return square and seen.count == len(_FACE) and len(ends.outputs) == _BISENET_MAPS


def _is_of_objects(seen: ClassMap, outputs: Sequence[Tensor]) -> bool:
    """Whether another output has a row for each of the maps, which are then masks of objects."""
    rows = (t.shape[1] for t in outputs if len(t.shape) in (2, 3) and t.shape[0] == 1)
    return seen.classes > 1 and seen.axis == 1 and seen.classes in rows


def known_classes(ends: Ends, seen: ClassMap) -> tuple[str, tuple[str, ...]] | None:
    """Whose classes there are as many of, and their labels. Streets are wide pictures: faces, which
    are square, also have as many parts as Cityscapes has classes."""
    if seen.count == len(VOC):
        return "Pascal VOC", VOC
    if _is_of_face(ends, seen):
        return "CelebAMask-HQ", _FACE
    is_wide = ends.image.width > ends.image.height
    return ("Cityscapes", _CITYSCAPES) if is_wide and seen.count == len(_CITYSCAPES) else None


def is_street(ends: Ends, seen: ClassMap) -> bool:
    """Whether there are as many scores of parts of a picture as Cityscapes has classes, whose
    pictures are twice as wide as high: maps of a person's points are not so wide."""
    wide = ends.image.width == 2 * ends.image.height and ends.image.channels == 3
    return wide and seen.count == len(_CITYSCAPES)


def gives_logits(ends: Ends) -> bool:
    """Whether input and output are named as in BiRefNet's files, which end before the sigmoid."""
    return (ends.image.name, *ends.graph.outputs) == ("input_image", "output_image")


def is_of_hub(ends: Ends, seen: ClassMap) -> bool:
    """Whether input and output are named as those of Hugging Face's models for segmentation: maps
    of points are called heatmaps there. Colors are three."""
    named = (ends.image.name, seen.tensor.name) == ("pixel_values", "logits")
    return named and seen.classes != 3


def is_whole(ends: Ends, seen: ClassMap) -> bool:
    """Whether each pixel of the input has scores of so many classes that they are no colors. Maps
    of points are smaller."""
    whole = (seen.rows, seen.columns) == (ends.image.height, ends.image.width)
    return whole and seen.count >= _LEAST_SCORES and ends.image.channels == 3


def is_shares(ends: Ends, seen: ClassMap) -> bool:
    """Whether each pixel of the input has the share of one class, or those of all, whose sum is 1,
    or the best class. One share may also be a depth or a distance: it is a proposal."""
    if ends.image.channels == 1:
        return False  # what makes a gray picture of another
    whole = (seen.rows, seen.columns) == (ends.image.height, ends.image.width)
    kind = ops.Logistic.kind if seen.classes == 1 else ops.Softmax.kind
    made = ends.is_from(seen.tensor.name, kind) if seen.classes else seen.chosen > 1
    return whole and made


def _maps_of(ends: Ends, tensor: Tensor, logits: bool) -> list[ClassMap]:
    """The map that a tensor may be, once for each axis that may be that of the classes."""
    whole = tensor.quant is None and tensor.dtype in (DType.U8, DType.I8, DType.I32, DType.I64)
    made = []
    for axis in (1, len(tensor.shape) - 1) if len(tensor.shape) == 4 else (0,):
        if len(tensor.shape) not in (3, 4) or tensor.shape[0] != 1:
            continue
        rows, columns = (n for i, n in enumerate(tensor.shape) if i and (i != axis or not axis))
        classes = tensor.shape[axis]
        fits = min(rows, columns) > 1 and rows * ends.image.width == columns * ends.image.height
        if not fits or classes > _MOST_CLASSES:
            continue
        if classes == 1 and whole:
            made.append(ClassMap(tensor, rows, columns, axis, 0, ends.choices(tensor.name)))
            continue
        share = ends.is_from(tensor.name, ops.Logistic.kind)
        if share or (not whole and (classes > 1 or logits)):
            before = classes == 1 and not share
            made.append(ClassMap(tensor, rows, columns, axis, classes, logits=before))
    return made
