"""GridSample, Resize, Upsample and RoiAlign against ONNX Runtime: every mode, padding and
alignment, and every shape that is computed from floats."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from edgekit.host.compiler.frontends import import_model  # noqa: E402
from edgekit.host.compiler.ir.evaluate import evaluate  # noqa: E402
from edgekit.host.compiler.transforms.passes.pipeline import run_passes  # noqa: E402
from tests.support.onnx_models import model, node, save, value  # noqa: E402
from tests.support.places import few_or_all  # noqa: E402

# Positions differ by a rounding of f32, which the differences between pixels multiply.
_CLOSE = {"rtol": 1e-4, "atol": 1e-4}


def _normal(*shape):
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def _compare(folder, made, inputs, constants=None, opset=19):
    ends = [value(name, data.shape) for name, data in inputs.items()]
    path = save(model([made], ends, ["y"], constants, opset), folder)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # it warns about the shapes that onnx's own inference expects
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, inputs)
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        got = evaluate(each, inputs).outputs["y"]
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, **_CLOSE)
    return want


def _grids(size, corners):
    """Positions inside and outside of an image, far outside, and halfway between pixels."""
    shape, rng = (2, *(3, 4, 2)[: len(size)], len(size)), np.random.default_rng(size)
    halves = rng.integers(-6, 16, shape) / 2
    lengths = np.array(size[::-1])
    between = (2 * halves + 1) / lengths - 1
    if corners:
        between = 2 * halves / np.maximum(lengths - 1, 1) - 1
    for grid in (rng.uniform(-1.3, 1.3, shape), rng.uniform(-6, 6, shape), between):
        yield grid.astype(np.float32)


@pytest.mark.slow
@pytest.mark.parametrize("corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(
    ("mode", "size"),
    few_or_all(
        [("nearest", (4, 5)), ("linear", (4, 5)), ("cubic", (4, 5)), ("cubic", (1, 6)),
         ("nearest", (4, 5, 3)), ("linear", (4, 5, 3))],
        [("nearest", (4, 5)), ("cubic", (4, 5)), ("linear", (4, 5, 3))],
    ),
)  # fmt: skip
def test_grid_samples_are_those_of_onnx_runtime(mode, size, padding, corners, tmp_path):
    made = node(
        "GridSample", ["x", "grid"], ["y"], mode=mode, padding_mode=padding, align_corners=corners
    )
    for grid in _grids(size, corners):
        _compare(tmp_path, made, {"x": _normal(2, 3, *size), "grid": grid}, opset=20)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_an_infinite_place_is_outside_of_the_image(mode, tmp_path):
    made = node("GridSample", ["x", "grid"], ["y"], mode=mode)
    grid = np.array([[[[np.inf, 0], [0, -np.inf], [np.nan, 0]]]], np.float32)
    path = save(model([made], [value("x", [1, 1, 3, 3]), value("grid", grid.shape)], ["y"],
                      opset=20), tmp_path)  # fmt: skip
    got = evaluate(import_model(path), {"x": _normal(1, 1, 3, 3), "grid": grid}).outputs["y"]
    np.testing.assert_array_equal(got, np.zeros((1, 1, 1, 3)))


_COORDINATES = [
    "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric",
    "tf_half_pixel_for_nn",
]  # fmt: skip
# Sizes and scales with fractional products, whole ones, and single elements.
_SCALINGS = [
    ((5, 7), (3.0, 0.5)),
    ((4, 6), (0.6, 2.0)),
    ((1, 5), (2.5, 1.7)),
    ((8, 3), (0.25, 0.4)),
]


@pytest.mark.slow
@pytest.mark.parametrize("coordinates", _COORDINATES)
@pytest.mark.parametrize(
    ("mode", "attributes"),
    [
        ("nearest", {"nearest_mode": "round_prefer_floor"}),
        ("nearest", {"nearest_mode": "round_prefer_ceil"}),
        ("nearest", {"nearest_mode": "floor"}),
        ("nearest", {"nearest_mode": "ceil"}),
        ("linear", {}),
        ("linear", {"antialias": 1}),
        ("cubic", {}),
        ("cubic", {"antialias": 1}),
        ("cubic", {"exclude_outside": 1}),
    ],
)
def test_resized_images_are_those_of_onnx_runtime(mode, attributes, coordinates, tmp_path):
    made = node(
        "Resize", ["x", "", "scales"], ["y"], mode=mode,
        coordinate_transformation_mode=coordinates, **attributes,
    )  # fmt: skip
    for size, scales in _SCALINGS:
        constants = {"scales": np.array([1, 1, *scales], np.float32)}
        _compare(tmp_path, made, {"x": _normal(1, 2, *size)}, constants)


def test_halfway_positions_are_rounded_in_32_bits(tmp_path):
    made = node("Resize", ["x", "", "scales"], ["y"], mode="nearest", nearest_mode="floor")
    for size, scale in itertools.product((3, 7, 10, 24), (0.9, 1.1, 1.7, 2.3, 3.3, 4.7)):
        constants = {"scales": np.array([1, 1, scale, 1], np.float32)}
        _compare(tmp_path, made, {"x": _normal(1, 1, size, 1)}, constants)


# The product is whole in f32 and just below that in f64.
_WHOLE_IN_F32 = [(10, 2.3), (20, 0.7), (40, 1.4), (80, 0.9), (20, 1.3)]


@pytest.mark.parametrize(("size", "scale"), _WHOLE_IN_F32)
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_are_products_in_32_bits(mode, size, scale, tmp_path):
    made = node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    constants = {"scales": np.array([1, 1, scale, scale], np.float32)}
    want = _compare(tmp_path, made, {"x": _normal(1, 1, size, size)}, constants)
    assert want.shape == (1, 1, round(size * scale), round(size * scale))


@pytest.mark.parametrize(
    ("size", "scale", "made"),
    [(20, 0.7, "Identity"), (30, 0.9, "Floor"), (25, 1.4 / 5, "Ceil")],
)
def test_sizes_computed_in_64_bits_round_in_64_bits(size, scale, made, tmp_path):
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Cast", ["shape"], ["wide"], to=onnx.TensorProto.DOUBLE),
        node("Mul", ["wide", "scale"], ["product"]),
        node(made, ["product"], ["rounded"]),
        node("Cast", ["rounded"], ["sizes"], to=onnx.TensorProto.INT64),
        node("Expand", ["one", "sizes"], ["y"]),
    ]
    constants = {"scale": np.float64(np.float32(scale)), "one": np.ones(1, np.float32)}
    path = save(model(nodes, [value("x", [size])], ["y"], constants), tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": _normal(size)})
    assert evaluate(import_model(path), {"x": _normal(size)}).outputs["y"].shape == want.shape


@pytest.mark.parametrize("opset", [7, 9])
def test_upsampled_sizes_are_products_in_32_bits(opset, tmp_path):
    scales = [1.0, 1.0, 2.3, 1.3]
    made = (
        node("Upsample", ["x"], ["y"], mode="nearest", scales=scales)
        if opset < 9
        else node("Upsample", ["x", "scales"], ["y"], mode="nearest")
    )
    constants = {"scales": np.array(scales, np.float32)} if opset >= 9 else {}
    want = _compare(tmp_path, made, {"x": _normal(1, 1, 10, 20)}, constants, opset)
    assert want.shape == (1, 1, 23, 26)


@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_a_scale_that_changes_no_size_copies(mode, tmp_path):
    made = node("Resize", ["x", "", "scales"], ["y"], mode=mode)
    constants = {"scales": np.array([1, 1, 1.1, 1.15], np.float32)}
    x = _normal(1, 2, 5, 6)
    np.testing.assert_array_equal(_compare(tmp_path, made, {"x": x}, constants), x)


def test_before_opset_11_a_smaller_image_reads_the_next_pixel(tmp_path):
    made = node("Resize", ["x", "scales"], ["y"], mode="nearest")
    for size, scale in ((7, 0.6), (9, 0.3), (4, 2.0), (5, 1.7)):
        constants = {"scales": np.array([1, 1, scale, 1], np.float32)}
        _compare(tmp_path, made, {"x": _normal(1, 1, size, 2)}, constants, opset=10)


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_antialiasing_copies_an_axis_that_keeps_its_size(mode, tmp_path):
    made = node("Resize", ["x", "", "scales"], ["y"], mode=mode, antialias=1)
    constants = {"scales": np.array([1, 1, 0.5, 1.1], np.float32)}
    _compare(tmp_path, made, {"x": _normal(1, 2, 7, 4)}, constants)


@pytest.mark.parametrize(("mode", "antialias"), [("linear", 0), ("linear", 1), ("cubic", 1)])
@pytest.mark.parametrize("dtype", [np.dtype("u1"), np.dtype("i4")])
def test_integers_are_resized(dtype, mode, antialias, tmp_path):
    made = node("Resize", ["x", "", "scales"], ["y"], mode=mode, antialias=antialias)
    proto = model(
        [made], [value("x", [1, 3, 8, 6], dtype)], ["y"],
        {"scales": np.array([1, 1, 0.7, 1.5], np.float32)}, 19,
    )  # fmt: skip
    proto.graph.output[0].CopyFrom(value("y", [1, 3, 5, 9], dtype))
    path = save(proto, tmp_path)
    x = np.random.default_rng(4).integers(0, 256, (1, 3, 8, 6)).astype(dtype)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    got = evaluate(import_model(path), {"x": x}).outputs["y"]
    assert got.dtype == want.dtype
    # ONNX Runtime's sums differ in their last bit, and it rounds after each axis.
    np.testing.assert_allclose(got.astype(int), want.astype(int), rtol=0, atol=1)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("sizes", (4, 5)),
        ("sizes", (6, 3)),  # an axis that keeps its size is not cropped
        ("scales", (1.0, 0.5)),
        ("scales", (1.1, 2.0)),  # but it is by such a scale
        ("sizes", (6, 7)),  # nor is anything if all do
        ("scales", (1.1, 1.0)),
    ],
)
def test_cropped_images_are_those_of_onnx_runtime(name, asked, mode, tmp_path):
    inputs = ["x", "roi", "", "sizes"] if name == "sizes" else ["x", "roi", "scales"]
    made = node(
        "Resize", inputs, ["y"], mode=mode, extrapolation_value=2.5,
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    roi = np.array([0, 0, 0.25, -0.2, 1, 1, 0.9, 0.6], np.float32)
    full = (1, 2, *asked) if name == "sizes" else (1, 1, *asked)
    constants = {"roi": roi, name: np.array(full, np.int64 if name == "sizes" else np.float32)}
    _compare(tmp_path, made, {"x": _normal(1, 2, 6, 7)}, constants)


@pytest.mark.parametrize("dtype", [np.dtype("u1"), np.dtype("i4")])
def test_integers_are_cropped(dtype, tmp_path):
    made = node(
        "Resize", ["x", "roi", "", "sizes"], ["y"], mode="linear",
        coordinate_transformation_mode="tf_crop_and_resize",
    )  # fmt: skip
    roi = np.array([0, 0, 0.2, -0.2, 1, 1, 0.9, 0.7], np.float32)
    constants = {"roi": roi, "sizes": np.array([1, 3, 5, 4])}
    proto = model([made], [value("x", [1, 3, 8, 6], dtype)], ["y"], constants, 19)
    proto.graph.output[0].CopyFrom(value("y", [1, 3, 5, 4], dtype))
    path = save(proto, tmp_path)
    x = np.random.default_rng(4).integers(0, 256, (1, 3, 8, 6)).astype(dtype)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, {"x": x})
    got = evaluate(import_model(path), {"x": x}).outputs["y"]
    assert got.dtype == want.dtype
    # ONNX Runtime's sums differ in their last bit before they are truncated.
    np.testing.assert_allclose(got.astype(int), want.astype(int), rtol=0, atol=1)


def test_quantized_values_are_resized_as_integers(tmp_path):
    """As in files that ONNX Runtime's quantizer writes without pairs of Q and DQ."""
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("Resize", ["q", "", "scales"], ["r"], mode="linear"),
        node("DequantizeLinear", ["r", "scale", "zero"], ["y"]),
    ]
    constants = {
        "scale": np.float32(0.05),
        "zero": np.int8(3),
        "scales": np.array([1, 1, 2, 4], np.float32),
    }
    constants = {name: np.asarray(data) for name, data in constants.items()}
    path = save(model(nodes, [value("x", [1, 3, 8, 8])], ["y"], constants, 13), tmp_path)
    x = {"x": _normal(1, 3, 8, 8)}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (want,) = session.run(None, x)
    graph = import_model(path)
    for each in (graph, run_passes(graph)[0]):
        np.testing.assert_allclose(evaluate(each, x).outputs["y"], want, rtol=1e-6)


