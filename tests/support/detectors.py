"""ONNX detectors with known outputs, and a decoder of their own in NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.onnx_models import model, node, save, value

Floats = NDArray[np.float32]


def detector(folder: Path, outputs: dict[str, Floats], size: tuple[int, int], **more: Any) -> Path:
    """An ONNX file whose outputs are constants, but for rounding; `size` is height and width.

    `more` are metadata properties.
    """
    return built(folder, outputs, [], list(outputs), size, **more)


def built(
    folder: Path,
    parts: dict[str, Floats],
    nodes: list[Any],
    outputs: list[str],
    size: tuple[int, int],
    **more: Any,
) -> Path:
    """As `detector`, with `nodes` that make the outputs of constant `parts`. Shapes for Reshape are
    parts, too."""
    plain = {name for name, array in parts.items() if array.dtype == np.int64}
    constants: dict[str, Any] = {n if n in plain else f"c.{n}": v for n, v in parts.items()}
    constants["zero"] = np.zeros(1, np.float32)
    first = [
        node("ReduceMean", ["images"], ["mean"], keepdims=0),
        node("Mul", ["mean", "zero"], ["none"]),
        *(node("Add", [f"c.{name}", "none"], [name]) for name in parts if name not in plain),
    ]
    made = model([*first, *nodes], [value("images", [1, 3, *size])], outputs, constants, opset=13)
    for key, text in more.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = key, str(text)
    return save(made, folder)


def scattered(count: int, size: tuple[int, int], seed: int) -> Floats:
    """Boxes as center and size in pixels, some of them much alike, [count, 4]."""
    rng = np.random.default_rng(seed)
    height, width = size
    some = rng.uniform(0.2, 0.8, (max(count // 4, 1), 4)) * (width, height, width / 3, height / 3)
    jitter = rng.normal(0, 1.5, (count, 4))
    return (some[rng.integers(0, len(some), count)] + jitter).astype(np.float32)


def instances(
    folder: Path, size: tuple[int, int], layout: str = "v8", classes: int = 3, **more: Any
) -> tuple[Path, Floats, list[tuple[int, float, tuple[float, ...], Floats]]]:
    """A model of instance segmentation, its maps, and what it finds: class, score, corners and
    weights of the maps. `layout` is v8, v5 with its object score, last with maps behind the pixels,
    or selected, which has no others."""
    rng, height, width = np.random.default_rng(len(layout)), size[0] // 4, size[1] // 4
    count = sum(-(-size[0] // s) * -(-size[1] // s) for s in (8, 16, 32))
    count *= 3 if layout == "v5" else 1
    boxes, power = scattered(count, size, 4), 40 if layout == "v5" else 12
    scores = (rng.random((count, classes)) ** power).astype(np.float32)
    y, x = np.mgrid[:height, :width]
    turns, shifts = rng.uniform(0.1, 0.7, (6, 2, 1, 1)), rng.uniform(0, 6, (6, 1, 1))
    maps = (3 * np.sin(turns[:, 0] * y + shifts) * np.cos(turns[:, 1] * x)).astype(np.float32)
    weights = rng.normal(0, 1, (count, len(maps))).astype(np.float32)
    found = []
    for label, score, corners in best_boxes(boxes, scores, 0.25, 0.7):
        (at,) = np.flatnonzero(scores[:, label] == np.float32(score))
        found.append((label, score, corners, weights[at]))
    if layout == "v5":
        sure = np.full((count, 1), 1)
        output = np.concatenate([boxes, sure, scores, weights], 1)[None]
    elif layout == "selected":
        output = np.array([[*([*c, s, n, *w] for n, s, c, w in found), [0] * (6 + len(maps))]])
    else:
        output = np.concatenate([boxes, scores, weights], 1).T[None]
    parts = {"output0": output.astype(np.float32), "output1": maps[None]}
    about = {"task": "segment", "stride": 32, **more}
    if layout != "last":
        return detector(folder, parts, size, **about), maps, found
    nodes = [node("Transpose", ["output1"], ["last"], perm=[0, 2, 3, 1])]
    return built(folder, parts, nodes, ["output0", "last"], size, **about), maps, found


def best_boxes(
    boxes: Floats,
    scores: Floats,
    least: float,
    overlap: float,
    single: bool = True,
    across: bool = False,
) -> list[tuple[int, float, tuple[float, ...]]]:
    """Class, score and corners of what greedy suppression per class leaves, best first.

    boxes: centers and sizes [n, 4]; scores [n, classes]. `single`: a box is only of its best class;
    `across`: it also competes with boxes of others.
    """
    if single:
        scores = np.where(scores == scores.max(1, keepdims=True), scores, 0)
    if across:
        labels, best = scores.argmax(1), scores.max(1, keepdims=True)
        left = best_boxes(boxes, np.where(best > 0, best, 0), least, overlap)
        at = [int(np.flatnonzero(best[:, 0] == np.float32(s))[0]) for _, s, _ in left]
        return [(int(labels[i]), s, corners) for i, (_, s, corners) in zip(at, left, strict=True)]
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    found: list[tuple[int, float, tuple[float, ...]]] = []
    for label in range(scores.shape[1]):
        kept: list[int] = []
        for i in np.argsort(-scores[:, label], kind="stable"):
            if scores[i, label] <= least:
                break
            if all(_iou(corners[i], corners[k]) <= overlap for k in kept):
                kept.append(int(i))
        found += [(label, float(scores[i, label]), tuple(corners[i].tolist())) for i in kept]
    return sorted(found, key=lambda each: -each[1])


def _iou(a: Floats, b: Floats) -> float:
    low, high = np.maximum(a[:2], b[:2]), np.minimum(a[2:], b[2:])
    common = float(np.prod(np.maximum(high - low, 0)))
    return common / (float(np.prod(a[2:] - a[:2])) + float(np.prod(b[2:] - b[:2])) - common)
