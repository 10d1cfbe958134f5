"""`edgekit run --task embed`: vectors of pictures, and how alike they are."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from PIL import Image

from edgekit.device.runtime.application import open as open_on_board
from tests.cli.test_detect import served
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value


@pytest.mark.slow
def test_pictures_are_compared_by_their_vectors(edgekit, home):
    """The vector is a product with the picture's pixels."""
    rng = np.random.default_rng(0)
    weights = rng.normal(0, 1, (3 * 8 * 8, 16)).astype(np.float32)
    nodes = [
        node("Reshape", ["images", "shape"], ["flat"]),
        node("MatMul", ["flat", "weights"], ["y"]),
    ]
    constants = {"shape": np.array([1, 3 * 8 * 8]), "weights": weights}
    path = save(model(nodes, [value("images", [1, 3, 8, 8])], ["y"], constants), home)
    (home / "photos").mkdir()
    expected, frames = {}, {}
    for name in "abc":
        frames[name] = rng.integers(0, 256, (8, 8, 3)).astype(np.uint8)
        Image.fromarray(frames[name]).save(home / f"photos/{name}.png")
        vector = (frames[name].transpose(2, 0, 1) / 255).reshape(-1) @ weights
        expected[name] = vector / np.linalg.norm(vector)
    done = edgekit("run", path, "--input", "photos", "--task", "embed", "--json")
    assert done.code == 0, done.err
    for found, wanted in zip(done.document["inputs"], expected.values(), strict=True):
        np.testing.assert_allclose(found["vector"], wanted, atol=1e-5)
    pairs = sorted(
        ((expected[a] @ expected[b], a, b) for a, b in itertools.combinations("abc", 2)),
        reverse=True,
    )
    shown = edgekit("run", "--input", "photos").out.splitlines()
    assert shown[-4] == "cosine   of 3 vectors of 16 values"
    assert shown[-3:] == [f"  {cosine:7.4f}  {a}.png  {b}.png" for cosine, a, b in pairs]
    with open_on_board(root=home.parent / "home/boards/local") as deployed:
        assert deployed.embed(frames["b"]) == pytest.approx(expected["b"].tolist(), abs=1e-5)
    body = (home / "photos/c.png").read_bytes()
    answers = served(home, home.parent / "home/boards/local", {"/embed": body})
    vector = json.loads(answers["/embed"][1])["vector"]
    assert vector == pytest.approx(expected["c"].tolist(), abs=1e-5)


def test_a_vector_of_zeros_and_outputs_that_are_none(edgekit, home):
    Image.new("RGB", (8, 8)).save(home / "a.png")
    path = detector(home, {"y": np.zeros((1, 12), np.float32)}, (8, 8))
    done = edgekit("run", path, "--input", "a.png", "--task", "embed", "--json")
    assert done.document["inputs"][0]["vector"] == [0.0] * 12
    for shape in ((1, 4, 4), (1, 12, 1)):
        path = detector(home, {"y": np.zeros(shape, np.float32)}, (8, 8))
        done = edgekit("compile", path, "--task", "embed", "-o", "x.ekb")
        assert done.code == 2
        found = done.err.splitlines()[-1]
        assert "--task embed: expected one output that is a vector, found" in found
