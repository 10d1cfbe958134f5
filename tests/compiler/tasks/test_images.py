"""Pictures that models make of pictures, and maps of values shown in colors."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.device.runtime.agent.fitting import place
from edgekit.device.runtime.agent.images import image_of
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks.images import palette
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import built
from tests.support.onnx_models import model, node, save, value

_SIZE = (16, 24)


def _values(channels: int, times: int = 1):
    shape = (1, channels, times * _SIZE[0], times * _SIZE[1])
    return np.random.default_rng(channels).uniform(-0.5, 1.5, shape).astype(np.float32)


def _made(path, options=None):
    made = prepared(path, options) if options else prepared(path)
    assert made.task is not None and made.task.kind == "image"
    x = {"images": np.zeros((1, 3, *_SIZE), np.float32)}
    return made, evaluate(made.graph, x).outputs[made.task.output]


@pytest.mark.parametrize(
    ("end", "mean", "scale"), [("Tanh", (127.5,), (127.5,)), ("Sigmoid", (0.0,), (255.0,))]
)
def test_how_it_ends_shows_the_range_of_colors(tmp_path, end, mean, scale):
    values = _values(3)
    path = built(tmp_path, {"x": values}, [node(end, ["x"], ["y"])], ["y"], _SIZE)
    made, found = _made(path)
    ended = np.tanh(values) if end == "Tanh" else 1 / (1 + np.exp(-values))
    expected = np.floor(ended * scale[0] + mean[0] + 0.5)
    assert found.shape == (1, *_SIZE, 3) and found.dtype == np.uint8
    assert np.abs(found - expected.transpose(0, 2, 3, 1)).max() <= 1
    assert (made.task.mean, made.task.scale) == (mean, scale)
    assert "may be a picture" in made.graph.notes[-1]
    assert prepared(path, CompileOptions()).task is None


def test_a_larger_picture_is_one_with_colors_from_0_to_1(tmp_path):
    values = _values(3, 2)
    made, found = _made(built(tmp_path, {"x": values}, [], ["x"], _SIZE))
    expected = np.floor(np.clip(values, 0, 1) * 255 + 0.5).transpose(0, 2, 3, 1)
    np.testing.assert_allclose(found.astype(int), expected, atol=1)
    assert "pixels from 0 to 1" in made.source


def test_three_values_of_a_pixel_may_also_be_scores(tmp_path):
    path = built(tmp_path, {"x": _values(3)}, [], ["x"], _SIZE)
    made = prepared(path)
    assert made.task is None and "'x' may be a picture or scores of classes" in made.source
    assert _made(path, CompileOptions(task="image"))[0].task.scale == (255.0,)
    names = {"GFPGANv1.4": 127.5, "deblurring_nafnet_2025may": 255, "whitebox_cartoon_gan": 127.5}
    for name, scale in names.items():
        path = path.rename(tmp_path / f"{name}.onnx")
        assert _made(path)[0].task.scale == (scale,)


def test_a_map_as_wide_as_rows_of_persons_is_a_map(tmp_path):
    """MoveNet's rows have 56 numbers."""
    path = built(tmp_path, {"x": np.zeros((1, 32, 56), np.float32)}, [], ["x"], (32, 56))
    task = prepared(path).task
    assert task is not None and task.kind == "image"


@pytest.mark.parametrize("shape", [(1, *_SIZE), (1, 1, *_SIZE), (1, *_SIZE, 1)])
def test_one_value_of_a_pixel_is_shown_in_colors(tmp_path, shape):
    values = _values(1).reshape(shape)
    made, found = _made(built(tmp_path, {"depth": values}, [], ["depth"], _SIZE))
    low, high = values.min(), values.max()
    number = np.trunc((values - low) / (high - low) * 255).astype(int).reshape(1, *_SIZE)
    colors = palette()
    assert np.abs(found.astype(int) - colors[number]).max() <= 8  # one step of the palette
    assert "may be a depth" in made.graph.notes[-1]
    assert made.task.scale == (58.395, 57.12, 57.375)


def test_one_of_several_maps_is_not_shown(tmp_path):
    """Such as that of lanes next to boxes; a depth next to others has its name."""
    for name in ("lanes", "depth"):
        path = built(tmp_path, {name: _values(1), "y": _values(2)}, [], [name, "y"], _SIZE)
        assert (prepared(path).task is None) == (name == "lanes")
    maps = {"predicted_depth": _values(1), "normal": _values(3), "sure": _values(1)}
    assert "'predicted_depth'" in prepared(built(tmp_path, maps, [], [*maps], _SIZE)).source


def test_depths_of_midas_in_files_with_colors_last(tmp_path):
    nodes = [node("Conv", ["x.first", "w"], ["y"]), node("Transpose", ["x"], ["x.first"],
             perm=[0, 3, 1, 2])][::-1]  # fmt: skip
    weights = {"w": np.ones((1, 3, 1, 1), np.float32)}
    made = model(nodes, [value("x", [1, *_SIZE, 3])], ["y"], weights, opset=13)
    task = prepared(save(made, tmp_path, "lite-model_midas_v2_1_small_1_lite_1.onnx")).task
    assert task is not None and task.kind == "image" and task.scale == (58.395, 57.12, 57.375)


def test_pixels_of_esrgan_are_bytes_where_colors_are_last(tmp_path):
    for shape, scale in (((1, *_SIZE, 3), 1), ((1, 3, *_SIZE), 255)):
        made = model([node("Sigmoid", ["x"], ["y"])], [value("x", shape)], ["y"], opset=13)
        task = prepared(save(made, tmp_path, "ESRGAN.onnx")).task
        assert task is not None and task.scale == (scale,)


def test_a_map_of_one_value_has_one_color(tmp_path):
    flat = np.full((1, 1, *_SIZE), 3, np.float32)
    _, found = _made(built(tmp_path, {"depth": flat}, [], ["depth"], _SIZE))
    assert {tuple(color) for color in found.reshape(-1, 3)} == {tuple(palette()[0])}


def test_the_picture_has_the_proportions_of_the_one_given():
    values = np.arange(4 * 4 * 3, dtype=np.uint8)
    made = image_of(values.tobytes(), (4, 4, 3), (4, 4), place((2, 1), 4, 4, "letterbox"))
    assert (made.width, made.height, made.channels) == (4, 2, 3)
    assert made.pixels == values.reshape(4, 4, 3)[1:3].tobytes()
    whole = image_of(values.tobytes(), (4, 4, 3), (2, 2), place((8, 4), 2, 2, "stretch"))
    assert (whole.width, whole.height) == (8, 4) and len(whole.pixels) == 96
