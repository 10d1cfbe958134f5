"""Labels and pixels from files next to a model, and proposals that are told."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions
from tests.compiler.tasks.test_heads import prepared, rows_of, same
from tests.support.detectors import best_boxes, built, detector, scattered
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 96)
_CELLS = 8 * 12 + 4 * 6 + 2 * 3


def _classifier(folder, count, size=(64, 64), name="y"):
    """A classifier with scores that no softmax makes."""
    return detector(folder, {name: np.zeros((1, count), np.float32)}, size)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("labels.txt", "cat\ndog\nred hat\n\n"),
        ("dict.txt", "cat\ndog\nred hat\n"),
        ("m.labels", "cat\r\ndog\r\nred hat"),
        ("m_labels.txt", "0 cat\n1 dog\n2 red hat\n"),
        ("coco.names", "0: cat\n1: dog\n2: red hat\n"),
        ("m_class_map.csv", 'index,mid,display_name\n0,a,cat\n1,b,dog\n2,c,"red hat"\n'),
        ("labelmap.txt", "???\ncat\ndog\nred hat\n"),
        ("labels_mobilenet_quant_v1_224.txt", "cat\ndog\nred hat\n"),
        ("Emotion Labels.txt", "cat\ndog\nred hat\n"),
    ],
)
def test_labels_beside_a_model(tmp_path, name, lines):
    path = _classifier(tmp_path, 3)
    assert prepared(path).task is None
    (tmp_path / name).write_text(lines)
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("cat", "dog", "red hat")
    said = f"because scores are of classes, with labels of {name}, scores are a softmax of 'y', "
    assert made.source == said + "pixels as PyTorch's models take them"


@pytest.mark.parametrize("data", [b"cat\ndog", b"\xff\xfe", b"a\nb\nc\nd\n", b"a\n\x1b[2J\nc"])
def test_labels_that_do_not_fit_are_left_alone(tmp_path, data):
    (tmp_path / "labels.txt").write_bytes(data)
    assert prepared(_classifier(tmp_path, 3)).task is None


def test_files_for_another_number_of_classes_are_told(tmp_path):
    """Metadata of Ultralytics with too few names, and config.json of another model."""
    about = {"task": "classify", "names": {0: "cat", 1: "dog"}, "stride": 1}
    path = detector(tmp_path, {"y": np.zeros((1, 3), np.float32)}, _SIZE, **about)
    said = ", without labels because the file's metadata is for 2 classes, not 3"
    made = prepared(path)
    assert made.task is not None and not made.task.labels and made.source.endswith(said)
    assert said in made.graph.notes[-1]
    boxes = np.zeros((1, 7, _CELLS), np.float32)
    about = {**about, "task": "detect"}
    assert prepared(detector(tmp_path, {"y": boxes}, _SIZE, **about)).source.endswith(said)
    path = detector(tmp_path, {"y": boxes}, _SIZE)
    names = {"0": "cat", "1": "dog"}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "yolo", "id2label": names}))
    made = prepared(path)
    assert made.source.endswith(", without labels because config.json is for 2 classes, not 3")


@pytest.mark.parametrize(
    ("resize", "fit", "zoom"),
    [
        ({"type": "ResizeEdge", "scale": 72, "edge": "short"}, "crop", 72 / 64),
        ({"type": "Resize", "size": [72, -1], "keep_ratio": True}, "crop", 72 / 64),
        ({"type": "Resize", "size": [72, 72], "keep_ratio": False}, "stretch", 72 / 64),
        ({"type": "Resize", "size": [72, 80]}, None, 1),
        ({"type": "Rotate", "size": [72, 72]}, None, 1),
    ],
)
def test_pixels_of_classifiers_of_mmdeploy(tmp_path, resize, fit, zoom):
    """pipeline.json of MMPretrain does not say how many classes there are."""
    path = _classifier(tmp_path, 1000)
    normal = {"mean": [1, 2, 3], "std": [4, 5, 6], "to_rgb": False}
    steps = [resize, {"type": "CenterCrop", "crop_size": 64}, {"type": "Normalize", **normal}]
    tasks = [
        {"module": "Transform", "transforms": steps},
        {"module": "mmpretrain", "component": "LinearClsHead", "params": {"topk": 5}},
    ]
    (tmp_path / "pipeline.json").write_text(json.dumps({"pipeline": {"tasks": tasks}}))
    task = prepared(path).task
    if fit is None:
        assert task is None or task.mean != (1, 2, 3)
        return
    assert task is not None and (task.fit, task.zoom) == (fit, pytest.approx(zoom))
    assert (task.mean, task.scale, task.channels) == ((1, 2, 3), (4, 5, 6), "bgr")


def test_labels_that_count_from_one_serve_models_that_select_boxes(tmp_path):
    rows = np.array([[[1, 2, 30, 40, 0.9, 1], [5, 6, 7, 8, 0.4, 0]]], np.float32)
    path = detector(tmp_path, {"y": rows}, _SIZE)
    (tmp_path / "labelmap.txt").write_text("???\nperson\nbicycle\n")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("person", "bicycle")
    assert made.source.endswith("with labels of labelmap.txt")
    (tmp_path / "labelmap.txt").unlink()
    (tmp_path / "m.txt").write_text("Trained in May.\nNot for production.\n")
    notes = prepared(path)  # how many classes there are is not known
    assert notes.task is not None and notes.task.labels == ()


def test_labels_beside_a_file_of_edge_impulse(tmp_path):
    path = _classifier(tmp_path, 3).rename(tmp_path / "ei-model.lite")
    (tmp_path / "labels.txt").write_text("a\nb\nc")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("a", "b", "c")
    assert (made.task.fit, made.task.scale) == ("crop", (255.0,))


def test_labels_among_several_models_are_nobodys(tmp_path):
    path = _classifier(tmp_path, 3)
    (tmp_path / "labels.txt").write_text("a\nb\nc")
    (tmp_path / "other.tflite").touch()
    assert prepared(path).task is None
    (tmp_path / "m.txt").write_text("x\ny\nz")  # named like the model
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("x", "y", "z")


def test_of_two_lists_with_other_names_neither_counts(tmp_path):
    path = _classifier(tmp_path, 3)
    (tmp_path / "labels_en.txt").write_text("cat\ndog\nhat")
    (tmp_path / "labels_de.txt").write_text("Katze\nHund\nHut")
    assert prepared(path).task is None
    (tmp_path / "labels.txt").write_text("a\nb\nc")
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("a", "b", "c")


def test_labels_of_yolov5_are_in_a_file_without_a_task(tmp_path):
    output = np.zeros((1, 3 * _CELLS, 5 + 2), np.float32)
    names = {0: "cat", 1: "dog"}
    path = detector(tmp_path, {"output0": output}, _SIZE, stride=32, names=names)
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("cat", "dog")
    listed = prepared(detector(tmp_path, {"output0": output}, _SIZE, stride=32, names=["a", "b"]))
    assert listed.task is not None and listed.task.labels == ("a", "b")  # as until 2022
    other = prepared(detector(tmp_path, {"output0": output}, _SIZE, names=names))
    assert other.task is not None and other.task.labels == ()


def test_imagenet_is_a_proposal_that_is_told(tmp_path):
    made = prepared(_classifier(tmp_path, 1000))
    assert made.task is not None and made.task.labels[281] == "tabby"
    assert (made.task.fit, made.task.mean) == ("crop", (123.675, 116.28, 103.53))
    said = (
        "finds classes, because scores are of classes, scores are a softmax of 'y', labels of "
        "ImageNet because there are 1000 classes, pixels as PyTorch's models for ImageNet take "
        "them; --labels, --mean and --scale name others"
    )
    assert made.graph.notes[-1] == said
    (tmp_path / "labels.txt").write_text("\n".join(f"thing {i}" for i in range(1000)))
    made = prepared(_classifier(tmp_path, 1000))
    assert made.task is not None and made.task.labels[281] == "thing 281"
    assert made.task.mean == (123.675, 116.28, 103.53)
    with_background = prepared(_classifier(tmp_path, 1001)).task
    assert with_background is not None and with_background.labels[0] == "background"
    assert with_background.labels[282] == "tabby" and with_background.mean == (127.5,)


@pytest.mark.parametrize(("shape", "is_one"), [((49, 10), False), ((28, 28), True)])
def test_features_of_sound_are_no_picture(tmp_path, shape, is_one):
    """Both have one channel; pictures of digits are square."""
    nodes = [
        node("Reshape", ["images", "flat"], ["x"]),
        node("Slice", ["x", "zero", "ten", "one"], ["some"]),
        node("Softmax", ["some"], ["y"], axis=1),
    ]
    constants = {"flat": np.array([1, -1]), "zero": np.array([0]), "ten": np.array([10])}
    constants["one"] = np.array([1])
    made = model(nodes, [value("images", [1, *shape, 1])], ["y"], constants, opset=13)
    assert (prepared(save(made, tmp_path)).task is not None) is is_one


def test_a_model_that_scales_its_pixels_gets_no_others(tmp_path):
    parts = {"y": np.zeros((1, 1000), np.float32)}
    path = built(tmp_path, parts, [node("Sub", ["images", "c.y0"], ["z"])], ["y"], (64, 64))
    import onnx

    proto = onnx.load(path)
    proto.graph.initializer.append(
        onnx.numpy_helper.from_array(np.full((1, 3, 1, 1), 7, np.float32), "c.y0")
    )
    proto.graph.node[0].input[0] = "z"
    first = proto.graph.node.pop()
    proto.graph.node.insert(0, first)
    onnx.save(proto, path)
    made = prepared(path)
    assert made.task is not None and made.task.mean == () and len(made.task.labels) == 1000


def test_timm_says_pixels_and_labels(tmp_path):
    path = _classifier(tmp_path, 3)
    own = {"mean": [0.5, 0.4, 0.2], "std": [0.1, 0.2, 0.5], "crop_pct": 0.9}
    about = {"architecture": "a", "num_classes": 3, "pretrained_cfg": own}
    about["label_names"] = ["ant", "bee", "cow"]
    (tmp_path / "config.json").write_text(json.dumps(about))
    made = prepared(path)
    assert made.task is not None and made.task.labels == ("ant", "bee", "cow")
    assert (made.task.mean, made.task.scale) == ((127.5, 102, 51), (25.5, 51, 127.5))
    assert made.task.fit == "crop" and made.source == "by config.json, scores are a softmax of 'y'"
    other = prepared(_classifier(tmp_path, 1000)).task  # its pixels are another model's
    assert other is not None and other.mean == (123.675, 116.28, 103.53)


def test_corners_and_scores_of_all_cells(tmp_path):
    boxes = scattered(_CELLS, _SIZE, 7)
    logits = np.random.default_rng(7).normal(-3, 2, (_CELLS, 4)).astype(np.float32)
    corners = np.concatenate([boxes[:, :2] - boxes[:, 2:] / 2, boxes[:, :2] + boxes[:, 2:] / 2], 1)
    parts = {"corners": corners[None].astype(np.float32), "logits": logits[None]}
    nodes = [node("Sigmoid", ["logits"], ["scores"])]
    made = prepared(built(tmp_path, parts, nodes, ["corners", "scores"], _SIZE))
    assert made.task is not None and "YOLO-NAS" in made.source and made.task.channels == "bgr"
    other = built(tmp_path, parts, nodes, ["scores", "corners"], _SIZE)
    assert prepared(other).task is None
    nodes.append(node("Identity", ["corners"], ["boxes"]))
    world = prepared(built(tmp_path, parts, nodes, ["scores", "boxes"], _SIZE))
    assert world.task is not None and "YOLO-World" in world.source
    same(rows_of(world), rows_of(made))
    expected = best_boxes(boxes, 1 / (1 + np.exp(-logits.astype(float))), 0.25, 0.7, single=False)
    assert len(expected) > 3
    same(rows_of(made), expected[:100])
    nodes = [node("Sigmoid", ["logits"], ["output"])]
    damo = prepared(built(tmp_path, parts, nodes, ["output", "corners"], _SIZE))
    assert damo.task is not None and "DAMO-YOLO" in damo.source and damo.task.channels == "rgb"
    assert (damo.task.fit, damo.task.scale) == ("corner", (1.0,))
    same(rows_of(damo), expected[:100])


def test_sound_is_brought_to_the_level_that_a_configuration_states(tmp_path):
    """As Wav2Vec2FeatureExtractor does; the model's output is the power of its input."""
    nodes = [
        node("Mul", ["x", "x"], ["squares"]),
        node("ReduceMean", ["squares"], ["power"], axes=[1], keepdims=1),
        node("MatMul", ["power", "weights"], ["logits"]),
    ]
    constants = {"weights": np.float32([[2, 0, 0]])}
    path = save(model(nodes, [value("x", [1, 8000])], ["logits"], constants), tmp_path)
    names = {"0": "angry", "1": "calm", "2": "sad"}
    config = {"model_type": "wav2vec2", "id2label": names}
    (tmp_path / "config.json").write_text(json.dumps(config))
    pixels = {"do_normalize": True, "sampling_rate": 8000}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(pixels))
    made = prepared(path)
    assert made.task is not None and (made.task.kind, made.task.rate) == ("keyword", 8000)
    assert made.task.labels == tuple(names.values())
    sound = (0.1 + 0.05 * np.sin(np.arange(8000))).astype(np.float32)[None]
    shares = evaluate(made.graph, {made.task.input: sound}).outputs[made.task.output]
    expected = np.exp([2, 0, 0]) / np.exp([2, 0, 0]).sum()
    assert np.abs(shares[0] - expected).max() < 1e-3


