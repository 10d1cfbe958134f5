"""Decodes human poses from heatmaps and offsets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgekit.device.runtime.kernel_facts import KEYPOINTS
from edgekit.host.compiler.ir.checks import need_dtype, need_positive, need_shape, operand
from edgekit.host.compiler.ir.sums import required
from edgekit.host.compiler.ir.traits import Arithmetic, Half, OnQuantized
from edgekit.host.compiler.ir.types import Array, DType, Operator, Shape, ShapeError, Tensor

__all__ = ["DecodePoses"]

EDGES = (
    (0, 1), (1, 3), (0, 2), (2, 4), (0, 5), (5, 7), (7, 9), (5, 11), (11, 13), (13, 15),
    (0, 6), (6, 8), (8, 10), (6, 12), (12, 14), (14, 16),
)  # fmt: skip
_STEPS = 5  # refinements by short offsets
_KEPT_LIMIT, _CELLS_LIMIT = 1 << 10, 1 << 20

Point = tuple[np.float32, np.float32]  # y, x in cells


@dataclass(frozen=True)
class DecodePoses(Operator):
    """Coral's PosenetDecoderOp: PersonLab's fast greedy decoding.

    ins: heatmaps f32 [1, h, w, 17] in log odds; short offsets [1, h, w, 34], 17 of y and 17 of x,
    from cells to the nearby keypoint; mid offsets [1, h, w, 64], 16 each of y and x along the edges
    of the skeleton, then of y and x in reverse direction. Offsets are in pixels, with `stride`
    pixels per cell. Outputs, all f32 and padded with 0: keypoints [1, keep, 17, 2] (y, x in
    pixels), their scores [1, keep, 17], pose scores [1, keep], number of poses [1].

    Local maxima (3x3) of at least `logit` are roots, processed in descending order; ties are in the
    order of a binary heap, as in the original C++ library. A root within `radius` cells of the same
    keypoint of an earlier pose is skipped. From a root the skeleton is followed. A pose is accepted
    if its mean score is at least `least`, and kept if it still is after zeroing the scores of
    keypoints within `radius` of those of better poses.
    """

    kind: ClassVar[str] = "decode_poses"
    jumps = True
    elementwise = False
    arithmetic = Arithmetic.ROUNDED
    cost_kind = "simple"
    on_quantized = OnQuantized.NEVER
    half = Half.NO
    keep: int = 1
    least: float = 0.5
    logit: float = 0.0
    radius: float = 1.0
    stride: int = 16

    def infer(self, ins: Sequence[Tensor | None]) -> list[tuple[Shape, DType]]:
        names = ("heatmaps", "short offsets", "mid offsets")
        heat, short, mid = (operand(ins, i, name) for i, name in enumerate(names))
        if len(heat.shape) != 4 or heat.shape[0] != 1 or heat.shape[3] != KEYPOINTS:
            raise ShapeError(f"expected heatmaps [1, h, w, {KEYPOINTS}], found {list(heat.shape)}")
        need_positive(heat.shape, "heatmaps")
        need_shape(short, (*heat.shape[:3], 2 * KEYPOINTS), "short offsets")
        need_shape(mid, (*heat.shape[:3], 4 * len(EDGES)), "mid offsets")
        for x, name in zip((heat, short, mid), names, strict=True):
            need_dtype(x, (DType.F32,), name)
        need_positive((self.keep, self.stride), "numbers of poses and pixels")
        if self.keep > _KEPT_LIMIT or heat.shape[1] * heat.shape[2] > _CELLS_LIMIT:
            raise ShapeError(
                f"expected at most {_KEPT_LIMIT} poses in {_CELLS_LIMIT} cells, found more"
            )
        shapes = ((1, self.keep, KEYPOINTS, 2), (1, self.keep, KEYPOINTS), (1, self.keep), (1,))
        return [(shape, DType.F32) for shape in shapes]

    def reference(
        self, x: Sequence[Array | None], ins: Sequence[Tensor | None], outs: Sequence[Tensor]
    ) -> list[Array]:
        found = _Decoder(self, *(required(x, i)[0] for i in range(3))).poses()
        made = [np.zeros(out.shape, np.float32) for out in outs]
        for place, (points, scores, score) in enumerate(found):
            made[0][0, place], made[1][0, place] = points * np.float32(self.stride), scores
            made[2][0, place] = score
        made[3][0] = len(found)
        return made


class _Decoder:
    """Decodes the poses of one image, entirely in f32."""

    def __init__(self, op: DecodePoses, heat: Array, short: Array, mid: Array) -> None:
        self._op, self._heat, self._short, self._mid = op, heat, short, mid
        self._cell = np.float32(1 / op.stride)
        self._near = np.float32(op.radius) * np.float32(op.radius)

    def poses(self) -> list[tuple[Array, Array, np.float32]]:
        """Return keypoints in cells, their scores and the pose's, best pose first."""
        least, queue = np.float32(self._op.least), _Queue(*self._find_local_maxima())
        points: list[Array] = []
        scores: list[Array] = []
        while len(points) < self._op.keep and len(queue):
            y, x, keypoint = np.unravel_index(queue.pop(), self._heat.shape)
            root = self._apply_offset((np.float32(y), np.float32(x)), self._short[y, x], keypoint)
            if any(self._is_near(root, known[keypoint]) for known in points):
                continue
            pose, odds = self._decode_pose(root, int(keypoint))
            own = np.float32(1) / (np.float32(1) + np.exp(-odds))
            if _mean_score(own, np.ones(KEYPOINTS, bool)) >= least:
                points.append(pose)
                scores.append(own)
        first = [_mean_score(own, np.ones(KEYPOINTS, bool)) for own in scores]
        order = sorted(range(len(points)), key=lambda i: -first[i])
        final = [np.float32(0)] * len(points)
        for place, i in enumerate(order):
            shown = np.array([
                not any(self._is_near(points[i][k], points[j][k]) for j in order[:place])
                for k in range(KEYPOINTS)
            ])  # fmt: skip
            final[i] = _mean_score(scores[i], shown)
        order = sorted(range(len(points)), key=lambda i: -final[i])
        return [(points[i], scores[i], final[i]) for i in order if final[i] >= least]

    def _find_local_maxima(self) -> tuple[Array, Array]:
        """Return scores and flat heatmap indices of the local maxima, in index order."""
        around = np.pad(self._heat, ((1, 1), (1, 1), (0, 0)), constant_values=-np.inf)
        h, w = self._heat.shape[:2]
        is_root = self._heat >= np.float32(self._op.logit)
        for dy in range(3):
            for dx in range(3):
                is_root &= ~(around[dy : dy + h, dx : dx + w] > self._heat)
        places = np.flatnonzero(is_root)
        return self._heat.reshape(-1)[places], places

    def _apply_offset(self, at: Point, offsets: Array, keypoint: int | np.intp) -> Point:
        dy, dx = (offsets[keypoint + i * KEYPOINTS] * self._cell for i in (0, 1))
        return self._clamp_to_heatmap(at[0] + dy, 0), self._clamp_to_heatmap(at[1] + dx, 1)

    def _clamp_to_heatmap(self, v: np.float32, axis: int) -> np.float32:
        end = np.float32(self._heat.shape[axis] - 1)
        return min(v, end) if v >= 0 else np.float32(0)  # also for NaN

    def _is_near(self, a: Point | Array, b: Point | Array) -> bool:
        dy, dx = b[0] - a[0], b[1] - a[1]
        return bool(dy * dy + dx * dx <= self._near)

    def _decode_pose(self, root: Point, keypoint: int) -> tuple[Array, Array]:
        """Return all keypoints of the pose that contains a given one, and their log odds."""
        known: dict[int, Point] = {keypoint: root}
        while len(known) < KEYPOINTS:
            for edge, (parent, child) in enumerate(EDGES):
                if (parent in known) == (child in known):
                    continue
                source, target = (parent, child) if parent in known else (child, parent)
                first = edge if parent in known else edge + 2 * len(EDGES)
                known[target] = self._follow_edge(known[source], first, target)
        points = np.array([known[k] for k in range(KEYPOINTS)], np.float32)
        odds = [_sample_bilinear(self._heat, known[k], k, np.float32(1)) for k in range(KEYPOINTS)]
        return points, np.array(odds, np.float32)

    def _follow_edge(self, at: Point, channel: int, keypoint: int) -> Point:
        channels = ((self._mid, channel, len(EDGES)),)
        for offsets, first, apart in channels + ((self._short, keypoint, KEYPOINTS),) * _STEPS:
            dy, dx = (_sample_bilinear(offsets, at, first + i * apart, self._cell) for i in (0, 1))
            at = self._clamp_to_heatmap(at[0] + dy, 0), self._clamp_to_heatmap(at[1] + dx, 1)
        return at


