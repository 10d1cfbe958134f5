"""The table [picture] of MODEL.toml: what a model is for, and how pictures become its input."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector

_SIZE = (64, 96)
_SCORES = {"y": np.zeros((1, 5), np.float32)}
_BOXES = {"y": np.zeros((1, 7, 126), np.float32)}


def _stated(folder, outputs, lines, options=None, size=_SIZE):
    path = detector(folder, outputs, size)
    (folder / "m.toml").write_text(f"[picture]\n{lines}\n")
    return prepared(path, options or CompileOptions())


def test_a_task_and_pixels_are_those_of_the_file(tmp_path):
    """Also for `compile`, which guesses nothing."""
    lines = 'task = "classify"\nmean = [104, 117, 123]\nscale = 1\nchannels = "bgr"\nfit = "crop"'
    made = _stated(tmp_path, _SCORES, lines)
    task = made.task
    assert task is not None and (task.kind, task.fit, task.channels) == ("classify", "crop", "bgr")
    assert (task.mean, task.scale) == ((104, 117, 123), (1,)) and made.source.startswith(
        "by m.toml"
    )


def test_what_the_file_does_not_say_is_as_the_head_has_it(tmp_path):
    lines = 'fit = "stretch"\nzoom = 1\nfill = 0'
    made = _stated(tmp_path, _BOXES, lines, CompileOptions(task="guess"))
    task = made.task
    assert task is not None and (task.kind, task.fit, task.fill) == ("detect", "stretch", 0)
    assert task.mean == () and "pictures by m.toml" in made.source


def test_colors_of_pictures_that_are_made(tmp_path):
    outputs = {"y": np.zeros((1, 3, 128, 192), np.float32)}
    task = _stated(tmp_path, outputs, 'task = "image"\nchannels = "bgr"').task
    assert task is not None and (task.kind, task.scale) == ("image", (255,))


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            'task = "dance"',
            "m.toml: task: expected classify or detect or pose or .*, found 'dance'",
        ),
        ("color = 1", "m.toml: color: expected no such key, found 1"),
        ("mean = 1", r"m.toml: expected mean and scale in \[picture\], found one of them"),
        ("mean = 1\nscale = [1, 2]", "m.toml: scale: expected 1 or 3 numbers"),
        ("mean = 1\nscale = 0", "m.toml: scale: expected 1 or 3 numbers"),
        ("fill = 1.5", "m.toml: fill: expected a number of 0 to 255, found 1.5"),
        ("zoom = true", "m.toml: zoom: expected a number of 1 to 4, found True"),
        ("fit = []", "m.toml: fit: expected letterbox or corner or stretch or crop"),
        ('task = "pose"', r"m.toml: task pose: expected .*, found .*'y' \[1, 5\]; leave it out"),
    ],
)
def test_what_does_not_fit_is_one_line(tmp_path, lines, said):
    with pytest.raises(InputError, match=said):
        _stated(tmp_path, _SCORES, lines)


def test_a_model_of_sound_takes_no_pictures(tmp_path):
    with pytest.raises(InputError, match=r"m.toml: task detect: expected an input of one pict"):
        _stated(tmp_path, _BOXES, 'task = "detect"', size=(64, 2))
    made = _stated(tmp_path, _BOXES, 'task = "detect"', CompileOptions(task="none"), (64, 2))
    assert made.task is None
