"""Several input shapes of a model in one release, selected by the input arrays."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.device.runtime.agent.manifest import Manifest, parse_manifest
from edgekit.device.runtime.errors import InputError as DeviceInputError
from edgekit.host.compiler.artifact import Artifact
from edgekit.host.compiler.driver import compile_variants
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.options import CompileOptions, variants_of
from edgekit.host.deploy.api import Device, compile_model
from edgekit.host.deploy.bundle import Bundle, SigningKey, build_bundle, sign_bundle
from edgekit.host.errors import InputError, RolledBackError
from edgekit.kb.targets.board import load_board
from tests.support.onnx_models import model, node, save, value

_RNG = np.random.default_rng(3)
_SHAPES = [(1, 3, 8, 20), (1, 3, 12, 20), (1, 3, 12, 28)]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two convolutions and a mean over the dynamic dimensions, height and width."""
    nodes = [
        node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]),
        node("Conv", ["r", "v"], ["d"]),
        node("GlobalAveragePool", ["d"], ["y"]),
        node("Sigmoid", ["d"], ["map"]),
    ]
    shapes = {"w": (16, 3, 3, 3), "b": (16,), "v": (4, 16, 1, 1)}
    constants = {k: _RNG.standard_normal(s).astype(np.float32) for k, s in shapes.items()}
    end = value("x", ["N", 3, "height", "width"])
    return save(model(nodes, [end], ["y", "map"], constants), tmp_path_factory.mktemp("open"))


@pytest.fixture(scope="module")
def artifacts(path: Path) -> tuple[Artifact, ...]:
    shapes, *more = variants_of({"x": _SHAPES})
    options = CompileOptions(shapes=shapes, more_shapes=tuple(more))
    return compile_variants(path, load_board("local"), options=options)


@pytest.fixture(scope="module")
def bundle(artifacts: tuple[Artifact, ...], trusted: SigningKey) -> Bundle:
    return _bundle(artifacts, trusted)


def _bundle(artifacts: Any, key: SigningKey) -> Bundle:
    first, *others = artifacts
    return sign_bundle(build_bundle(first, load_board("local"), others=others), key)


@pytest.mark.slow
def test_the_arrays_choose(device: Device, bundle: Bundle, path: Path) -> None:
    released = device.deploy(bundle).release
    assert len(released.health["max_difference"]) == 2
    for shape in reversed(_SHAPES):
        x = _RNG.uniform(-1, 1, shape).astype(np.float32)
        outputs, timings = device.run({"x": x})
        expected = evaluate(import_model(path, {"x": shape}), {"x": x}).outputs
        assert outputs["map"].shape == (1, 4, *shape[2:])
        for name, y in expected.items():
            np.testing.assert_allclose(outputs[name], y, rtol=1e-4, atol=1e-5)
        assert timings.operators
    found = device.status().current
    assert found is not None
    assert found.shapes == tuple({"x": shape} for shape in _SHAPES)


def test_a_shape_that_is_not_there(device: Device, bundle: Bundle) -> None:
    device.deploy(bundle)
    there = "x=1,3,8,20 or x=1,3,12,20 or x=1,3,12,28, found x=1,3,8,28; compile"
    with pytest.raises(InputError, match=there):
        device.run({"x": np.zeros((1, 3, 8, 28), np.float32)})
    with pytest.raises(InputError, match=r"expected f32 .*, found complex64"):
        device.run({"x": np.zeros(_SHAPES[1], np.complex64)})
    with pytest.raises(InputError, match="expected inputs x, found z"):
        device.run({"z": np.zeros(_SHAPES[1], np.float32)})


def test_each_is_timed(device: Device, bundle: Bundle) -> None:
    device.deploy(bundle)
    for i, shape in enumerate(_SHAPES):
        timing = device.bench(count=3, variant=i)
        assert timing.shapes == {"x": shape} and timing.runs == 3
        assert timing.arena_bytes == bundle.manifest.every_variant()[i].memory.arena_bytes
    x = np.zeros(_SHAPES[2], np.float32)
    assert device.bench({"x": x}, count=3).shapes == {"x": _SHAPES[2]}
    with pytest.raises(InputError, match="expected a variant from 0 to 2, found 3"):
        device.bench(count=3, variant=3)


def test_each_is_checked(device: Device, artifacts: tuple[Artifact, ...], trusted: Any) -> None:
    first, second, third = artifacts
    wrong = replace(second.golden, outputs=tuple(y + 1 for y in second.golden.outputs))
    with pytest.raises(RolledBackError, match=r"health: with x=1,3,12,20: output 'y'"):
        device.deploy(_bundle([first, replace(second, golden=wrong), third], trusted))


def test_weights_are_shared(artifacts: tuple[Artifact, ...], bundle: Bundle) -> None:
    weights = bundle.files["weights.bin"]
    assert [bool(a.weights) for a in artifacts] == [*[False] * (len(artifacts) - 1), True]
    assert weights == artifacts[-1].weights
    assert len(weights) < 2 * artifacts[0].explain["memory"]["weights_bytes"]
    assert {"model.so", "shape2/model.so", "shape3/model.so"} < set(bundle.files)


def test_several_in_python(path: Path, artifacts: tuple[Artifact, ...]) -> None:
    made = compile_model(path, input_shapes={"x": _SHAPES}).manifest
    assert [v.shapes["x"] for v in made.every_variant()] == _SHAPES
    assert made.most_memory() == made.variants[1].memory
    one = compile_model(path, input_shapes={"x": _SHAPES[0]}).manifest
    assert not one.variants


def test_the_variant_that_fails_is_named(path: Path) -> None:
    with pytest.raises(InputError, match=r"became \[1,4,8,8\], .* \(with x=1,4,8,8\)$"):
        compile_model(path, input_shapes={"x": [_SHAPES[0], (1, 4, 8, 8)]})


def test_a_bundle_with_variants_is_read_back(bundle: Bundle, tmp_path: Path) -> None:
    bundle.write(tmp_path / "m.ekb")
    read = Bundle.read(tmp_path / "m.ekb")
    assert read == bundle and read.manifest.with_id() == read.manifest


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        (lambda m: m["variants"][0].update(inputs=m["inputs"]), "each set of input shapes once"),
        (lambda m: m["variants"][0]["inputs"][0].update(name="z"), "names and types"),
        (lambda m: m["variants"][0].update(library="model.so"), "not in both"),
        (lambda m: m["variants"][0].update(library="../model.so"), "plain relative path"),
        (lambda m: m["variants"][0].pop("memory"), "missing 'memory'"),
        (lambda m: m["variants"][1]["memory"].update(weights_bytes=1 << 30), "size of weights.bin"),
        (lambda m: m["variants"][1]["golden"].update(tolerances=[]), "2 numbers"),
    ],
)
def test_variants_that_do_not_fit_together(bundle: Bundle, change: Any, complaint: str) -> None:
    document = json.loads(bundle.manifest.to_json())
    change(document)
    with pytest.raises(DeviceInputError, match=complaint):
        parse_manifest(json.dumps(document).encode())


def test_one_file_has_one_use(bundle: Bundle) -> None:
    first, second = bundle.manifest.variants
    files = tuple(f for f in bundle.manifest.files if f.path != second.library)
    twice = replace(second, library=first.library)
    wrong: Manifest = replace(bundle.manifest, variants=(first, twice), files=files)
    with pytest.raises(DeviceInputError, match="one file per library and tensor"):
        parse_manifest(wrong.with_id().to_json())
