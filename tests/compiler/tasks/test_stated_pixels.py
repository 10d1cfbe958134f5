"""Which values pixels have: by files next to a model, by who makes such models, or not known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task
from edgekit.host.compiler.tasks.hub import stated_pixels
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import detector
from tests.support.onnx_models import model, node, save, value

_SIZE = (64, 64)
_ABOUT = {
    "do_resize": True, "size": {"height": 64, "width": 64}, "do_rescale": True,
    "rescale_factor": 1 / 255, "do_normalize": True,
    "image_mean": [0.5] * 3, "image_std": [0.5] * 3,
}  # fmt: skip


def _classifier(folder, **more):
    return detector(folder, {"y": np.zeros((1, 3), np.float32)}, _SIZE, **more)


def _last(folder, name="m.onnx"):
    """A classifier with the channels last, as Keras has them."""
    nodes = [
        node("ReduceMean", ["images"], ["mean"], axes=[1, 2], keepdims=0),
        node("Softmax", ["mean"], ["y"], axis=1),
    ]
    made = model(nodes, [value("images", [1, *_SIZE, 3])], ["y"], opset=13)
    return save(made, folder, name)


def test_a_file_of_pixels_alone(tmp_path):
    (tmp_path / "labels.txt").write_text("cat\ndog\nhat\n")
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_ABOUT))
    made = prepared(_classifier(tmp_path))
    assert made.task is not None
    assert (made.task.mean, made.task.scale) == ((127.5,) * 3, (127.5,) * 3)
    assert made.source.endswith("pixels by preprocessor_config.json")
    assert stated_pixels(tmp_path / "m.onnx") == ((127.5,) * 3, (127.5,) * 3)


def test_two_classes_without_names_are_those_of_transformers(tmp_path):
    """Its config.json has no list then; nor do pixels of other files depend on it."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_ABOUT))
    about = {"model_type": "vit", "architectures": ["ViTForImageClassification"]}
    (tmp_path / "config.json").write_text(json.dumps(about))
    for count, label in ((2, "LABEL_0"), (1000, "tench")):
        task = prepared(detector(tmp_path, {"y": np.zeros((1, count), np.float32)}, _SIZE)).task
        assert task is not None and (task.labels[0], task.mean[0]) == (label, 127.5)


def test_a_file_of_sound_states_no_pixels(tmp_path):
    about = {"do_normalize": True, "sampling_rate": 16000, "feature_size": 1}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(about))
    assert stated_pixels(tmp_path / "m.onnx") == ((), ())


def test_the_size_of_open_pictures_is_in_that_file(tmp_path):
    nodes = [node("GlobalAveragePool", ["images"], ["y"])]
    path = save(model(nodes, [value("images", [1, 3, "h", "w"])], ["y"], opset=13), tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_ABOUT))
    graph = import_for_task(path, CompileOptions(task="guess"))
    assert graph.tensors["images"].shape == (1, 3, 64, 64)
    assert "preprocessor_config.json" in graph.notes[-1]


@pytest.mark.parametrize(("name", "mean"), [("m.onnx", None), ("model_unquant.onnx", (127.5,))])
def test_labels_alone_do_not_say_which_pixels_a_model_takes(tmp_path, name, mean):
    """Wrong pixels give wrong classes. Teachable Machine's models are known by their name."""
    path = _last(tmp_path, name)
    (tmp_path / "labels.txt").write_text("0 cat\n1 dog\n2 hat\n")
    made = prepared(path)
    if mean is None:
        assert made.task is None and "--mean" in made.source
    else:
        assert made.task is not None and made.task.mean == mean
    asked = prepared(path, CompileOptions(task="classify"))
    assert asked.task is not None and asked.task.labels == ("cat", "dog", "hat")


@pytest.mark.parametrize(
    ("kind", "constant", "scale"), [("Sub", 127.5, 1), ("Sub", 0.45, 255), ("Add", 0.45, 127.5)]
)
def test_what_a_file_does_with_pixels_is_not_done_twice(tmp_path, kind, constant, scale):
    """Tools that put the normalization into a file leave the one of its network next to it."""
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(_ABOUT))
    (tmp_path / "labels.txt").write_text("cat\ndog\nhat\n")
    nodes = [
        node(kind, ["images", "c"], ["own"]),
        node("ReduceMean", ["own"], ["y"], axes=[2, 3], keepdims=0),
    ]
    constants = {"c": np.full((1, 3, 1, 1), constant, np.float32)}
    made = model(nodes, [value("images", [1, 3, *_SIZE])], ["y"], constants, opset=13)
    made = prepared(save(made, tmp_path))
    assert made.task is not None and {*made.task.scale} == {scale}


