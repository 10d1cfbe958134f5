"""Coral's PosenetDecoderOp, which LiteRT lacks: it recovers people from synthetic heatmaps."""

from __future__ import annotations

import heapq

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.ir.ops.poses import EDGES, KEYPOINTS, _Queue
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import with_task
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, given

_OPTIONS = {"max_detections": 4, "score_threshold": 0.5, "stride": 16, "nms_radius": 20.0}
_H, _W, _STRIDE = 21, 25, 16
_BODY = np.array([
    (0, 0), (-1, 1), (-1, -1), (0, 2), (0, -2), (3, 3), (3, -3), (5, 4), (5, -4), (7, 4), (7, -4),
    (8, 2), (8, -2), (11, 2), (11, -2), (14, 2), (14, -2),
], np.float32)  # fmt: skip  # cells from the nose: y, x


def _person(y, x):
    return (_BODY + (y, x) + np.linspace(0.1, 0.4, KEYPOINTS)[:, None]).astype(np.float32)


def _maps(people, odds):
    """Each cell points to the person with the nearest keypoint."""
    heat = np.full((_H, _W, KEYPOINTS), -9, np.float32)
    short = np.zeros((_H, _W, 2, KEYPOINTS), np.float32)
    mid = np.zeros((_H, _W, 2, 2, len(EDGES)), np.float32)
    cells = np.stack(np.mgrid[:_H, :_W], -1).astype(np.float32)
    all_points = np.stack(people)
    for k in range(KEYPOINTS):
        reach = np.linalg.norm(cells[:, :, None] - all_points[:, k], axis=-1)
        who = reach.argmin(-1)
        heat[..., k] = np.array(odds, np.float32)[who] - 2 * reach.min(-1)
        short[..., k] = np.moveaxis((all_points[who, k] - cells) * _STRIDE, -1, 2)
        for e, edge in enumerate(EDGES):
            for way, (source, target) in enumerate((edge, edge[::-1])):
                if source == k:
                    moved = (all_points[who, target] - cells) * _STRIDE
                    mid[:, :, way, :, e] = np.moveaxis(moved, -1, 2)
    return [m.reshape(1, _H, _W, -1) for m in (heat, short, mid)]


def _single(maps, options=_OPTIONS, quantized=False):
    keep = options.get("max_detections", 1)
    keep = keep if 0 < keep < 100 else 1
    ins = [given(m) for m in maps]
    if quantized:
        scales = [float(np.abs(m).max() / 120) for m in maps]
        ins = [given(np.clip(np.rint(m / s) + 128, 0, 255).astype(np.uint8), s, 128)
               for m, s in zip(maps, scales, strict=True)]  # fmt: skip
    shapes = ((1, keep, KEYPOINTS, 2), (1, keep, KEYPOINTS), (1, keep), (1,))
    outs = [given(np.zeros(s, np.float32)) for s in shapes]
    custom = bytes(flexbuffers.Dumps(options))
    return Single("CUSTOM:PosenetDecoderOp", ins, outs, custom=custom)


def _run(files, single):
    made = evaluate(graph_from_tflite(single.content(files), "m"), single.inputs()).outputs
    return [made[f"y{i}"] for i in range(4)]


@pytest.mark.parametrize("quantized", [False, True])
def test_people_are_found_where_they_stand(files, quantized):
    people = [_person(4, 5), _person(3, 18)]
    points, scores, means, count = _run(files, _single(_maps(people, (3, 5)), quantized=quantized))
    assert count[0] == 2
    near = 0.5 if quantized else 1e-4  # cells
    for place, person in enumerate(people[::-1]):  # higher odds come first
        np.testing.assert_allclose(points[0, place] / _STRIDE, person, atol=near)
    assert means[0, 0] > means[0, 1] > 0.5
    np.testing.assert_allclose(means[0, :2], scores[0, :2].mean(-1), rtol=1e-5)
    assert not points[0, 2:].any() and not scores[0, 2:].any() and not means[0, 2:].any()


def test_two_in_one_place_are_one(files):
    people = [_person(4, 10), _person(4.6, 10.4)]
    *_, count = _run(files, _single(_maps(people, (4, 5))))
    assert count[0] == 1


def test_whom_there_is_no_room_for_is_left_out(files):
    maps = _maps([_person(4, 5), _person(3, 18)], (3, 5))
    points, *_, count = _run(files, _single(maps, _OPTIONS | {"max_detections": 1}))
    assert count[0] == 1
    np.testing.assert_allclose(points[0, 0] / _STRIDE, _person(3, 18), atol=1e-4)


def test_nobody_is_nobody(files):
    maps = [np.full((1, 3, 3, n), -5, np.float32) for n in (17, 34, 64)]
    made = _run(files, _single(maps))
    assert not any(y.any() for y in made)


