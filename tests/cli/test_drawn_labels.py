"""Labels of boxes in drawn pictures."""

from __future__ import annotations

from edgekit.device.runtime.agent.fitting import Box
from edgekit.host.cli.boxes import label_area

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
