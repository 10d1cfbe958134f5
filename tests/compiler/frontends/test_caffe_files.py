"""Caffe files: legacy formats, phases and names, and one-line errors."""

from __future__ import annotations

import hashlib
import re
import warnings

import numpy as np
import pytest

from edgekit.host.common.paths import install_command
from edgekit.host.compiler.frontends import import_model, model_hash
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.errors import InputError
from tests.support.caffe_models import image, layer, save, weights
from tests.support.caffe_networks import lenet

_RNG = np.random.default_rng(4)
_W = _RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)
_B = _RNG.standard_normal(4).astype(np.float32)
_CONV = "convolution_param { num_output: 4 kernel_size: 3 }"


def _conv(blobs=None, rest=_CONV, shape=(1, 3, 8, 8)):
    return image(*shape) + layer("y", "Convolution", "data", rest=rest), (
        {"y": [_W, _B]} if blobs is None else blobs
    )


_V1 = """
input: "data" input_dim: 1 input_dim: 3 input_dim: 8 input_dim: 8
layers { name: "y" type: CONVOLUTION bottom: "data" top: "y" blobs_lr: 1 weight_decay: 0
  convolution_param { num_output: 4 kernel_size: 3 weight_filler { type: "xavier" } } }
layers { name: "r" type: RELU bottom: "y" top: "y" }
layers { name: "loss" type: SOFTMAX_LOSS bottom: "y" bottom: "label" }
"""


def test_the_form_of_2014_is_the_same_network(tmp_path):
    new, blobs = _conv()
    x = _RNG.standard_normal((1, 3, 8, 8)).astype(np.float32)
    (tmp_path / "old").mkdir()
    old = import_model(save(_V1, blobs, tmp_path / "old", legacy=True))
    now = import_model(save(new + layer("r", "ReLU", "y", "y"), blobs, tmp_path))
    assert old.inputs == now.inputs == ("data",) and old.outputs == now.outputs == ("y",)
    np.testing.assert_array_equal(
        evaluate(old, {"data": x}).outputs["y"], evaluate(now, {"data": x}).outputs["y"]
    )


def test_only_the_test_phase_stays(tmp_path):
    text, blobs = _conv()
    text += layer("noise", "Python", "y", "y", "include { phase: TRAIN }")
    text += layer("loss", "SoftmaxWithLoss", "y label", rest="exclude { phase: TEST }")
    text += layer("right", "Accuracy", "y label", rest="include { phase: TEST }")
    text += layer("prob", "Softmax", "y", rest="include { phase: TEST not_stage: 'fast' }")
    text += layer("other", "Python", "y", rest="include { stage: 'fast' }")
    text += layer("old", "Python", "y", rest="include { min_level: 1 }")
    graph = import_model(save(image(1, name="label") + text, blobs, tmp_path))
    assert graph.inputs == ("data",) and graph.outputs == ("prob",)


def test_shapes_of_inputs_may_be_others(tmp_path):
    text, blobs = _conv(shape=(10, 3, 8, 8))
    path = save(text, blobs, tmp_path)
    assert import_model(path).tensors["y"].shape == (10, 4, 6, 6)
    graph = import_model(path, {"data": (1, 3, 9, 12)})
    assert graph.tensors["y"].shape == (1, 4, 7, 10)
    _refused(path, r"expected an input of the model \(data\)", {"x": (1,)})


def test_an_input_written_over_is_an_output_of_another_name(tmp_path):
    text = image(1, 2, 3, 3) + layer("positive", "ReLU", "data", "data")
    graph = import_model(save(text, {}, tmp_path))
    assert graph.inputs == ("data",) and graph.outputs == ("positive",)


