"""Damaged and hostile model files: C or one line, never another exception.

`tests/long/hostile_models.py` does this thousands of times, under limits of time and memory.
"""

from __future__ import annotations

import resource
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.errors import InputError
from tests.long.hostile_models import ATTACKS, case, forked, outcome
from tests.support.onnx_models import model, node, value

_MODELS = sorted((Path(__file__).parents[3] / "models").glob("*.tflite"))
_QUICK = sorted(name for name in ATTACKS if not name.endswith("built"))


@pytest.mark.parametrize("path", _MODELS, ids=lambda p: p.stem)
def test_a_file_cut_anywhere_is_refused(path, tmp_path):
    assert _cut(tmp_path / "m.tflite", path.read_bytes()) == 50


@pytest.mark.slow
@pytest.mark.parametrize("name", _QUICK)
def test_hostile_files_are_compiled_or_refused(name, tmp_path):
    path = tmp_path / f"m.{name.partition('-')[0]}"
    for seed in range(25):
        path.write_bytes(case(name, seed))
        assert outcome(path, "rpi4", tmp_path / "cache") in ("compiled", "refused"), seed


def _cut(path, whole):
    """Import each of 50 prefixes of a file; rejections must be one line."""
    refused = 0
    for part in range(50):
        path.write_bytes(whole[: len(whole) * part // 50])
        try:
            import_model(path)
        except InputError as error:
            refused += 1
            assert str(error).isprintable() and path.name in str(error)
    return refused


def test_onnx_files_cut_anywhere(tmp_path):
    weights = {"w": np.ones((4, 3, 3, 3), np.float32), "b": np.ones(4, np.float32)}
    nodes = [node("Conv", ["x", "w", "b"], ["c"]), node("Relu", ["c"], ["y"])]
    proto = model(nodes, [value("x", [1, 3, 8, 8])], ["y"], weights)
    assert _cut(tmp_path / "m.onnx", proto.SerializeToString()) == 50


def test_caffe_files_cut_anywhere(tmp_path):
    text = (
        'layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }\n'
        'layer { name: "y" type: "ReLU" bottom: "x" top: "y" }\n'
    )
    assert _cut(tmp_path / "net.prototxt", text.encode()) > 30
    (tmp_path / "net.prototxt").write_text(text)
    _cut(tmp_path / "net.caffemodel", bytes(range(256)) * 4)


def _address_space() -> int:
    """Bytes of this process, which ran other tests before."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def test_a_small_model_takes_little_memory(tmp_path):
    proto = model([node("Tanh", ["x"], ["y"])], [value("x", [1, 3])], ["y"])
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    assert forked(tmp_path / "m.onnx", "rpi4", tmp_path, _address_space())[0] == "compiled"


def test_a_large_constant_from_a_small_file_is_not_computed(tmp_path):
    """512 MiB of ones: the file has 20 bytes of them."""
    nodes = [
        node("Expand", ["one", "shape"], ["a"]),
        node("Expand", ["one", "shape"], ["b"]),
        node("Mul", ["a", "b"], ["c"]),
        node("Add", ["x", "c"], ["y"]),
    ]
    given = {"one": np.ones((1, 1)), "shape": np.array([1 << 13, 1 << 13])}
    proto = model(nodes, [value("x", [1, 1], np.dtype(np.float64))], ["y"], given)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    found, _ = forked(tmp_path / "m.onnx", "rpi4", tmp_path, _address_space())
    assert found in ("compiled", "refused")


def test_padding_of_gigabytes_is_refused(tmp_path):
    pads = np.array([0, 1 << 40, 0, 0], np.int64)
    given = {"pads": pads, "one": np.float32(1)}
    proto = model([node("Pad", ["x", "pads", "one"], ["y"])], [value("x", [1, 3])], ["y"], given)
    (tmp_path / "m.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(InputError, match="expected constants of at most 128 MiB in addition"):
        import_model(tmp_path / "m.onnx")