@pytest.mark.parametrize("moves", [["Transpose"], ["Transpose", "Pad"]])
def test_pixels_may_be_moved_before_they_are_scaled(tmp_path, moves):
    """As in files of Keras' MobileNets, which are not scaled once more."""
    (tmp_path / "labels.txt").write_text("cat\ndog\nhat\n")
    nodes = [node("Transpose", ["x"], ["turned"], perm=[0, 3, 1, 2])]
    nodes += [node("Pad", ["turned", "more"], ["padded"])] if "Pad" in moves else []
    nodes += [
        node("Mul", [nodes[-1].output[0], "c"], ["scaled"]),
        node("Conv", ["scaled", "w"], ["d"], group=3),
        node("Clip", ["d", "low", "high"], ["r"]),
        node("ReduceMean", ["r"], ["m"], axes=[2, 3], keepdims=0),
        node("Softmax", ["m"], ["y"], axis=1),
    ]
    constants = {
        "c": np.full(1, 1 / 127.5, np.float32), "w": np.ones((3, 1, 1, 1), np.float32),
        "low": np.float32(0), "high": np.float32(6), "more": np.array([0, 0, 1, 1, 0, 0, 1, 1]),
    }  # fmt: skip
    made = model(nodes, [value("x", [1, *_SIZE, 3])], ["y"], constants, opset=13)
    task = prepared(save(made, tmp_path, "mobilenetv2.onnx")).task
    assert task is not None and (task.mean, task.scale) == ((0.0,), (1.0,))


@pytest.mark.parametrize(
    ("name", "called", "mean", "said"),
    [
        ("vit_base_patch16_224", "images", 127.5, "timm's ViT"),
        ("vit-small-patch14-dinov2", "images", 123.675, "timm's"),
        ("tf_efficientnetv2_b0", "images", 123.675, "PyTorch's"),
        ("resnetv2_50.a1h_in1k", "images", 127.5, "TensorFlow and timm's"),
        ("vit_medium_patch16_gap_256", "images", 127.5, "timm's ViT"),
        ("eva_large_patch14_196", "images", 122.7709383, "timm's EVA and CLIP"),
        ("mobilevit_s", "images", 0, "MobileViT"),
        ("googlenet-9", "data_0", 104, "Caffe's"),
        ("light_densenet121", "data_0", 103.53, "Caffe2's"),
        ("resnet50-caffe2-v1-9", "gpu_0/data_0", 103.53, "Caffe2's"),
        ("zfnet512-9", "gpu_0/data_0", None, ""),
        ("resnet18_vehicletypenet", "input_1:0", None, ""),
        ("vgg_ilsvrc_16_age_imdb_wiki", "data", 104, "Caffe's"),
        ("open-nsfw", "data", 104, "Caffe's"),
        ("yolov8n-cls", "images", 0, "YOLO's"),
        ("vit_b_16", "images", 123.675, "timm's and torchvision's"),
        ("resnet34.ra4_e3600_r224_in1k", "images", 127.5, "TensorFlow and timm's"),
        ("dpn92", "images", 124, "MXNet's"),
        ("resnet50_clip.openai", "images", 122.7709383, "timm's EVA and CLIP"),
        ("efficientnet_b1", "images", None, ""),
        ("inception_v3_Opset16", "images", None, ""),  # as ONNX' model zoo names them
        ("adv_inception_v3_Opset16", "images", 127.5, "TensorFlow and timm's"),
        ("mixer_b16_224_miil_Opset17", "images", 0, "timm's"),
    ],
)
def test_pixels_of_families_are_known_by_name(tmp_path, name, called, mean, said):
    nodes = [node("Conv", [called, "w"], ["c"]), node("GlobalAveragePool", ["c"], ["g"]),
             node("Flatten", ["g"], ["y"])]  # fmt: skip
    weights = {"w": np.zeros((1000, 3, 1, 1), np.float32)}
    proto = model(nodes, [value(called, [1, 3, *_SIZE])], ["y"], weights, opset=13)
    made = prepared(save(proto, tmp_path, f"{name}.onnx"))
    if mean is None:
        assert made.task is None and "does not say which values pixels have" in made.source
        return
    assert made.task is not None and made.task.mean[0] == mean
    assert f"pixels as {said}" in made.source and "for ImageNet take them" in made.source