def test_each_of_the_two_files_finds_the_other(tmp_path):
    text, blobs = _conv()
    path = save(text, blobs, tmp_path)
    both = path.with_suffix(".caffemodel")
    assert import_model(both).outputs == ("y",)
    together = hashlib.sha256(path.read_bytes() + both.read_bytes()).hexdigest()
    assert model_hash(path) == model_hash(both) == together
    both.rename(tmp_path / "iter_1000.caffemodel")
    assert import_model(path).outputs == ("y",)  # the only one in the folder
    path.rename(tmp_path / "deploy.prototxt.txt")
    assert import_model(tmp_path / "deploy.prototxt.txt").name == "deploy"
    (tmp_path / "other.caffemodel").write_bytes(weights(blobs))
    _refused(tmp_path / "deploy.prototxt.txt", "expected deploy.caffemodel next to it, or one .ca")
    (tmp_path / "deploy.prototxt.txt").unlink()
    _refused(tmp_path / "other.caffemodel", r"text next to its weights \(other.prototxt\)")


def _refused(path, match, shapes=None):
    with pytest.raises(InputError, match=match) as error:
        import_model(path, shapes)
    assert "\n" not in str(error.value) and str(error.value).startswith(path.name)
    assert len(str(error.value)) < 400


def _one(kind, rest="", bottoms="data", tops="y"):
    return image(1, 3, 8, 8) + layer("y", kind, bottoms, tops, rest)


_POOL = "pooling_param {{ kernel_size: {} {} }}"
_TEXTS = {
    "solver": ('net: "x"\nbase_lr: 0.1', "expected a network with layers, found none"),
    "binary": ("\x00\x01layer", "line 1"),
    "open brace": ('layer { name: "x"', "line 1"),
    "word for a number": (_one("Pooling", _POOL.format("three", "")), "line 2"),
    "huge number": (_one("Pooling", _POOL.format(10**30, "")), "line 2"),
    "other method": (_one("Pooling", _POOL.format(2, "pool: MEDIAN")), "no value named MEDIAN"),
    "deep": ("a {" * 30000, "expected the text of a Caffe network"),
    "first form": ('layers { layer { name: "c" type: "conv" } }', "upgrade_net_proto_text"),
    "two forms": (_one("ReLU") + "layers { type: RELU }", "either `layer` or `layers`"),
    "both rules": (_one("ReLU", "include { phase: TEST } exclude { phase: TRAIN }"), "found both"),
    "no input": (layer("y", "ReLU", "data"), "expected an input with a shape"),
    "no shape": ('input: "data"\n' + layer("y", "ReLU", "data"), "--input-shape data="),
    "few dims": ('input: "data" input_dim: 1 input_dim: 3\n' + layer("y", "ReLU", "data"),
                 "a shape for each of 1 inputs"),
    "large": (image(1 << 40) + layer("y", "ReLU", "data"), "2147483647 elements"),
    "many dims": (image(*[1] * 9) + layer("y", "ReLU", "data"), "at most 8 dimensions"),
    "twice": (image(1) + image(1) + layer("y", "ReLU", "data"), "data twice"),
    "no output": (_one("Silence"), "expected a network with outputs"),
    "training set": (layer("d", "Data", "", "data"), "type Input with a shape"),
    "python": (_one("Python"), r"operator y \(Python\) is not supported"),
    "cycle": (_one("ReLU", bottoms="z", tops="z"), "expected bottom z to be an input"),
    "later": (_one("ReLU", bottoms="z") + layer("z", "ReLU", "data"), "expected bottom z"),
    "written twice": (_one("ReLU") + layer("z", "TanH", "data", "y"), "expected each top to be"),
    "tops": (_one("ReLU", tops="a b"), "expected one bottom and one top"),
    "no bottoms": (_one("Eltwise", bottoms=""), "expected 1 bottoms, found 0"),
    "one bottom": (_one("Crop"), "expected 2 bottoms, found 1"),
    "line break": (image(1, name="a\\nb") + layer("y", "ReLU", "a\\nb"), "printable input names"),
    "kernel": (_one("Pooling", _POOL.format(0, "")), "expected kernel_size to be at least 1"),
    "negative": (_one("Pooling", _POOL.format(-3, "")), "expected kernel_size to be at least 1"),
    "no kernel": (_one("Pooling"), "1 or 2 values of kernel_size"),
    "huge kernel": (_one("Pooling", _POOL.format(1 << 30, "")), "a kernel of at most 65536"),
    "wide kernel": (_one("Pooling", _POOL.format(9, "")), "no larger than the image"),
    "stride": (_one("Pooling", _POOL.format(2, "stride: 0")), "expected stride to be at least 1"),
    "pad": (_one("Pooling", _POOL.format(2, "pad: 2")), "larger than its padding"),
    "behind": (_one("Pooling", _POOL.format(1, "stride: 5")), "found one beyond it"),
    "stochastic": (_one("Pooling", _POOL.format(2, "pool: STOCHASTIC")), "found STOCHASTIC"),
    "masks": (_one("Pooling", _POOL.format(2, "stride: 2"), tops="y mask"), "one bottom and one"),
    "groups": (_one("Convolution", "convolution_param { num_output: 4 kernel_size: 1 group: 2 }"),
               "groups that divide 3 channels and 4 outputs"),
    "no weights": (_one("Convolution", _CONV), r"weights \[4, 3, 3, 3\] in net.caffemodel, found "
                   "none"),
    "infinite": (_one("Power", "power_param { scale: inf }"), "expected scale to be finite"),
    "even": (_one("LRN", "lrn_param { local_size: 4 }"), "expected an odd local_size"),
    "axis": (_one("Softmax", "softmax_param { axis: 4 }"), "expected axis from -4 to 3"),
    "parts": (_one("Slice", "slice_param { slice_point: 3 }", tops="a b"), "expected 2 parts of 3"),
    "order": (_one("Permute", "permute_param { order: 0 order: 0 }"), "expected an order of 4"),
    "reshape": (_one("Reshape", "reshape_param { shape { dim: 5 } }"), "a shape of 192 elements"),
    "reshape to 0": (_one("Reshape", "reshape_param { shape { dim: -2 } }"), "at most one of -1"),
    "tiles": (_one("Tile", f"tile_param {{ tiles: {1 << 30} }}"), "2147483647 elements"),
    "interp": (_one("Interp", f"interp_param {{ height: {1 << 20} width: 2 }}"), "size of at most"),
    "upsample": (_one("Upsample", f"upsample_param {{ scale: {1 << 20} }}"), "a size of at most"),
    "boxes": (_one("PriorBox", "prior_box_param { min_size: -1 }", "data data"), "positive min_"),
    "no boxes": (_one("DetectionOutput", "detection_output_param { num_classes: 2 }", "data data "
                      "data"), r"expected boxes \[1, 2, 4 · count\]"),
    "base": (_one("Exp", "exp_param { base: 0 }"), "expected a positive base"),
}  # fmt: skip


