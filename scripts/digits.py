"""Trains a small convolutional network for handwritten digits; writes it, samples and labels.

The images come from scikit-learn: 1,797 of 8 x 8 pixels from 0 to 16 with their classes, the test
set of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI, 1998, CC BY
4.0):

    pip download --no-deps scikit-learn && unzip scikit_learn-*.whl
    python scripts/digits.py sklearn/datasets/data/digits.csv.gz -o digits
    edgekit quantize digits/digits.onnx --samples digits/digits.npz --evaluate digits/labels.txt

The network is trained on the first 1,200; the others are held out and written as samples. It takes
`x`, f32 [1, 1, 8, 8] from 0 to 1, and returns `scores`, f32 [1, 10]. The random seed is fixed, so
that a given machine reproduces the same file. Needs the extra `onnx`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.lib.stride_tricks import sliding_window_view
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, Any]

_SIZE, _BRIGHTEST, _CLASSES = 8, 16, 10
_SEEN = 1200  # images in the training set
_CHANNELS = (16, 32)
_EPOCHS, _BATCH, _RATE = 25, 50, 3e-3
_OPSET = 17


def read_digits(path: Path) -> tuple[Array, Array]:
    """Images, f32 [n, 1, 8, 8] from 0 to 1, and classes, s64 [n]. Raises ValueError if the table
    has a different format."""
    rows = np.loadtxt(path, delimiter=",", ndmin=2)
    if rows.shape[1] != _SIZE**2 + 1 or len(rows) <= _SEEN:
        raise ValueError(
            f"expected more than {_SEEN} rows of {_SIZE**2 + 1} numbers, found {rows.shape}"
        )
    images = rows[:, :-1].reshape(-1, 1, _SIZE, _SIZE) / _BRIGHTEST
    return images.astype(np.float32), rows[:, -1].astype(np.int64)


def _he_weights(rng: np.random.Generator, *shape: int) -> Array:
    """Weights initialized as in He et al. (2015)."""
    scale = np.sqrt(2 / np.prod(shape[1:]))
    return (rng.standard_normal(shape) * scale).astype(np.float32)


def _im2col(x: Array) -> Array:
    """im2col: [n, h, w, 9 c] of x [n, c, h, w], 3 x 3 windows with zero padding."""
    n, _, h, w = x.shape
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    found = sliding_window_view(padded, (3, 3), axis=(2, 3))
    return found.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, -1)


class Network:
    """conv 3 x 3 - ReLU - 2 x 2 max pool - conv 3 x 3 - ReLU - 2 x 2 max pool - dense."""

    def __init__(self, rng: np.random.Generator) -> None:
        first, second = _CHANNELS
        flat = second * (_SIZE // 4) ** 2
        shapes = ((first, 1, 3, 3), (second, first, 3, 3), (_CLASSES, flat))
        self.weights = [_he_weights(rng, *shape) for shape in shapes]
        self.biases = [np.zeros(shape[0], np.float32) for shape in shapes]
        self._moments = [(np.zeros_like(p), np.zeros_like(p)) for p in self._parameters]
        self._steps = 0

    @property
    def _parameters(self) -> list[Array]:
        return [*self.weights, *self.biases]

    def scores(self, x: Array) -> Array:
        """[n, 10] of x [n, 1, 8, 8]."""
        return self._forward(x)[-1][1]

    def _forward(self, x: Array) -> list[tuple[Array, Array]]:
        """Each layer's im2col input and its output before ReLU."""
        layers = []
        for w, b in zip(self.weights[:2], self.biases[:2], strict=True):
            windows = _im2col(x)
            made = windows @ w.reshape(len(w), -1).T + b
            layers.append((windows, made))
            x = _max_pool(np.maximum(made, 0).transpose(0, 3, 1, 2))
        rows = x.reshape(len(x), -1)
        return [*layers, (rows, rows @ self.weights[2].T + self.biases[2])]

    def fit(self, x: Array, classes: Array) -> None:
        """One Adam step (Kingma and Ba, 2015) on the cross-entropy loss."""
        layers = self._forward(x)
        shares = np.exp(layers[2][1] - layers[2][1].max(1, keepdims=True))
        slope = shares / shares.sum(1, keepdims=True)
        slope[np.arange(len(x)), classes] -= 1
        slope /= len(x)
        weights, biases = [slope.T @ layers[2][0]], [slope.sum(0)]
        side = _SIZE // 4
        back = (slope @ self.weights[2]).reshape(len(x), -1, side, side)
        for at in (1, 0):
            windows, made = layers[at]
            slope = _max_pool_gradient(back, np.maximum(made, 0)) * (made > 0)
            flat = slope.reshape(-1, slope.shape[-1])
            gradient = flat.T @ windows.reshape(len(flat), -1)
            weights.insert(0, gradient.reshape(self.weights[at].shape))
            biases.insert(0, flat.sum(0))
            turned = self.weights[at][:, :, ::-1, ::-1].transpose(1, 0, 2, 3)
            back = _im2col(slope.transpose(0, 3, 1, 2)) @ turned.reshape(len(turned), -1).T
            back = back.transpose(0, 3, 1, 2)
        self._adam_step([*weights, *biases])

    def _adam_step(self, slopes: list[Array]) -> None:
        self._steps += 1
        for value, slope, (mean, square) in zip(
            self._parameters, slopes, self._moments, strict=True
        ):
            mean += 0.1 * (slope - mean)
            square += 0.001 * (slope**2 - square)
            far = np.sqrt(square / (1 - 0.999**self._steps)) + 1e-8
            value -= _RATE * mean / (1 - 0.9**self._steps) / far