def _of_keras(folder, first=(), cuts=True, channels=3):
    """A classifier for ImageNet with the channels last, whose first operator may scale pixels."""
    constants = {
        "k": np.ones((channels, 1, 3, 3), np.float32), "zero": np.zeros((), np.float32),
        "six": np.full((), 6, np.float32), "w": np.zeros((channels, 1000), np.float32),
    }  # fmt: skip
    nodes, name = [], "images"
    for kind, number in first:
        constants["number"] = np.full((), number, np.float32)
        nodes, name = [node(kind, [name, "number"], ["scaled"])], "scaled"
    nodes += [
        node("Transpose", [name], ["t"], perm=[0, 3, 1, 2]),
        node("Conv", ["t", "k"], ["c"], group=channels),
        node("Clip", ["c", "zero", "six"], ["a"]) if cuts else node("Relu", ["c"], ["a"]),
        node("GlobalAveragePool", ["a"], ["m"]),
        node("Flatten", ["m"], ["f"]),
        node("MatMul", ["f", "w"], ["p"]),
        node("Softmax", ["p"], ["y"]),
    ]
    made = model(nodes, [value("images", [1, 64, 64, channels])], ["y"], constants, opset=13)
    return save(made, folder)


@pytest.mark.parametrize(
    ("first", "scale"),
    [
        ([("Mul", 1 / 255)], 1),
        ([("Div", 127.5)], 1),
        ([("Sub", 117)], 1),
        ([], 127.5),  # a MobileNet: Keras' other networks take other values
    ],
)
def test_pixels_of_keras_follow_from_the_first_operator_or_the_network(tmp_path, first, scale):
    made = prepared(_of_keras(tmp_path, first))
    assert made.task is not None and made.task.labels[281] == "tabby"
    assert made.task.scale == (scale,) and made.task.mean == ((127.5,) if not first else (0,))


def test_pixels_that_nothing_shows_are_asked_for(tmp_path):
    path = _of_keras(tmp_path, cuts=False)
    made = prepared(path)
    assert made.task is None
    assert "the model does not say which values pixels have" in made.graph.notes[-1]
    asked = prepared(path, CompileOptions(task="classify")).task
    assert asked is not None and asked.scale == ()
