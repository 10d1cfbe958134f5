"""Caffe networks: the classics' structure and single layers, beside OpenCV's reader."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from caffe_models import save
from caffe_networks import NETWORKS

from edgekit.host.graph.evaluate import evaluate
from edgekit.host.importers import import_model
from edgekit.host.passes.pipeline import run_passes

cv2 = pytest.importorskip("cv2")


def _compare(path: Path, rtol: float = 1e-4, atol: float = 1e-5) -> None:
    """The graph as imported and after the passes gives what OpenCV does."""
    graph = import_model(path)
    rng = np.random.default_rng(3)
    feeds = {n: rng.uniform(-1, 1, graph.tensors[n].shape).astype(np.float32) for n in graph.inputs}
    weights = path.with_suffix(".caffemodel")
    net = cv2.dnn.readNetFromCaffe(str(path), str(weights) if weights.is_file() else "")
    for name, value in feeds.items():
        net.setInput(value, name)
    # OpenCV keeps an output in memory that it also uses for later ones.
    expected = [np.array(v) for v in net.forward(list(graph.outputs))]
    for each in (graph, run_passes(graph)[0]):
        got = evaluate(each, feeds).outputs
        for name, value in zip(graph.outputs, expected, strict=True):
            assert got[name].size == value.size, name
            np.testing.assert_allclose(
                got[name].reshape(value.shape), value, rtol=rtol, atol=atol, err_msg=name
            )


@pytest.mark.parametrize("name", NETWORKS)
def test_classic_networks_agree_with_opencv(name, tmp_path):
    net = NETWORKS[name]()
    _compare(save(net.text, net.blobs, tmp_path))
