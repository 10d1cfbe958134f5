"""Labels of boxes in drawn pictures."""

from __future__ import annotations

from edgekit.device.runtime.agent.fitting import Box, Pose
from edgekit.host.cli.boxes import label_area, low_boxes

_PICTURE, _SIZE = (320, 240), (60, 12)


def _areas(*corners):
    taken = []
    for each in corners:
        taken.append(label_area(Box("cat", 0.9, *each, 0), _SIZE, _PICTURE, taken))
    return [(x, y) for x, y, *_ in taken]


def test_labels_are_above_their_boxes_within_the_picture():
    assert _areas((50, 40, 150, 200), (300, 100, 319, 150)) == [(50, 28), (260, 88)]
    assert _areas((-5, 5, 200, 200)) == [(0, 5)]
    assert _areas((2, 1, 30, 20)) == [(2, 20)]  # small: its label would cover it


def test_labels_do_not_cover_those_of_better_boxes():
    best, other = (50, 40, 150, 200), (45, 35, 140, 150)
    assert _areas(best, other) == [(50, 28), (45, 150)]
    assert _areas(best, (55, 51, 140, 150)) == [(50, 28), (55, 51)]
    assert _areas(best, other, other)[2] == (45, 23)  # nowhere else


def test_labels_leave_lines_of_text_readable():
    lines = [Box("text", 0.9, 5, y, 310, y + 20, 0) for y in (40, 64, 88)]
    tall = Box("photo", 0.8, 5, 120, 310, 230, 1)
    low = low_boxes([Pose(box, ()) for box in (*lines, tall)], _SIZE[1])
    assert low == [(5, 40, 310, 60), (5, 64, 310, 84), (5, 88, 310, 108)]
    placed = [label_area(box, _SIZE, _PICTURE, [], low) for box in (*lines, tall)]
    assert [area and area[1] for area in placed] == [28, None, 108, 108]
    first = (5.0, 28.0, 65.0, 40.0)
    assert label_area(lines[0], _SIZE, _PICTURE, [first], low) is None  # covers another label
