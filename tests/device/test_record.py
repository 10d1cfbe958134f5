"""Records, which replace frozen dataclasses."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import pytest

from edgekit.device.runtime.record import Record, asdict, replace


class Point(Record):
    x: int
    y: int = 2

    @property
    def sum(self) -> int:
        return self.x + self.y


class Line(Record):
    ends: tuple[Point, ...]
    name: str = ""


LINE = Line((Point(1), Point(3, 4)), name="a")


def test_records_compare_by_their_fields() -> None:
    assert Point(1) == Point(x=1, y=2) != Point(1, 3)
    assert len({Point(1), Point(1, 2), Point(2)}) == 2
    assert repr(Point(1)) == "Point(x=1, y=2)"
    assert Point(1).sum == 3
    assert Point(1) != Line((Point(1),))


@pytest.mark.parametrize(
    "build",
    [
        lambda: Point(),
        lambda: Point(1, 2, 3),
        lambda: Point(1, x=1),
        lambda: Point(1, z=1),
        lambda: Point(y=1),
    ],
)
def test_arguments_are_those_of_the_fields(build: Callable[[], Point]) -> None:
    with pytest.raises(TypeError, match="Point: expected x, y, found"):
        build()


def test_records_do_not_change() -> None:
    point = Point(1)
    with pytest.raises(AttributeError, match="'x'"):
        point.x = 2  # type: ignore[misc]
    assert replace(point, x=5) == Point(5)
    assert point == Point(1)


def test_functions_of_dataclasses_take_records() -> None:
    expected = {"ends": [{"x": 1, "y": 2}, {"x": 3, "y": 4}], "name": "a"}
    assert asdict(LINE) == expected
    assert json.loads(json.dumps(dataclasses.asdict(LINE))) == expected
    assert dataclasses.replace(LINE, name="b") == replace(LINE, name="b")
    assert [field.name for field in dataclasses.fields(Line)] == ["ends", "name"]