def _sample_bilinear(x: Array, at: Point, channel: int, factor: np.float32) -> np.float32:
    """Bilinear interpolation of x · `factor`."""
    (top, down), (left, right) = ((int(np.floor(v)), int(np.ceil(v))) for v in at)
    fy, fx = at[0] - np.float32(top), at[1] - np.float32(left)
    gy, gx = np.float32(1) - fy, np.float32(1) - fx
    above = gx * (x[top, left, channel] * factor) + fx * (x[top, right, channel] * factor)
    below = gx * (x[down, left, channel] * factor) + fx * (x[down, right, channel] * factor)
    value: np.float32 = gy * above + fy * below
    return value


def _mean_score(scores: Array, shown: Array) -> np.float32:
    """Mean of all scores, with hidden ones as 0, summed in descending order."""
    total = np.float32(0)
    for k in np.argsort(-scores, kind="stable"):
        total += scores[k] if shown[k] else np.float32(0)
    return total / np.float32(KEYPOINTS)


class _Queue:
    """A binary heap that reproduces the C++ library's order of equal scores."""

    def __init__(self, scores: Array, places: Array) -> None:
        self._items: list[tuple[float, int]] = []
        for item in zip(scores.tolist(), places.tolist(), strict=True):
            self._items.append(item)
            self._sift_up(len(self._items) - 1, item)

    def __len__(self) -> int:
        return len(self._items)

    def pop(self) -> int:
        """Remove and return the index of the largest score. The gap moves down to a leaf via the
        larger child (the second one if equal), and the last item moves up from there."""
        items, top = self._items, self._items[0]
        last = items.pop()
        if items:
            gap, below = 0, 2
            while below < len(items):
                below -= items[below][0] < items[below - 1][0]
                items[gap] = items[below]
                gap, below = below, 2 * below + 2
            if below == len(items):
                items[gap] = items[below - 1]
                gap = below - 1
            self._sift_up(gap, last)
        return top[1]

    def _sift_up(self, gap: int, item: tuple[float, int]) -> None:
        while gap and self._items[(gap - 1) // 2][0] < item[0]:
            self._items[gap] = self._items[(gap - 1) // 2]
            gap = (gap - 1) // 2
        self._items[gap] = item
