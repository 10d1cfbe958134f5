"""TFLite_Detection_PostProcess against LiteRT: decoding, overlaps, order."""

from __future__ import annotations

import numpy as np
import pytest
from flatbuffers import flexbuffers

from edgekit.host.compiler.frontends.tflite.importer import graph_from_tflite
from edgekit.host.compiler.inputs import DetectionNotes, read_detection_notes
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.litert_cases import Single, check, fixed, given

pytestmark = pytest.mark.peers

_OPTIONS = {
    "max_detections": 10, "max_classes_per_detection": 1, "num_classes": 4,
    "nms_score_threshold": 0.3, "nms_iou_threshold": 0.5,
    "y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0,
}  # fmt: skip


def _single(seed=0, boxes=40, background=1, quantized=False, coarse=False, **options):
    rng = np.random.default_rng(seed)
    chosen = _OPTIONS | options
    classes = chosen["num_classes"] + background
    anchors = rng.uniform(0.2, 0.8, (boxes, 4)).astype(np.float32)
    shapes = ((1, boxes, 4), (1, boxes, classes))
    if quantized:
        ins = [given(rng.integers(0, 256, s).astype(np.uint8), k, z)
               for s, k, z in zip(shapes, (0.06, 0.0039), (120, 0), strict=True)]  # fmt: skip
        where = fixed(rng.integers(60, 200, (boxes, 4)).astype(np.uint8), 0.004, [0])
    else:
        scores = rng.random(shapes[1])
        scores = np.round(scores * 8) / 8 if coarse else scores
        ins = [given(rng.normal(0, 2, shapes[0]).astype(np.float32))]
        ins.append(given(scores.astype(np.float32)))
        where = fixed(anchors)
    outs = [given(np.zeros(s, np.float32)) for s in ((1, 1, 4), (1, 1), (1, 1), (1,))]
    custom = bytes(flexbuffers.Dumps(chosen))
    return Single("CUSTOM:TFLite_Detection_PostProcess", [*ins, where], outs, custom=custom)


CASES = {
    "fast": {},
    "fast-without-background": {"background": 0},
    "fast-few": {"boxes": 6},
    "fast-classes": {"max_classes_per_detection": 3},
    "fast-ties": {"coarse": True, "nms_score_threshold": 0.5},
    "fast-quantized": {"quantized": True},
    "fast-nothing": {"nms_score_threshold": 1.5},
    "regular": {"use_regular_nms": True, "detections_per_class": 3},
    "regular-all": {"use_regular_nms": True, "max_detections": 200},
    "regular-quantized": {"use_regular_nms": True, "quantized": True, "background": 0},
}


def contents(files) -> list[bytes]:
    made = [_single(0, **CASES[name]) for name in CASES]
    made += [_suppression(version, 30, 5) for version in (4, 5)]
    return [single.content(files) for single in made]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_agrees_with_litert(files, litert, name, seed):
    """After the last detection LiteRT leaves data from earlier runs; edgekit writes 0."""
    single = _single(seed, **CASES[name])
    content, inputs = single.content(files), single.inputs()
    expected = litert(content, inputs)
    found = evaluate(graph_from_tflite(content, "case"), inputs).outputs
    assert found["y3"] == expected["y3"]
    count = int(found["y3"][0]) * CASES[name].get("max_classes_per_detection", 1)
    for output in ("y0", "y1", "y2"):
        assert found[output].shape == expected[output].shape
        first = found[output][0, :count]
        np.testing.assert_allclose(first, expected[output][0, :count], rtol=1e-5, atol=1e-6)
        assert not found[output][0, count:].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"y_scale": 0.0}, "positive scales"),
        ({"max_detections": -3}, "options from 1"),
        ({"num_classes": 9, "background": -4}, "expected boxes"),
        ({"nms_iou_threshold": "half"}, "a number as option nms_iou_threshold"),
    ],
)
def test_bad_options_are_refused(files, options, message):
    with pytest.raises(InputError, match=message):
        graph_from_tflite(_single(**options).content(files), "case")


def _suppression(version, count, limit):
    rng = np.random.default_rng(count + limit)
    boxes = rng.uniform(0, 1, (count, 4)).astype(np.float32)
    scores = rng.permutation(np.linspace(0, 1, count)).astype(np.float32)
    numbers = [np.array(limit, np.int32), np.float32(0.3), np.float32(0.2), np.float32(0)]
    ins = [given(boxes), given(scores), *(fixed(v) for v in numbers[: version - 1])]
    outs = [given(np.zeros(1, np.int32)), given(np.zeros((), np.int32))]
    if version == 5:
        outs.insert(1, given(np.zeros(1, np.float32)))
    name = f"NON_MAX_SUPPRESSION_V{version}"
    return Single(name, ins, outs, f"NonMaxSuppressionV{version}Options")


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize(("count", "limit"), [(30, 5), (30, 40), (7, 20)])
def test_suppression_agrees_with_litert(files, litert, version, count, limit):
    check(files, litert, _suppression(version, count, limit))


def test_the_results_of_the_operator_are_found_in_a_file(files, tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(_single(0).content(files))
    notes = read_detection_notes(path)
    assert (notes.results, notes.classes) == (("y0", "y1", "y2", "y3"), 4)
    path.write_bytes(path.read_bytes()[:-9])
    assert read_detection_notes(path).results in ((), ("y0", "y1", "y2", "y3"))
    path.write_bytes(b"TFLite_Detection_PostProcess")
    none = read_detection_notes(path)
    assert none == DetectionNotes()