def _plain(folder, name, ends, attends=False, swish=False, softmax=True):
    """A classifier whose first and last tensors are called `ends`."""
    first, last = ends
    nodes = [node("Conv", [first, "w"], ["c"])]
    if swish:
        nodes += [node("Sigmoid", ["c"], ["s"]), node("Mul", ["c", "s"], ["a"])]
    else:
        nodes += [node("Softmax" if attends else "Relu", ["c"], ["a"])]
    nodes += [node("GlobalAveragePool", ["a"], ["g"]), node("Flatten", ["g"], ["f"]),
              node("Softmax" if softmax else "Identity", ["f"], [last])]  # fmt: skip
    weights = {"w": np.ones((3, 3, 1, 1), np.float32)}
    made = model(nodes, [value(first, [1, 3, *_SIZE])], [last], weights, opset=13)
    (folder / "labels.txt").write_text("cat\ndog\nhat\n")
    return save(made, folder, f"{name}.onnx")


@pytest.mark.parametrize(
    ("name", "ends", "more", "mean", "fit"),
    [
        ("best", ("images", "output0"), {"swish": True}, 0, "crop"),  # Ultralytics' names
        ("best", ("images", "output0"), {"softmax": False}, 123.675, "crop"),  # YOLOv5's
        ("model_v2", ("x", "y"), {"swish": True}, None, ""),
        ("my_classifier", ("x", "y"), {"attends": True, "softmax": False}, None, ""),
        ("my_classifier", ("x", "y"), {}, 123.675, "crop"),
        ("deit_tiny", ("x", "y"), {"attends": True, "softmax": False}, 123.675, "crop"),
        ("model", ("data", "model_output"), {}, 0, "stretch"),  # Custom Vision's
    ],
)
def test_where_a_name_says_nothing_the_network_may(tmp_path, name, ends, more, mean, fit):
    """Transformers take pixels in several ways, and networks that end in a softmax do, too."""
    made = prepared(_plain(tmp_path, name, ends, **more))
    if mean is None:
        assert made.task is None and "does not say which values pixels have" in made.source
        return
    assert made.task is not None and (made.task.mean[0], made.task.fit) == (mean, fit)


@pytest.mark.parametrize(
    ("about", "channels", "scale"),
    [("NominalRange_0_255", "bgr", 1), ("Normalized_1_1", "bgr", 127.5), ("other", "rgb", 58.395)],
)
def test_metadata_of_onnx_states_pixels(tmp_path, about, channels, scale):
    (tmp_path / "labels.txt").write_text("cat\ndog\nhat\n")
    entries = {"Image.BitmapPixelFormat": "Bgr8", "Image.NominalPixelRange": about}
    task = prepared(_classifier(tmp_path, **entries)).task
    assert task is not None and (task.channels, task.scale[0]) == (channels, scale)


@pytest.mark.parametrize(
    ("name", "size", "count", "first", "mean"),
    [
        ("enet_b0_8_best_vgaf", (224, 224), 8, "anger", 123.675),
        ("enet_b2_7", (260, 260), 7, "anger", 123.675),
        ("enet_b0_8_va_mtl", (224, 224), 10, "", 0),
        ("facial_expression_recognition_mobilefacenet_2022july", (112, 112), 7, "angry", 127.5),
        ("age_googlenet", (224, 224), 8, "0-2", 104),
        ("2.7_80x80_MiniFASNetV2", (80, 80), 3, "fake", 0),
        ("vww_96_float", (96, 96), 2, "no person", 0),
        ("pretrainedResnet", (32, 32), 10, "airplane", 0),
        ("faces", (112, 112), 7, "", 0),
    ],
)
def test_classes_of_some_models_are_known_by_name(tmp_path, name, size, count, first, mean):
    path = detector(tmp_path, {"y": np.zeros((1, count), np.float32)}, size)
    made = prepared(path.rename(tmp_path / f"{name}.onnx"))
    if not first:
        assert made.task is None and f"may be {count} scores" in made.source
        return
    assert made.task is not None and made.task.labels[0] == first
    assert (made.task.fit, made.task.mean[0]) == ("stretch", mean)
    assert "labels and pixels of" in made.source


