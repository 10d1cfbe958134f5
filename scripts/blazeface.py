"""Pre- and postprocessing for the short-range BlazeFace model."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

SIZE = 128
_LAYER_STRIDES = (8, 16, 16, 16)
_ANCHORS_PER_LAYER = 2
_KEYPOINTS = 6
_MIN_SCORE = 0.5
_SAME_FACE_IOU = 0.3


@dataclass(frozen=True)
class Face:
    """Corners and keypoints in pixels of the picture; score in 0..1.

    keypoints: [6, 2], x and y of right eye, left eye, nose, mouth, right ear, left ear.
    """

    score: float
    left: float
    top: float
    right: float
    bottom: float
    keypoints: NDArray[np.float32]


@dataclass(frozen=True)
class Letterbox:
    """Position of a picture in the model's square input: one input unit is `side` pixels."""

    side: float
    pad_x: float
    pad_y: float


def prepare(picture: Image.Image) -> tuple[NDArray[np.float32], Letterbox]:
    """The model's input, float32 [1, 128, 128, 3] in -1..1, with the picture centered."""
    side = max(picture.size)
    square = Image.new("RGB", (side, side))
    corner = ((side - picture.width) // 2, (side - picture.height) // 2)
    square.paste(picture.convert("RGB"), corner)
    pixels = np.asarray(square.resize((SIZE, SIZE), Image.Resampling.BILINEAR), np.float32)
    return (pixels / 127.5 - 1)[np.newaxis], Letterbox(side, *corner)


def anchors() -> NDArray[np.float32]:
    """Anchor centers, [896, 2] as x, y in 0..1; layers of one stride share a grid."""
    grids = []
    for stride in sorted(set(_LAYER_STRIDES)):
        cells = SIZE // stride
        here = _LAYER_STRIDES.count(stride) * _ANCHORS_PER_LAYER
        y, x = np.mgrid[0:cells, 0:cells]
        centers = np.stack([x, y], axis=-1).reshape(-1, 2)
        grids.append(np.repeat((centers + 0.5) / cells, here, axis=0))
    return np.concatenate(grids).astype(np.float32)


def find_faces(
    regressors: NDArray[np.float32], scores: NDArray[np.float32], letterbox: Letterbox
) -> list[Face]:
    """Faces, best first, from the outputs [1, 896, 16] and [1, 896, 1] (logits)."""
    probability = (1 / (1 + np.exp(-np.clip(scores.reshape(-1), -80, 80)))).astype(np.float32)
    keep = probability >= _MIN_SCORE
    raw = regressors.reshape(-1, 4 + 2 * _KEYPOINTS)[keep] / SIZE
    points = raw.reshape(-1, 2 + _KEYPOINTS, 2)
    center = anchors()[keep]
    points[:, 0] += center
    points[:, 2:] += center[:, np.newaxis]
    half = points[:, 1] / 2
    corners = np.stack([points[:, 0] - half, points[:, 0] + half], axis=1)
    shapes = np.concatenate([corners, points[:, 2:]], axis=1)
    merged = _weighted_suppression(shapes, probability[keep])
    return [_to_face(shape, score, letterbox) for shape, score in merged]


def _weighted_suppression(
    shapes: NDArray[np.float32], scores: NDArray[np.float32]
) -> list[tuple[NDArray[np.float32], float]]:
    """Merge each group of overlapping detections into its score-weighted mean; [n, points, 2]."""
    order = np.argsort(-scores, kind="stable")
    merged = []
    while order.size:
        same = _iou(shapes[order[0]], shapes[order]) >= _SAME_FACE_IOU
        same[0] = True
        group, best = order[same], float(scores[order[0]])
        weights = (scores[group] / scores[group].sum())[:, np.newaxis, np.newaxis]
        merged.append(((shapes[group] * weights).sum(axis=0), best))
        order = order[~same]
    return merged


def _iou(shape: NDArray[np.float32], others: NDArray[np.float32]) -> NDArray[np.float32]:
    """Intersection over union of one box with each other box (points 0 and 1 are corners)."""
    low = np.maximum(shape[0], others[:, 0])
    high = np.minimum(shape[1], others[:, 1])
    shared = np.prod(np.clip(high - low, 0, None), axis=1)
    areas = np.prod(others[:, 1] - others[:, 0], axis=1)
    union = np.prod(shape[1] - shape[0]) + areas - shared
    overlap: NDArray[np.float32] = shared / np.maximum(union, 1e-12)
    return overlap


def _to_face(shape: NDArray[np.float32], score: float, letterbox: Letterbox) -> Face:
    pixels = shape * letterbox.side - np.array([letterbox.pad_x, letterbox.pad_y], np.float32)
    left, top = (float(v) for v in pixels[0])
    right, bottom = (float(v) for v in pixels[1])
    return Face(score, left, top, right, bottom, pixels[2:])
