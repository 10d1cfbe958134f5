"""Models that find the points of one body, which fills the picture, or of several."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.compiler.tasks.test_given import selecting
from tests.compiler.tasks.test_heads import prepared, rows_of
from tests.support.detectors import detector
from tests.support.onnx_models import node

_SIZE = (64, 48)


def _row(made, count):
    ((label, score, rest),) = rows_of(made, 7 + 3 * count)
    assert label == 0
    return score, np.array(rest[:4]), np.reshape(rest[4:], (count, 3))


@pytest.mark.parametrize("count", [5, 17])
def test_columns_and_rows_of_rtmpose(tmp_path, count):
    rng = np.random.default_rng(count)
    across, down = (rng.random((1, count, 2 * n)).astype(np.float32) for n in _SIZE[::-1])
    down[0, 0] *= 1.5  # not a share: no score is above 1
    across[0, 0, 7] = 1.4
    made = prepared(detector(tmp_path, {"simcc_x": across, "simcc_y": down}, _SIZE))
    assert made.task is not None and (made.task.kind, made.task.fit) == ("pose", "letterbox")
    assert made.task.labels == (("person",) if count == 17 else ())
    score, box, points = _row(made, count)
    places = np.stack([across[0].argmax(1), down[0].argmax(1)], 1) / 2
    sure = np.minimum(np.minimum(across[0].max(1), down[0].max(1)), 1)
    np.testing.assert_allclose(points, np.concatenate([places, sure[:, None]], 1), atol=1e-4)
    np.testing.assert_allclose(box, [*places.min(0), *places.max(0)], atol=1e-4)
    assert score == pytest.approx(sure.mean(), abs=1e-4)
    for wrong in (down[:, :, 1:], down[:, 1:], down[:, 0], down[0, 0]):
        path = detector(tmp_path, {"simcc_x": across, "simcc_y": wrong}, _SIZE)
        assert prepared(path).task is None


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rtmpose-m_simcc-ap10k_pt-aic-coco_210e-256x256", "animal"),
        ("rtmpose-m_animal", "animal"),
        ("rtmpose-m_simcc-body7_pt-body7_420e-256x192", "person"),
    ],
)
def test_bodies_are_of_whom_the_name_says(tmp_path, name, label):
    across, down = (np.ones((1, 17, 2 * n), np.float32) for n in _SIZE[::-1])
    path = detector(tmp_path, {"simcc_x": across, "simcc_y": down}, _SIZE)
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    assert made.task is not None and made.task.labels == (label,)


def test_columns_and_rows_are_known_by_their_lengths(tmp_path):
    rng = np.random.default_rng(3)
    across, down = (rng.random((1, 17, 2 * n)).astype(np.float32) for n in _SIZE[::-1])
    made = prepared(detector(tmp_path, {"689": down, "output": across}, _SIZE))
    assert made.task is not None and made.task.kind == "pose" and made.task.labels == ("person",)
    _, _, points = _row(made, 17)
    places = np.stack([across[0].argmax(1), down[0].argmax(1)], 1) / 2
    np.testing.assert_allclose(points[:, :2], places, atol=1e-4)
    for wrong, size in ((down[:, :, 1:], _SIZE), (down[:, 1:], _SIZE), (down, (96, 48))):
        assert prepared(detector(tmp_path, {"a": across, "b": wrong}, size)).task is None
    assert prepared(detector(tmp_path, {"a": across, "b": across}, (48, 48))).task is None


@pytest.mark.parametrize(
    ("name", "count", "label"),
    [
        ("hrnet_w32_256x256", 17, "person"),
        ("hrnet_w32_ap10k_256x256", 17, "animal"),
        ("pose_resnet_50_mpii", 16, ""),
        ("td-hm_hrnet_onehand10k", 21, "hand"),
        ("hrnet_w18", 19, None),
        ("hrnet_w48_seg", 17, None),
        ("hourglass_mpii", 16, None),
        ("purpose", 16, None),
    ],
)
def test_maps_in_a_square_are_points_where_the_name_says_so(tmp_path, name, count, label):
    rng = np.random.default_rng(count)
    centers = rng.uniform(3, 12, (count, 2))
    y, x = np.mgrid[:16, :16]
    heat = np.exp(-((x - centers[:, :1, None]) ** 2 + (y - centers[:, 1:, None]) ** 2) / 4)
    path = detector(tmp_path, {"output": heat[None].astype(np.float32)}, (64, 64))
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    if label is None:
        assert made.task is None or made.task.kind != "pose"
        return
    assert made.task is not None and made.task.kind == "pose"
    assert made.task.labels == ((label,) if label else ())
    _, _, points = _row(made, count)
    np.testing.assert_allclose(points[:, :2], 4 * centers, atol=0.1)


def _refined(heat, x, y):
    """Place of the extremum near a largest value, as Huang et al. compute it."""
    weights = np.exp(-0.5 * (np.arange(-5, 6) / 0.8) ** 2)
    weights /= weights.sum()
    for axis in (0, 1):
        wide = np.pad(heat, [(5, 5) if i == axis else (0, 0) for i in (0, 1)], mode="symmetric")
        heat = np.apply_along_axis(lambda line: np.convolve(line, weights, "valid"), axis, wide)
    logs = np.pad(np.log(np.clip(heat, 0.001, 50)), 1, mode="edge")
    at = logs[y : y + 3, x : x + 3]
    slope = np.array([(at[1, 2] - at[1, 0]) / 2, (at[2, 1] - at[0, 1]) / 2])
    twice = at[1, 1] * 2
    mixed = (at[2, 2] + at[0, 0] + twice - at[1, 2] - at[2, 1] - at[1, 0] - at[0, 1]) / 2
    bend = np.array(
        [[at[1, 2] + at[1, 0] - twice, mixed], [mixed, at[2, 1] + at[0, 1] - twice]]
    ) + np.finfo(np.float32).eps * np.eye(2)
    return np.array([x, y]) - np.linalg.solve(bend, slope)


def test_maps_of_vitpose_are_read_between_pixels(tmp_path):
    rng = np.random.default_rng(2)
    centers = [(5.3, 4.8), (0.2, 9.0), (11.0, 15.0), (7.4, 0.1), (3.5, 8.0)]
    y, x = np.mgrid[:16, :12]
    heat = [0.9 * np.exp(-((x - cx) ** 2 + (y - cy) ** 2) / 6) for cx, cy in centers]
    heat = np.array(heat) + rng.normal(0, 1e-3, (5, 16, 12))
    heat[4] = 0  # nothing was seen
    path = detector(tmp_path, {"heatmaps": heat[None].astype(np.float32)}, _SIZE)
    assert prepared(path).task is None
    about = {"model_type": "vitpose", "id2label": {str(i): f"p{i}" for i in range(5)}}
    (tmp_path / "config.json").write_text(json.dumps(about))
    made = prepared(path)
    assert made.task is not None and made.task.kind == "pose"
    score, _, points = _row(made, 5)
    for each, found in zip(heat, points, strict=True):
        row, column = divmod(int(each.argmax()), 12)
        expected = _refined(each.astype(np.float32), column, row) * (47 / 11, 63 / 15)
        np.testing.assert_allclose(found, [*expected, each.max()], atol=2e-3)
    assert score == pytest.approx(heat.max((1, 2)).mean(), abs=1e-4)


def test_persons_of_rtmo_end_where_the_file_says(tmp_path):
    columns = [
        node("Constant", [], ["last"], value_ints=[1]),
        node("Constant", [], ["first"], value_ints=[0]),
        node("Constant", [], ["three"], value_ints=[1, 2, 6]),
        node("Unsqueeze", ["s", "last"], ["sure"]),
        node("Concat", ["c", "sure"], ["five"], axis=1),
        node("Gather", ["five", "kept"], ["some"], axis=0),
        node("Unsqueeze", ["some", "first"], ["dets"]),
        node("Gather", ["fields", "three"], ["point"], axis=1),
        node("Gather", ["point", "kept"], ["points"], axis=0),
        node("Unsqueeze", ["points", "last"], ["each"]),
        node("Unsqueeze", ["each", "first"], ["keypoints"]),
    ]
    made = prepared(selecting(tmp_path, columns, ["dets", "keypoints"]))
    assert made.task is not None and (made.task.fit, made.task.channels) == ("corner", "bgr")
    found = rows_of(made, 10)
    assert [(label, pytest.approx(score)) for label, score, _ in found] == [
        (0, 0.9), (0, 0.6), (0, 0.5),
    ]  # fmt: skip
    assert found[1][2] == pytest.approx((50, 20, 90, 60, 50, 20, 0.6))


@pytest.mark.parametrize("rest", [(32, 32), (64, 1)])  # for browsers, and for TensorFlow Lite
def test_points_of_posenet_are_shifted_from_their_cells(tmp_path, rest):
    rng = np.random.default_rng(3)
    maps, shifts = (rng.normal(0, 2, (1, 5, 7, n)).astype(np.float32) for n in (17, 34))
    others = {f"y{n}": np.zeros((1, 5, 7, size), np.float32) for n, size in enumerate(rest)}
    outputs = {"heatmaps": maps, "offsets": shifts, **others}
    made = prepared(detector(tmp_path, outputs, (65, 97)))
    assert made.task is not None and (made.task.kind, made.task.scale) == ("pose", (127.5,))
    score, box, points = _row(made, 17)
    expected = []
    for n in range(17):
        y, x = np.unravel_index(maps[0, ..., n].argmax(), (5, 7))
        sure = 1 / (1 + np.exp(-float(maps[0, y, x, n])))
        expected.append((16 * x + shifts[0, y, x, 17 + n], 16 * y + shifts[0, y, x, n], sure))
    np.testing.assert_allclose(points, expected, atol=1e-4)
    np.testing.assert_allclose(box, [*np.min(expected, 0)[:2], *np.max(expected, 0)[:2]], atol=1e-4)
    assert score == pytest.approx(np.mean(expected, 0)[2], abs=1e-5)


@pytest.mark.parametrize("has_points", [True, False])
def test_points_of_a_face_by_fan(tmp_path, has_points):
    rng = np.random.default_rng(5)
    maps = rng.random((1, 68, 64, 64)).astype(np.float32)
    cells = maps[0].reshape(68, -1).argmax(1)
    row, column = cells // 64, cells % 64
    places = rng.uniform(5, 60, (68, 2))
    outputs = {"heatmaps": maps}
    if has_points:
        points = np.concatenate([places, np.ones((68, 1))], 1).astype(np.float32)
        outputs["landmarks_xyscore"] = points[None]
    path = detector(tmp_path, outputs, (256, 256))
    if not has_points:
        assert "68 maps of points, for --task pose" in prepared(path).source
        path = path.rename(tmp_path / "2DFAN-4.onnx")
        near, each = np.pad(maps[0], [(0, 0), (1, 1), (1, 1)], mode="edge"), np.arange(68)
        slope = [near[each, row + 1, column + 2] - near[each, row + 1, column],
                 near[each, row + 2, column + 1] - near[each, row, column + 1]]  # fmt: skip
        places = np.stack([column, row], 1) + 0.5 + 0.25 * np.sign(slope).T
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.labels) == ("pose", ("face",))
    _, _, points = _row(made, 68)
    np.testing.assert_allclose(points[:, :2], 4 * places, atol=1e-3)
