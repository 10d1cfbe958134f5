"""Detectors whose files select boxes by TensorRT's EfficientNMS or Caffe's DetectionOutput, and
CenterNet, which selects none: against decoders in NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import numpy_helper

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.caffe_models import image, layer
from tests.support.caffe_models import save as save_caffe
from tests.support.detectors import best_boxes, built, detector, scattered
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_CELLS = 8 * 12 + 4 * 6 + 2 * 3
_NAMES = ["num_dets", "det_boxes", "det_scores", "det_classes"]


def _with_plugin(folder, domain="TRT", outputs=_NAMES, inputs=("boxes", "scores"), **attributes):
    """A file that ends in the plugin, and its boxes (centers and sizes) and scores."""
    rng = np.random.default_rng(3)
    boxes, scores = scattered(_CELLS, _SIZE, 3), rng.random((_CELLS, 4)).astype(np.float32) ** 6
    given = boxes
    if not attributes.get("box_coding"):
        half = boxes[:, 2:] / 2
        given = np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], 1)
    sure = np.log(scores / (1 - scores)) if attributes.get("score_activation") else scores
    parts = {"boxes": given[None], "scores": sure[None].astype(np.float32)}
    plugin = node("EfficientNMS_TRT", list(inputs), outputs, domain=domain, **attributes)
    return built(folder, parts, [plugin], outputs, _SIZE), boxes, scores


@pytest.mark.parametrize(
    "attributes",
    [
        {"box_coding": 1, "score_activation": 1},
        {"box_coding": 0, "class_agnostic": 1, "domain": ""},
    ],
)
def test_boxes_that_a_plugin_of_tensorrt_selects(tmp_path, attributes):
    about = {"score_threshold": 0.3, "iou_threshold": 0.45, "max_output_boxes": 40, **attributes}
    path, boxes, scores = _with_plugin(tmp_path, **about)
    one = bool(attributes.get("class_agnostic"))
    expected = best_boxes(boxes, scores, 0.3, 0.45, single=one, across=one)[:40]
    assert len(expected) > 20
    graph = import_model(path)
    found = evaluate(graph, {"images": np.zeros((1, 3, *_SIZE), np.float32)}).outputs
    count, corners, sure, labels = (found[name] for name in _NAMES)
    assert count.tolist() == [[len(expected)]] and count.dtype == labels.dtype == np.int32
    for i, (label, score, edges) in enumerate(expected):
        assert labels[0, i] == label and sure[0, i] == pytest.approx(score, abs=1e-5)
        assert corners[0, i] == pytest.approx(edges, abs=1e-3)
    assert not corners[0, len(expected) :].any() and not sure[0, len(expected) :].any()
    made = prepared(path)
    assert made.task is not None and made.task.fit == "letterbox"
    same(rows_of(made), expected)


@pytest.mark.parametrize(
    ("names", "channels"),
    [
        (["num_dets", "labels", "scores", "boxes"], "rgb"),
        (["graph2_num_predictions", "graph2_pred_boxes", "graph2_pred_scores",
          "graph2_pred_classes"], "bgr"),
    ],
)  # fmt: skip
def test_boxes_that_are_counted(tmp_path, names, channels):
    """YOLO-World's and YOLO-NAS' exporters have them in any order, but name them."""
    corners = np.float32([[[1, 2, 30, 40], [5, 6, 70, 80], [9, 9, 9, 9]]])
    by_end = {"boxes": corners, "scores": np.float32([[0.9, 0.5, 0.4]]),
              "labels": np.float32([[3, 0, 1]]), "classes": np.float32([[3, 0, 1]])}  # fmt: skip
    parts = {name: by_end.get(name.rpartition("_")[2], np.float32([[2]])) for name in names}
    made = prepared(built(tmp_path, parts, [], names, _SIZE))
    assert made.task is not None and (made.task.kind, made.task.channels) == ("detect", channels)
    same(rows_of(made), [(3, 0.9, (1, 2, 30, 40)), (0, 0.5, (5, 6, 70, 80))])


def test_boxes_of_mmyolo_that_may_be_of_rtmdet(tmp_path):
    names = ["num_dets", "labels", "scores", "boxes"]
    parts = {"num_dets": np.float32([[1]]), "labels": np.float32([[3]]),
             "sure": np.float32([[0.9]]), "boxes": np.float32([[[1, 2, 30, 40]]])}  # fmt: skip
    each = numpy_helper.from_array(np.ones((3, 1, 3, 3), np.float32))
    nodes = [node("Constant", [], ["each"], value=each),
             node("Conv", ["images", "each"], ["seen"], group=3),
             node("ReduceMax", ["seen"], ["most"], keepdims=0),
             node("Mul", ["sure", "most"], ["scores"])]  # fmt: skip
    made = prepared(built(tmp_path, parts, nodes, names, _SIZE))
    assert made.task is None
    assert "or of RTMDet" in made.graph.notes[-1] and "--head mmyolo" in made.graph.notes[-1]


def test_other_results_of_the_plugin_are_no_boxes(tmp_path):
    """EfficientDet's are in another order, and named as those of TensorFlow's detectors."""
    names = ["num_detections", "detection_boxes", "detection_scores", "detection_classes"]
    path, _, _ = _with_plugin(tmp_path, outputs=names)
    assert prepared(path).task is None
    path, _, _ = _with_plugin(tmp_path, inputs=("boxes", "scores", "boxes"))
    with pytest.raises(InputError, match="expected boxes and scores, found anchors, too"):
        import_model(path)


@pytest.mark.parametrize("done", [False, True])
def test_peaks_of_maps_are_boxes(tmp_path, done):
    rng = np.random.default_rng(1)
    logits = rng.normal(-3, 2, (3, 16, 24)).astype(np.float32)
    sizes = rng.uniform(1, 6, (2, 16, 24)).astype(np.float32)
    shifts = rng.random((2, 16, 24)).astype(np.float32)
    outputs = {"hm": logits[None], "wh": sizes[None], "reg": shifts[None]}
    if done:
        parts = {"logits": outputs.pop("hm"), **outputs}
        nodes = [node("Sigmoid", ["logits"], ["hm"])]
        path = built(tmp_path, parts, nodes, ["hm", "wh", "reg"], _SIZE)
    else:
        path = detector(tmp_path, outputs, _SIZE)
    padded = np.pad(logits, ((0, 0), (1, 1), (1, 1)), constant_values=-np.inf)
    expected = []
    for label, y, x in np.ndindex(logits.shape):
        score = 1 / (1 + np.exp(-logits[label, y, x]))
        if score > 0.3 and logits[label, y, x] == padded[label, y : y + 3, x : x + 3].max():
            (wide, high), (across, down) = sizes[:, y, x], shifts[:, y, x]
            left, top = 4 * (x + across - wide / 2), 4 * (y + down - high / 2)
            expected.append((label, score, (left, top, left + 4 * wide, top + 4 * high)))
    expected.sort(key=lambda each: -each[1])
    made = prepared(path)
    assert made.task is not None and made.source == "because outputs are those of CenterNet"
    assert 20 < len(expected) < 100
    same(rows_of(made), expected)


def test_cells_of_fomo_are_boxes(tmp_path):
    """Of neighbors that are equal, as numbers of 8 bits often are, one counts."""
    shares = np.full((1, _SIZE[0] // 8, _SIZE[1] // 8, 3), 0.05, np.float32)
    for row, column, label, share in ((2, 3, 1, 0.9), (2, 4, 1, 0.9), (3, 4, 1, 0.7),
                                      (2, 5, 2, 0.8), (6, 1, 2, 0.4)):  # fmt: skip
        shares[0, row, column, label] = share
    shares[..., 0] = 1 - shares[..., 1:].sum(-1)
    nodes = [node("Softmax", ["logits"], ["y"], axis=3)]
    path = built(tmp_path, {"logits": np.log(shares)}, nodes, ["y"], _SIZE)
    unsure = prepared(path)
    assert unsure.task is None and "or a map of classes; --head fomo" in unsure.source
    made = prepared(path, CompileOptions(task="detect", head="fomo"))
    assert made.task is not None and made.task.kind == "detect" and "FOMO" in made.source
    same(rows_of(made), [(0, 0.9, (24, 16, 32, 24)), (1, 0.8, (40, 16, 48, 24))])
    (tmp_path / "labels.txt").write_text("cup\npen\n")
    labeled = prepared(tmp_path / "m.onnx").task
    assert labeled is not None and labeled.labels == ("cup", "pen")


@pytest.mark.parametrize("joins", [False, True])
def test_half_a_mobile_net_is_fomo(tmp_path, joins):
    nodes = [
        node("Transpose", ["x"], ["first"], perm=[0, 3, 1, 2]),
        node("Conv", ["first", "dw"], ["a"], group=3, kernel_shape=[8, 8], strides=[8, 8]),
        node("Concat", ["a", "a"], ["b"], axis=1) if joins else node("Relu", ["a"], ["b"]),
        node("Transpose", ["b"], ["last"], perm=[0, 2, 3, 1]),
        node("Softmax", ["last"], ["shares"], axis=3),
    ]
    weights = {"dw": np.ones((3, 1, 8, 8), np.float32)}
    made = model(nodes, [value("x", [1, 64, 64, 3])], ["shares"], weights, opset=13)
    found = prepared(save(made, tmp_path)).task
    assert (found is None) == joins


def test_boxes_of_each_cell_and_class(tmp_path):
    """DetectNet_v2's, in units of 35 pixels."""
    scores, edges = np.zeros((1, 2, 4, 6), np.float32), np.ones((1, 8, 4, 6), np.float32)
    scores[0, 1, 2, 3], scores[0, 1, 2, 4], scores[0, 0, 0, 0] = 0.9, 0.8, 0.3
    edges[0, 4:, 2, 3] = np.float32([10.5, 20.5, 30, 20]) / 35
    edges[0, 4:, 2, 4] = np.float32([26.5, 20.5, 14, 20]) / 35  # the same box
    outputs = {"output_bbox/BiasAdd:0": edges, "output_cov/Sigmoid:0": scores}
    made = prepared(detector(tmp_path, outputs, _SIZE))
    assert made.task is not None and made.task.fit == "stretch"
    same(rows_of(made), [(1, 0.9, (38, 12, 78.5, 52.5))])