def _pooling_windows(x: Array) -> Array:
    """[n, c, h / 2, w / 2, 4] of x [n, c, h, w]."""
    n, c, h, w = x.shape
    parts = x.reshape(n, c, h // 2, 2, w // 2, 2).transpose(0, 1, 2, 4, 3, 5)
    return parts.reshape(n, c, h // 2, w // 2, 4)


def _max_pool(x: Array) -> Array:
    return _pooling_windows(x).max(-1)


def _max_pool_gradient(slope: Array, made: Array) -> Array:
    """Gradient of max pooling, [n, h, w, c]: goes to the first maximum in made [n, h, w, c]."""
    n, h, w, c = made.shape
    largest = _pooling_windows(made.transpose(0, 3, 1, 2)).argmax(-1)
    parts = (np.arange(4) == largest[..., None]) * slope[..., None]
    whole = parts.reshape(n, c, h // 2, w // 2, 2, 2).transpose(0, 2, 4, 3, 5, 1)
    return whole.reshape(n, h, w, c).astype(np.float32)


def trained(x: Array, classes: Array) -> Network:
    """Train a network on images [n, 1, 8, 8] and their classes [n]."""
    rng = np.random.default_rng(0)
    network = Network(rng)
    for _ in range(_EPOCHS):
        for batch in np.array_split(rng.permutation(len(x)), max(len(x) // _BATCH, 1)):
            network.fit(x[batch], classes[batch])
    return network


def model_of(network: Network) -> onnx.ModelProto:
    nodes, x = [], "x"
    for at in (0, 1):
        inputs = [x, f"w{at}", f"b{at}"]
        nodes += [
            helper.make_node("Conv", inputs, [f"conv{at}"], f"conv{at}", pads=[1] * 4),
            helper.make_node("Relu", [f"conv{at}"], [f"relu{at}"], f"relu{at}"),
            helper.make_node(
                "MaxPool", [f"relu{at}"], [f"pool{at}"], f"pool{at}", kernel_shape=[2, 2],
                strides=[2, 2],
            ),
        ]  # fmt: skip
        x = f"pool{at}"
    nodes += [
        helper.make_node("Flatten", [x], ["flat"], "flat"),
        helper.make_node("Gemm", ["flat", "w2", "b2"], ["scores"], "scores", transB=1),
    ]
    constants = {f"w{i}": w for i, w in enumerate(network.weights)}
    constants |= {f"b{i}": b for i, b in enumerate(network.biases)}
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 1, _SIZE, _SIZE))],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, (1, _CLASSES))],
        [numpy_helper.from_array(np.ascontiguousarray(v), n) for n, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", _OPSET)], ir_version=8)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("digits", type=Path, help="digits.csv.gz of scikit-learn")
    parser.add_argument("-o", "--output", type=Path, default=Path("digits"), help="a folder")
    options = parser.parse_args()
    try:
        images, classes = read_digits(options.digits)
    except (OSError, EOFError, ValueError) as error:
        print(f"digits: {options.digits}: {error}", file=sys.stderr)
        return 2
    network = trained(images[:_SEEN], classes[:_SEEN])
    unseen, labels = images[_SEEN:], classes[_SEEN:]
    right = np.mean(network.scores(unseen).argmax(1) == labels)
    options.output.mkdir(parents=True, exist_ok=True)
    onnx.save(model_of(network), options.output / "digits.onnx")
    np.savez_compressed(options.output / "digits.npz", x=unseen)
    (options.output / "labels.txt").write_text("".join(f"{label}\n" for label in labels))
    print(f"{right:.1%} of {len(labels)} digits right that it has not seen")
    return 0


if __name__ == "__main__":
    sys.exit(main())
