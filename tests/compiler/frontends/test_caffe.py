"""Caffe networks: the classic architectures and single layers, compared with OpenCV's reader."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.transforms.passes.pipeline import run_passes
from tests.support.caffe_models import image, layer, save
from tests.support.caffe_networks import NETWORKS

cv2 = pytest.importorskip("cv2")


def _compare(path: Path, feeds: Mapping[str, Array] | None = None) -> None:
    """The graph gives OpenCV's results, both as imported and after the passes."""
    graph = import_model(path)
    rng = np.random.default_rng(3)
    feeds = feeds or {
        n: rng.uniform(-1, 1, graph.tensors[n].shape).astype(np.float32) for n in graph.inputs
    }
    weights = path.with_suffix(".caffemodel")
    net = cv2.dnn.readNetFromCaffe(str(path), str(weights) if weights.is_file() else "")
    for name, value in feeds.items():
        net.setInput(value, name)
    # OpenCV reuses an output's memory for later ones.
    expected = [np.array(v) for v in net.forward(list(graph.outputs))]
    for each in (graph, run_passes(graph)[0]):
        got = evaluate(each, feeds).outputs
        for name, value in zip(graph.outputs, expected, strict=True):
            if name == "found":
                # edgekit pads after the detections found; OpenCV sorts them by score only.
                assert (got[name][0, 0, value.shape[2] :] == -1).all()
                got[name] = got[name][:, :, : value.shape[2]]
                value = value[:, :, np.argsort(value[0, 0, :, 1], kind="stable")]
            assert got[name].size == value.size, name
            np.testing.assert_allclose(
                got[name].reshape(value.shape), value, rtol=1e-4, atol=1e-5, err_msg=name
            )


@pytest.mark.parametrize("name", NETWORKS)
def test_classic_networks_agree_with_opencv(name, tmp_path):
    net = NETWORKS[name]()
    _compare(save(net.text, net.blobs, tmp_path))


@pytest.mark.parametrize(
    ("rest", "spread"),
    [
        ("share_location: true code_type: CORNER confidence_threshold: 0.5", 1),
        ("share_location: true code_type: CENTER_SIZE variance_encoded_in_target: true", 1),
        ("share_location: false code_type: CENTER_SIZE", 3),
        ("share_location: true code_type: CENTER_SIZE", 1),
    ],
)
def test_detections_agree_with_opencv(rest, spread, tmp_path):
    n, rng = 40, np.random.default_rng(7)
    corners = np.sort(rng.uniform(0, 1, (n, 2, 2)), axis=1).reshape(-1)
    rows = [corners] if "encoded" in rest else [corners, np.full(n * 4, 0.1)]
    feeds = {
        "loc": rng.uniform(-1, 1, (1, n * spread * 4)).astype(np.float32),
        "conf": rng.uniform(0, 1, (1, n * 3)).astype(np.float32),
        "prior": np.stack(rows)[None].astype(np.float32),
    }
    text = "".join(image(*v.shape, name=k) for k, v in feeds.items())
    rest += " num_classes: 3 background_label_id: 0 keep_top_k: 15"
    rest += " nms_param { nms_threshold: 0.4 top_k: 30 }"
    text += layer("found", "DetectionOutput", "loc conf prior",
                  rest=f"detection_output_param {{ {rest} }}")  # fmt: skip
    _compare(save(text, {}, tmp_path), feeds)