def _caffe_ssd(folder, classes, first):
    """SSD with one box in the middle, whose last class is likely; `first` is its first layer."""
    flat = np.zeros((4, 3, 1, 1), np.float32)
    scores = np.zeros(classes + 1, np.float32)
    scores[-1] = 9
    blobs = {
        "dw": [np.ones((3, 1, 1, 1), np.float32)],
        "data_bn": [np.full(3, 90, np.float32), np.full(3, 3600, np.float32), np.ones(1)],
        "loc": [flat, np.zeros(4, np.float32)],
        "logit": [np.zeros((classes + 1, 3, 1, 1), np.float32), scores],
    }
    text = image(1, 3, 30, 30) + first
    before = "first" if first else "data"
    text += layer("one", "Pooling", before, rest="pooling_param { pool: AVE global_pooling: true }")
    for name, count in (("loc", 4), ("logit", classes + 1)):
        rest = f"convolution_param {{ num_output: {count} kernel_size: 1 }}"
        text += layer(name, "Convolution", "one", rest=rest)
    text += layer("conf", "Softmax", "logit", rest="softmax_param { axis: 1 }")
    text += layer("prior", "PriorBox", "one data", rest="prior_box_param { min_size: 10 }")
    for name in ("loc", "conf"):
        text += layer(f"{name}.flat", "Flatten", name)
    text += layer("found", "DetectionOutput", "loc.flat conf.flat prior",
                  rest=f"detection_output_param {{ num_classes: {classes + 1} keep_top_k: 5 "
                       "confidence_threshold: 0.5 "
                       "code_type: CENTER_SIZE nms_param { nms_threshold: 0.45 } }")  # fmt: skip
    used = {n: v for n, v in blobs.items() if f'name: "{n}"' in text}
    return save_caffe(text, used, folder)


