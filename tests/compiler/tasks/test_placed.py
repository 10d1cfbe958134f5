"""Where files next to a model put the picture in its input."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.device.runtime.agent.fitting import place
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector

_NORMAL = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
_SHORTER = {"size": {"shortest_edge": 256}, "do_center_crop": True, "crop_size": {"height": 224}}
_BOTH = {"size": 256, "do_center_crop": True, "crop_size": 224}
_CONVNEXT = {"image_processor_type": "ConvNextImageProcessor"}
# Size and corner of a picture of 400 x 300 pixels in an input of 224 x 224. PyTorch's programs make
# it 341 x 256 pixels and cut 58 and 16 of them.
_CUT, _WHOLE, _SQUARE = (341, 256, -58, -16), (224, 224, 0, 0), (256, 256, -16, -16)


def _task(folder, count, config, pixels=None):
    (folder / "config.json").write_text(json.dumps(config))
    if pixels is not None:
        (folder / "preprocessor_config.json").write_text(json.dumps(pixels))
    return prepared(detector(folder, {"y": np.zeros((1, count), np.float32)}, (64, 64))).task


def _placed(task):
    found = place((400, 300), 224, 224, task.fit, task.zoom)
    return found.width, found.height, found.left, found.top


@pytest.mark.parametrize(
    ("pixels", "expected"),
    [
        (_SHORTER, _CUT),
        (_BOTH, _CUT),
        ({**_BOTH, "feature_extractor_type": "DeiTFeatureExtractor"}, _SQUARE),
        ({"size": {"height": 224, "width": 224}, "crop_size": {"height": 99}}, _WHOLE),
        ({"size": 224}, _WHOLE),
        ({"size": {"shortest_edge": 224}, "crop_pct": 0.875, **_CONVNEXT}, _CUT),
        ({"size": {"shortest_edge": 384}, **_CONVNEXT}, _WHOLE),
        ({**_SHORTER, "size": 224, "feature_extractor_type": "LevitFeatureExtractor"}, _CUT),
        (
            {
                "size": 224,
                "crop_pct": 0.875,
                "feature_extractor_type": "PoolFormerFeatureExtractor",
            },
            _CUT,
        ),
        ({**_SHORTER, "crop_size": 9}, _WHOLE),  # a part that cannot be meant
        ({"size": [7], "crop_size": "x", "crop_pct": True}, _WHOLE),
        ({"size": 10**400, "crop_size": 1e-320, "do_center_crop": True}, _WHOLE),
    ],
)
def test_pictures_are_cut_as_a_file_says(tmp_path, pixels, expected):
    about = {"model_type": "vit", "id2label": {"0": "ant", "1": "bee", "2": "cow"}}
    task = _task(tmp_path, 3, about, {**_NORMAL, **pixels})
    assert task is not None and task.scale == (127.5,) * 3
    assert _placed(task) == expected


@pytest.mark.parametrize(
    ("mode", "share", "expected"),
    [
        ("center", 0.875, _CUT),
        ("squash", 0.875, _SQUARE),
        ("border", 1.0, (224, 168, 0, 28)),
        ("other", 0.9, _WHOLE),
        ("center", 0.01, _WHOLE),
    ],
)
def test_pictures_are_cut_as_timm_does(tmp_path, mode, share, expected):
    """The number of classes shows what the model is, if it has no names of them."""
    own = {"mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": share, "crop_mode": mode}
    about = {"architecture": "a", "num_classes": 3, "pretrained_cfg": own}
    task = _task(tmp_path, 3, about)
    assert task is not None and task.kind == "classify" and task.labels == ()
    assert _placed(task) == expected
    assert mode != "border" or task.fill == 128
    assert _task(tmp_path, 4, about) is None  # another model's file


def test_pixels_of_efficient_net_are_divided_twice(tmp_path):
    about = {"model_type": "efficientnet", "id2label": {"0": "ant", "1": "bee", "2": "cow"}}
    task = _task(tmp_path, 3, about, {**_NORMAL, "include_top": True})
    assert task is not None and task.scale == (63.75,) * 3


def test_channels_are_in_the_order_of_a_file(tmp_path):
    about = {"model_type": "mobilevit", "id2label": {"0": "ant", "1": "bee", "2": "cow"}}
    task = _task(tmp_path, 3, about, {"do_flip_channel_order": True, "do_rescale": True})
    assert task is not None and (task.channels, task.scale) == ("bgr", (255,))


@pytest.mark.parametrize(
    ("own", "pixels", "expected"),
    [
        ({"interpolation": "bicubic"}, None, "bicubic"),
        ({"interpolation": "bilinear"}, None, "bilinear"),
        ({"interpolation": 7}, None, "bilinear"),
        (None, {"resample": 3}, "bicubic"),
        (None, {"resample": 0}, ""),
        (None, {"resample": [3]}, ""),
        (None, {}, "bilinear"),
    ],
)
def test_pictures_are_resized_as_a_file_says(tmp_path, own, pixels, expected):
    about = {"model_type": "vit", "id2label": {"0": "ant", "1": "bee", "2": "cow"}}
    if own is not None:
        whole = {"mean": [0.5] * 3, "std": [0.5] * 3}
        about = {"num_classes": 3, "pretrained_cfg": {**whole, **own}}
    task = _task(tmp_path, 3, about, None if pixels is None else {**_NORMAL, **pixels})
    assert task is not None and task.filter == expected
