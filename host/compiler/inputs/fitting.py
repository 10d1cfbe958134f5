"""Where a picture lies in a model's input, and where a point of the input lies in the picture."""

from __future__ import annotations

from dataclasses import dataclass

from edgekit.device.runtime.agent.task import CROP, LETTERBOX

Corners = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Placed:
    """A picture resized to `width` x `height`, its corner at `left`, `top` of the input. Both are
    negative where a crop cuts the picture. `picture` is its own size."""

    width: int
    height: int
    left: int
    top: int
    picture: tuple[int, int]  # width and height in pixels

    def to_picture(self, corners: Corners) -> Corners:
        """Corners in pixels of the picture, cut at its edges."""
        size_x, size_y = self.picture
        scale_x, scale_y = self.width / size_x, self.height / size_y
        left, top, right, bottom = corners

        def across(x: float) -> float:
            return min(max((x - self.left) / scale_x, 0.0), float(size_x))

        def down(y: float) -> float:
            return min(max((y - self.top) / scale_y, 0.0), float(size_y))

        return across(left), down(top), across(right), down(bottom)


def place(picture: tuple[int, int], width: int, height: int, fit: str) -> Placed:
    """Places a picture of `picture` pixels in an input of width x height, by a fit of TaskSpec."""
    if fit not in (LETTERBOX, CROP):
        return Placed(width, height, 0, 0, picture)
    scales = width / picture[0], height / picture[1]
    scale = min(scales) if fit == LETTERBOX else max(scales)
    across, down = (max(1, round(side * scale)) for side in picture)
    # Halves go to the right and to the bottom, as in Ultralytics' letterbox.
    return Placed(across, down, (width - across) // 2, (height - down) // 2, picture)