def test_tags_of_pictures_have_a_list(tmp_path):
    """config.json next to such a tagger is of its network, which takes other pixels."""
    (tmp_path / "selected_tags.csv").write_text("tag_id,name,category\n5,cat,0\n7,hat,0\n9,red,4\n")
    about = {"mean": [0.5] * 3, "std": [0.5] * 3, "crop_pct": 0.9}
    config = {"architecture": "vit", "num_classes": 3, "pretrained_cfg": about}
    (tmp_path / "config.json").write_text(json.dumps(config))
    made = prepared(_last(tmp_path))
    task = made.task
    assert task is not None and task.labels == ("cat", "hat", "red")
    assert (task.fit, task.fill, task.zoom) == ("letterbox", 255, 1)
    assert (task.channels, task.scale) == ("bgr", (1,))


def test_classifiers_of_yolov5_have_metadata_without_a_task(tmp_path):
    made = prepared(_classifier(tmp_path, stride=32, names="{0: 'a', 1: 'b', 2: 'c'}"))
    assert made.task is not None and made.task.labels == ("a", "b", "c")
    assert (made.task.fit, made.task.mean[0]) == ("crop", 123.675)


def test_a_file_for_several_pictures_takes_one(tmp_path):
    rows = np.float32([[[20, 20, 9, 9, 0.9]] * 252])
    nodes = [
        node("ReduceMean", ["pictures"], ["mean"], keepdims=0),
        node("Mul", ["mean", "none"], ["nothing"]),
        node("Add", ["c", "nothing"], ["y"]),
    ]
    given = {"c": rows.transpose(0, 2, 1), "none": np.zeros(1, np.float32)}
    made = model(nodes, [value("pictures", [4, 3, 96, 128])], ["y"], given, opset=13)
    graph = import_for_task(save(made, tmp_path), CompileOptions(task="guess"))
    assert graph.tensors["pictures"].shape == (1, 3, 96, 128)
    assert "takes one picture" in graph.notes[-1]


def test_what_is_missing_is_said_of_sounds(tmp_path):
    sound = [node("GlobalAveragePool", ["x"], ["y"])]
    path = save(
        model(
            [node("Slice", ["x", "n", "e", "o"], ["y"])],
            [value("x", [1, 16000])],
            ["y"],
            {"n": np.array([0]), "e": np.array([5]), "o": np.array([1])},
        ),
        tmp_path,
    )
    assert "put them into m.txt next to it" in prepared(path).source
    path = save(model(sound, [value("x", [1, 1, 49, 10])], ["y"]), tmp_path)
    assert "say in m.toml next to it" in prepared(path).source
    bands = [node("ReduceMean", ["x"], ["y"], axes=[1, 2], keepdims=0)]
    path = save(model(bands, [value("x", [1, 1, 64, 5])], ["y"], opset=13), tmp_path)
    (tmp_path / "labels.txt").write_text("yes\nno\nstop\ngo\nup\n")  # of no picture
    assert "say in m.toml next to it" in prepared(path).source
    (tmp_path / "labels.txt").unlink()
    frames = [node("Reshape", ["x", "to"], ["y"])]
    path = save(model(frames, [value("x", [1, 1, 16000])], ["y"], {"to": np.array([1, 50, 320])}),
                tmp_path)  # fmt: skip
    assert "may be characters of speech, which no file lists: put vocab" in prepared(path).source
    assert prepared(path, CompileOptions()).source == ""


def test_labels_of_another_length_are_told_instead_of_a_proposal(tmp_path):
    """Neither COCO's nor ImageNet's are right where a file lists others."""
    (tmp_path / "labels.txt").write_text("cat\ndog\n")
    for shape in ((1, 1000), (1, 84, 252)):
        made = prepared(detector(tmp_path, {"y": np.zeros(shape, np.float32)}, (96, 128)))
        assert made.task is not None and not made.task.labels
        count = 1000 if len(shape) == 2 else 80
        assert f", without labels because labels.txt has 2 lines, not {count}" in made.source
    about = {"task": "detect", "names": {0: "cat"}, "stride": 32}
    boxes = np.zeros((1, 84, 252), np.float32)
    made = prepared(detector(tmp_path, {"y": boxes}, (96, 128), **about))
    assert "without labels because the file's metadata is for 1 classes" in made.source
