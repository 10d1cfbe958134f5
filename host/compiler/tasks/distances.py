"""YOLOv8's heads before they are decoded, as files for accelerators have them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import YOLO_LIMITS, Head, suppressed
from edgekit.host.compiler.tasks.small import corners_at

_STRIDES = (8, 16, 32)
_WIDE = 4 * 16  # a distribution over 16 steps for the distance to each edge


@dataclass(frozen=True)
class _Level:
    """The output or outputs of a grid: distributions, and scores or their logits."""

    spread: Tensor
    scores: Tensor
    joined: bool  # in one output
    done: bool  # scores went through a sigmoid

    @property
    def classes(self) -> int:
        return self.scores.shape[1] - (_WIDE if self.joined else 0)

    def parts(self, to: Appender) -> tuple[str, str]:
        """Distributions and logits or scores [1, fields, cells]."""
        if self.joined:
            flat = _flat(to, self.spread)
            spread, scores = to.add_all(ops.Split(1, (_WIDE, self.classes)), flat)
        else:
            spread, scores = _flat(to, self.spread), _flat(to, self.scores)
        return spread, scores if self.done else to.add(ops.Logistic(), scores)


def raw_distances(ends: Ends) -> Iterator[Head]:
    """Of each grid of YOLOv8, 9, 11 and 12 [1, 64, rows, columns] and [1, classes, rows, columns],
    or both joined. Files for Rockchip's accelerators also have the sums of the scores."""
    levels = [_level(ends, ends.image.grid(stride)) for stride in _STRIDES]
    found = [level for level in levels if level is not None]
    classes = {(level.classes, level.done) for level in found}
    if len(found) != len(_STRIDES) or len(classes) != 1:
        return

    def rows(to: Appender) -> str:
        parts = [level.parts(to) for level in found]
        spread, scores = (to.add(ops.Concat(2), *each) for each in zip(*parts, strict=True))
        spread = to.add(ops.Transpose((0, 2, 1)), spread)
        corners = corners_at(to, spread, ends.image, 0.5, _STRIDES)
        return suppressed(to, corners, scores, YOLO_LIMITS)

    yield Head("yolov8-raw", "outputs are like YOLOv8's before decoding", found[0].classes, rows)


def _level(ends: Ends, size: tuple[int, int]) -> _Level | None:
    """The outputs of a grid of `size` rows and columns; None if they are others."""
    grid = [t for t in ends.outputs if len(t.shape) == 4 and t.shape[2:] == size]
    if any(t.shape[0] != 1 for t in grid) or 3 * len(grid) != len(ends.outputs):
        return None
    if len(grid) == 1:
        parts = ends.parts(grid[0].name)
        fits = [n for _, n in parts] == [_WIDE, grid[0].shape[1] - _WIDE]
        done = fits and ends.is_from(parts[1][0], ops.Logistic.kind)
        return _Level(grid[0], grid[0], True, done) if fits else None
    spreads = [t for t in grid if t.shape[1] == _WIDE]
    others = [t for t in grid if t.shape[1] != _WIDE]  # scores, and then their sums
    if not others or len(spreads) != 1 or [t.shape[1] for t in others[1:]] not in ([], [1]):
        return None
    return _Level(spreads[0], others[0], False, ends.is_from(others[0].name, ops.Logistic.kind))


def _flat(to: Appender, x: Tensor) -> str:
    _, fields, rows, columns = x.shape
    return to.add(ops.Reshape((1, fields, rows * columns)), to.floats(x.name))