@pytest.mark.parametrize("policy", ["not_larger", "not_smaller"])
def test_kept_aspect_ratios_round_in_32_bits(policy, tmp_path):
    made = node(
        "Resize", ["x", "", "", "sizes"], ["y"], mode="linear", axes=[2, 3],
        keep_aspect_ratio_policy=policy,
    )  # fmt: skip
    for size, asked in (
        ((5, 7), (3, 9)),
        ((10, 4), (25, 9)),
        ((6, 14), (15, 35)),
        ((3, 9), (7, 7)),
    ):
        constants = {"sizes": np.array(asked)}
        _compare(tmp_path, made, {"x": _normal(1, 1, *size)}, constants, opset=18)


@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("opset", [10, 16])
def test_regions_are_aligned_as_their_opset_says(opset, mode, tmp_path):
    made = node(
        "RoiAlign", ["x", "regions", "images"], ["y"], mode=mode, sampling_ratio=2,
        output_height=3, output_width=2, spatial_scale=0.5,
    )  # fmt: skip
    regions = np.array([[1, 2, 9, 12], [3.5, 0, 14, 7.25]], np.float32)
    constants = {"regions": regions, "images": np.array([0, 1])}
    _compare(tmp_path, made, {"x": _normal(2, 3, 9, 11)}, constants, opset)


def test_an_axis_of_one_pixel_is_sampled_in_the_middle(tmp_path):
    """As by torch; ONNX Runtime takes the end."""
    made = node("AffineGrid", ["t", "size"], ["y"], align_corners=1)
    constants = {"size": np.int64([1, 1, 1, 3])}
    path = save(model([made], [value("t", (1, 2, 3))], ["y"], constants, 20), tmp_path)
    theta = np.float32([[[1, 0, 0], [0, 1, 0]]])
    found = evaluate(import_model(path), {"t": theta}).outputs["y"]
    np.testing.assert_array_equal(found, [[[[-1, 0], [0, 0], [1, 0]]]])
