"""Pictures as samples: prepared as the board prepares them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from PIL import Image

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.inputs import InputOptions
from edgekit.host.compiler.transforms.quantize import samples_of
from tests.support.detectors import detector

_SIZE = (64, 64)
_ABOUT = {
    "do_resize": True, "size": {"height": 64, "width": 64}, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.5] * 3, "image_std": [0.25] * 3,
}  # fmt: skip


@pytest.fixture
def pictures(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(8):
        Image.new("RGB", (128, 64), (255, 51, 10 * i)).save(folder / f"{i}.png")
    return folder


def test_pixels_are_those_that_files_next_to_the_model_state(tmp_path, pictures):
    path = detector(tmp_path, {"y": np.zeros((1, 3), np.float32)}, _SIZE)
    (tmp_path / "labels.txt").write_text("cat\ndog\nhat\n")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_ABOUT))
    graph = import_model(path)
    first = samples_of(path, graph, pictures)[0]["images"]
    np.testing.assert_allclose(first[0, :, 5, 5], [2, -1.2, -2], atol=1e-5)
    given = InputOptions(mean=(0.0,), scale=(51.0,))
    first = samples_of(path, graph, pictures, given)[0]["images"]
    np.testing.assert_allclose(first[0, :, 5, 5], [5, 1, 0], atol=1e-5)


def test_pictures_of_a_detector_keep_their_proportions(tmp_path, pictures):
    """With the gray bars that Ultralytics' programs add."""
    about = {"task": "detect", "names": {0: "cat", 1: "dog"}, "stride": 32}
    output = np.zeros((1, 6, 8 * 8 + 4 * 4 + 2 * 2), np.float32)
    path = detector(tmp_path, {"output0": output}, _SIZE, **about)
    first = samples_of(path, import_model(path), pictures)[0]["images"]
    np.testing.assert_allclose(first[0, :, 2, 5], [114 / 255] * 3, atol=1e-5)
    np.testing.assert_allclose(first[0, :, 32, 5], [1, 0.2, 0], atol=1e-5)