@pytest.mark.parametrize(
    ("classes", "first", "label", "mean"),
    [
        (20, layer("dw", "Convolution", "data", "first", "convolution_param { num_output: 3 "
         "kernel_size: 1 group: 3 bias_term: false }"), "tv monitor", 127.5),
        (1, layer("data_bn", "BatchNorm", "data", "first"), "face", 177),
        (3, "", "", 117),
    ],
)  # fmt: skip
def test_boxes_of_caffe(tmp_path, classes, first, label, mean):
    made = prepared(_caffe_ssd(tmp_path, classes, first))
    task = made.task
    assert task is not None and (task.fit, task.channels) == ("stretch", "bgr")
    assert task.mean[len(task.mean) // 2] == mean and "pixels as" in made.source
    assert [*task.labels][-1:] == [label] * bool(label)
    [(number, score, corners)] = rows_of(made)
    assert number == classes and score > 0.95
    assert corners == pytest.approx((10, 10, 20, 20), abs=1e-4)


def test_anchors_of_retina_net(tmp_path):
    """As NVIDIA's program decodes them: sides of anchors include their last pixel."""
    rng, outputs, nodes, boxes, scores = np.random.default_rng(8), {}, [], [], []
    grids = {8: (8, 12), 16: (4, 6), 32: (2, 3), 64: (1, 2), 128: (1, 1)}
    for stride, (rows, columns) in grids.items():
        sure = rng.normal(-4, 2, (1, 9 * 3, rows, columns)).astype(np.float32)
        shift = rng.normal(0, 0.3, (1, 36, rows, columns)).astype(np.float32)
        outputs |= {f"s{stride}": sure, f"b{stride}": shift}
        nodes.append(node("Sigmoid", [f"s{stride}"], [f"c{stride}"]))
        for y, x, anchor in np.ndindex(rows, columns, 9):
            scale, ratio = 4 * 2 ** (anchor // 3 / 3), (1, 2, 0.5)[anchor % 3]
            side = stride / ratio**0.5 * scale
            whole = np.array([side, side * ratio]) + 1
            low = np.array([x, y]) * stride + stride / 2 - (whole - 1) / 2
            dx, dy, dw, dh = shift[0, 4 * anchor : 4 * anchor + 4, y, x].astype(float)
            middle, size = low + whole / 2 + (dx, dy) * whole, np.exp((dw, dh)) * whole
            boxes.append((*middle - 0.5, *size - 1))
            scores.append(1 / (1 + np.exp(-sure[0, 3 * anchor : 3 * anchor + 3, y, x])))
    names = [*(f"c{stride}" for stride in grids), *(f"b{stride}" for stride in grids)]
    made = prepared(built(tmp_path, outputs, nodes, names, _SIZE))
    assert made.task is not None and made.task.mean == (123.675, 116.28, 103.53)
    expected = best_boxes(np.array(boxes), np.array(scores), 0.5, 0.5, single=False)
    assert len(expected) > 10
    same(rows_of(made), expected[:100])