@pytest.mark.parametrize("name", _TEXTS)
def test_texts_are_refused_in_one_line(name, tmp_path):
    text, match = _TEXTS[name]
    _refused(save(text, {}, tmp_path), match)


def test_an_invalid_text_is_refused(tmp_path):
    path = tmp_path / "net.prototxt"
    path.write_bytes(b"\xff\xfe\x00\x80" * 9)
    _refused(path, "expected the text of a Caffe network, found other bytes")
    path.write_bytes(b"")
    with pytest.raises(InputError, match="found an empty file"):
        import_model(path)


@pytest.mark.parametrize(
    ("blobs", "match"),
    [
        ({"y": [_W]}, r"expected bias \[4\] in net.caffemodel, found none"),
        ({"z": [_W, _B]}, "found none for this layer"),
        ({"y": [_W[:, :2], _B]}, r"expected weights \[4, 3, 3, 3\].*, found \[4, 2, 3, 3\]"),
        ({"y": [_W, _B[:3]]}, r"expected bias \[4\].*, found \[3\]"),
    ],
)
def test_weights_of_other_shapes_are_refused(blobs, match, tmp_path):
    text, _ = _conv()
    _refused(save(text, blobs, tmp_path), match)


@pytest.mark.parametrize(
    ("dims", "match"),
    [
        ([-4, -3, 3, 3], r"blob 0: expected \[-4, -3, 3, 3\] values, found 108"),
        ([1 << 40, 1 << 40], "found 108"),
        ([0], "found 108"),
        ([1] * 9 + [108], "found 108"),
    ],
)
def test_blobs_that_hold_other_values_are_refused(dims, match, tmp_path):
    text, blobs = _conv()
    path = save(text, blobs, tmp_path)
    from edgekit.host.compiler.frontends.caffe.schema import binary_net

    net = binary_net().FromString(weights(blobs))
    net.layer[0].blobs[0].shape.dim[:] = dims
    path.with_suffix(".caffemodel").write_bytes(net.SerializeToString())
    _refused(path, match)