def test_numbers_that_are_none_lead_nowhere(files):
    maps = [np.full((1, 3, 4, n), v, np.float32) for n, v in ((17, 1), (34, np.nan), (64, np.inf))]
    points, *_ = _run(files, _single(maps))
    assert (points >= 0).all() and (points <= 3 * _STRIDE).all()


def test_the_queue_gives_the_largest_first():
    rng = np.random.default_rng(0)
    for count in (1, 2, 3, 10, 200):
        scores = rng.integers(0, 9, count).astype(np.float32)
        queue = _Queue(scores, np.arange(count))
        order = [queue.pop() for _ in range(count)]
        assert sorted(order) == list(range(count)) and not len(queue)
        assert [-scores[i] for i in order] == heapq.nsmallest(count, -scores)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_detections": 0}, "a max_detections of 1"),
        ({"max_detections": 1 << 40}, "a max_detections of 1"),
        ({"stride": 0}, "a stride of 1"),
        ({"score_threshold": 1.0}, "a score_threshold from 0"),
        ({"nms_radius": -1.0}, "a nms_radius from 0"),
        ({"nms_radius": "far"}, "a number as option nms_radius"),
    ],
)
def test_bad_options_are_refused(files, options, message):
    maps = [np.zeros((1, 3, 3, n), np.float32) for n in (17, 34, 64)]
    with pytest.raises(InputError, match=message):
        graph_from_tflite(_single(maps, _OPTIONS | options).content(files), "m")


@pytest.mark.parametrize("sizes", [(17, 34, 32), (16, 34, 64), (17, 34, 64, 34)])
def test_other_maps_are_refused(files, sizes):
    maps = [np.zeros((1, 3, 3, n), np.float32) for n in sizes]
    with pytest.raises(InputError, match="expected"):
        graph_from_tflite(_single(maps).content(files), "m")


def test_persons_are_shown(files, tmp_path):
    """Coral's files, which end in the operator and take bytes."""
    maps = _maps([_person(4, 5), _person(3, 18)], (3, 5))
    side = (1, _H * _STRIDE, _W * _STRIDE, 3)
    keep = _OPTIONS["max_detections"]
    ends = {"p": (1, keep, KEYPOINTS, 2), "s": (1, keep, KEYPOINTS), "m": (1, keep), "n": (1,)}
    constants = {"axes": np.int32([1, 2, 3]), "zero": np.zeros(1, np.float32)}
    constants |= {f"c{i}": value for i, value in enumerate(maps)}
    made = {"f": side, "mean": (1,), "none": (1,), **{f"h{i}": m.shape for i, m in enumerate(maps)}}
    tensors = [
        files.tensor("x", side, "UINT8", scale=(0.0078125,), zero=(128,)),
        *(files.tensor(n, v.shape, "INT32" if v.dtype == np.int32 else "FLOAT32", v)
          for n, v in constants.items()),
        *(files.tensor(name, shape) for name, shape in (made | ends).items()),
    ]  # fmt: skip
    steps = [
        files.op("DEQUANTIZE", ["x"], ["f"], "DequantizeOptions"),
        files.op("MEAN", ["f", "axes"], ["mean"], "ReducerOptions"),
        files.op("MUL", ["mean", "zero"], ["none"], "MulOptions"),
        *(files.op("ADD", [f"c{i}", "none"], [f"h{i}"], "AddOptions") for i in range(3)),
        files.op("CUSTOM:PosenetDecoderOp", ["h0", "h1", "h2"], [*ends],
                 custom=bytes(flexbuffers.Dumps(_OPTIONS))),
    ]  # fmt: skip
    path = tmp_path / "posenet_mobilenet_v1_075_353_481_16_quant_decoder.tflite"
    path.write_bytes(files.model(files.graph(tensors, steps, ["x"], [*ends])))
    prepared = with_task(path, import_model(path), CompileOptions(task="guess"))
    task = prepared.task
    assert task is not None and (task.kind, task.labels, task.mean) == ("pose", ("person",), ())
    pixels = np.full(side, 128, np.uint8)
    outputs = evaluate(prepared.graph, {prepared.graph.inputs[0]: pixels}).outputs
    rows = outputs[task.output].reshape(keep, -1)
    assert (rows[:, 1] >= 0).sum() == 2
    points = rows[0, 7:].reshape(KEYPOINTS, 3)[:, 1::-1]
    np.testing.assert_allclose(points / _STRIDE, _person(3, 18), atol=1e-4)
    np.testing.assert_allclose(rows[0, 3:5], points[:, ::-1].min(0), atol=1e-3)
