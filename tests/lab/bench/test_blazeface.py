"""The demo's decoder, on LiteRT's outputs and on synthetic ones."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from edgekit.host.lab.bench.process import Worker

_ROOT = Path(__file__).parents[3]
_SPEC = importlib.util.spec_from_file_location("blazeface", _ROOT / "scripts" / "blazeface.py")
blazeface = importlib.util.module_from_spec(_SPEC)
sys.modules["blazeface"] = blazeface
_SPEC.loader.exec_module(blazeface)


def test_anchors_cover_the_input_evenly():
    anchors = blazeface.anchors()
    assert anchors.shape == (896, 2)
    assert (anchors[0] == 0.5 / 16).all()
    assert (anchors[511] == 15.5 / 16).all()
    assert (anchors[512] == 0.5 / 8).all()
    np.testing.assert_allclose(anchors.mean(axis=0), 0.5, atol=1e-6)


def test_a_wide_picture_is_centered_in_a_square():
    values, letterbox = blazeface.prepare(Image.new("RGB", (200, 100), "white"))
    assert values.shape == (1, 128, 128, 3)
    assert (letterbox.side, letterbox.pad_x, letterbox.pad_y) == (200, 0, 50)
    assert (values[0, 0] == -1).all()
    assert (values[0, 64] == 1).all()


def _outputs(*detections):
    """Model outputs for detections (anchor, logit, dx, dy, size), in input pixels."""
    regressors = np.zeros((1, 896, 16), np.float32)
    scores = np.full((1, 896, 1), -20, np.float32)
    for anchor, logit, dx, dy, size in detections:
        regressors[0, anchor, :4] = dx, dy, size, size
        scores[0, anchor] = logit
    return regressors, scores


def test_overlapping_detections_become_one_weighted_by_score():
    letterbox = blazeface.Letterbox(128, 0, 0)
    anchor = 2 * (5 * 16 + 5)  # center at 44, 44
    faces = blazeface.find_faces(
        *_outputs((anchor, 3.0, 0, 0, 20), (anchor + 1, 3.0, 2, 0, 20)), letterbox
    )
    assert len(faces) == 1
    assert faces[0].left == pytest.approx(35, abs=1e-4)
    assert faces[0].right == pytest.approx(55, abs=1e-4)
    assert faces[0].top == pytest.approx(34, abs=1e-4)
    assert faces[0].score == pytest.approx(1 / (1 + np.exp(-3)))


def test_faces_apart_stay_apart_best_first_and_weak_ones_go():
    letterbox = blazeface.Letterbox(256, 0, 64)
    faces = blazeface.find_faces(
        *_outputs((0, 1.0, 0, 0, 10), (511, 2.0, 0, 0, 10), (250, -0.5, 0, 0, 10)), letterbox
    )
    assert [round(f.score, 3) for f in faces] == [0.881, 0.731]
    assert faces[1].left == pytest.approx((4 - 5) * 2)
    assert faces[1].top == pytest.approx((4 - 5) * 2 - 64)


@pytest.mark.peers
def test_the_astronauts_face_is_found(tmp_path):
    picture = Image.open(_ROOT / "models" / "astronaut.png")
    values, letterbox = blazeface.prepare(picture)
    np.savez(tmp_path / "in.npz", in0=values[np.newaxis])
    with Worker("litert:xnnpack", _ROOT / "models" / "face_detection_short_range.tflite") as w:
        w.run(tmp_path / "in.npz", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as stored:
        faces = blazeface.find_faces(stored["out0"][0], stored["out1"][0], letterbox)
    assert len(faces) == 1
    face = faces[0]
    assert face.score > 0.9
    assert (170 < face.left < 190) and (260 < face.right < 285)
    right_eye, left_eye = face.keypoints[:2]
    assert face.left < right_eye[0] < left_eye[0] < face.right