def test_damaged_weights_are_refused_in_one_line(tmp_path):
    """Truncated or corrupted anywhere, the file gives the network or a one-line error."""
    made = lenet()
    path = save(made.text, made.blobs, tmp_path)
    file = path.with_suffix(".caffemodel")
    content = file.read_bytes()
    rng = np.random.default_rng(2)
    for _ in range(60):
        damaged = bytearray(content[: rng.integers(1, len(content))])
        for at in rng.integers(0, min(len(damaged), 80), 3):
            damaged[at] = rng.integers(0, 256)
        file.write_bytes(bytes(damaged))
        try:
            import_model(path)
        except InputError as error:
            assert "\n" not in str(error)
    for damaged in (b"\x0a", b"\xff" * 40, content[:-1]):
        file.write_bytes(damaged)
        _refused(path, "cannot be decoded")


def test_damaged_text_is_refused_in_one_line(tmp_path):
    made = lenet()
    path = save(made.text, made.blobs, tmp_path)
    rng = np.random.default_rng(6)
    for _ in range(60):
        damaged = bytearray(made.text.encode())
        for at in rng.integers(0, len(damaged), 2):
            damaged[at] = rng.integers(0, 256)
        path.write_bytes(bytes(damaged))
        try:
            import_model(path)
        except InputError as error:
            assert "\n" not in str(error)


def test_a_chain_of_thousands_of_layers(tmp_path):
    text = image(1, 4) + "".join(layer(f"r{i}", "ReLU", "data", "data") for i in range(3000))
    assert len(import_model(save(text, {}, tmp_path)).nodes) == 3001


def test_doubles_and_no_protobuf(tmp_path, monkeypatch):
    text, blobs = _conv()
    path = save(text, blobs, tmp_path)
    from edgekit.host.compiler.frontends.caffe.schema import binary_net

    net = binary_net().FromString(weights(blobs))
    for blob, value in zip(net.layer[0].blobs, blobs["y"], strict=True):
        del blob.data[:]
        blob.double_data.append(value.astype("<f8").tobytes())
    path.with_suffix(".caffemodel").write_bytes(net.SerializeToString())
    assert import_model(path).outputs == ("y",)
    monkeypatch.setitem(__import__("sys").modules, "google.protobuf", None)
    _refused(path, rf"install it: {re.escape(install_command('caffe'))}$")


@pytest.mark.parametrize(("mean", "variance"), [(np.inf, 1), (np.nan, 1), (0, -1), (1e38, 1e-30)])
def test_statistics_without_finite_factors_name_their_channel(mean, variance, tmp_path):
    text = image(1, 2, 3, 3) + layer("y", "BatchNorm", "data", rest="batch_norm_param { eps: 0 }")
    blobs = {"y": [np.array([0, mean]), np.array([1, variance]), np.ones(1)]}
    path = save(text, blobs, tmp_path)
    with warnings.catch_warnings(), pytest.raises(InputError) as error:
        warnings.simplefilter("error")
        import_model(path)
    assert "variances of at least 0, found no such in channel 1" in str(error.value)
