#!/usr/bin/env python3
"""Writes networks of Keras as TensorFlow Lite files with random weights, in f32 and int8.

    python scripts/keras_networks.py FOLDER [NAME ...]

Files are FOLDER/NAME-f32.tflite and FOLDER/NAME-int8.tflite; existing ones are kept. Nothing here
imports edgekit: it runs in an environment of its own, which `scripts/validate_engines` makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf
from keras import KerasTensor, layers
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

_SIDE = 224
_BATCH = 8
_SHAPE = (_SIDE, _SIDE, 3)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[*NETWORKS, []], metavar="NAME")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.names or NETWORKS:
        paths = {kind: options.folder / f"{name}-{kind}.tflite" for kind in ("f32", "int8")}
        if all(path.exists() for path in paths.values()):
            continue
        keras.utils.set_random_seed(0)
        model = NETWORKS[name]()
        images = np.random.default_rng(1).uniform(-1, 1, (_BATCH, *_SHAPE)).astype(np.float32)
        _normalize(model, images)
        for kind, path in paths.items():
            path.write_bytes(_converted(model, images if kind == "int8" else None))
            print(path.name, flush=True)


def _normalize(model: keras.Model, images: np.ndarray) -> None:
    """Takes the statistics of normalizations from images, so that no map vanishes or overflows."""
    for layer in model.layers:
        if isinstance(layer, layers.BatchNormalization):
            layer.momentum = 0.0
    model(images, training=True)


def _converted(model: keras.Model, samples: np.ndarray | None) -> bytes:
    """The file's content: in int8, also of inputs and outputs, if samples are given."""
    # A fixed batch of one: LiteRT does not give networks of unknown shapes to XNNPACK.
    function = tf.function(lambda image: model(image, training=False))
    signature = function.get_concrete_function(tf.TensorSpec((1, *_SHAPE), tf.float32))
    frozen = convert_variables_to_constants_v2(signature)
    converter = tf.lite.TFLiteConverter.from_concrete_functions([frozen])
    if samples is not None:

        def dataset() -> Iterator[list[np.ndarray]]:
            yield from ([image[np.newaxis]] for image in samples)

        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = dataset
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return bytes(converter.convert())


def _application(make: Callable[..., keras.Model], **options: object) -> Callable[[], keras.Model]:
    return lambda: make(input_shape=_SHAPE, weights=None, **options)


def _convolution(x: KerasTensor, channels: int, size: int, stride: int = 1) -> KerasTensor:
    x = layers.Conv2D(channels, size, stride, "same", use_bias=False)(x)
    return layers.BatchNormalization()(x)


def _resnet(blocks: tuple[int, ...], bottleneck: bool) -> keras.Model:
    """ResNet with the stride of a bottleneck in its 3x3 convolution, as torchvision has it."""
    image = keras.Input(_SHAPE)
    x = layers.ReLU()(_convolution(image, 64, 7, 2))
    x = layers.MaxPooling2D(3, 2, "same")(x)
    for stage, count in enumerate(blocks):
        width = 64 << stage
        for block in range(count):
            stride = 2 if stage and not block else 1
            wide = 4 * width if bottleneck else width
            short = x
            if x.shape[-1] != wide or stride > 1:
                short = _convolution(x, wide, 1, stride)
            if bottleneck:
                x = layers.ReLU()(_convolution(x, width, 1))
                x = layers.ReLU()(_convolution(x, width, 3, stride))
                x = _convolution(x, wide, 1)
            else:
                x = layers.ReLU()(_convolution(x, width, 3, stride))
                x = _convolution(x, width, 3)
            x = layers.ReLU()(layers.Add()([x, short]))
    x = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(1000)(x))


def _squeezenet() -> keras.Model:
    """SqueezeNet 1.0."""
    image = keras.Input(_SHAPE)
    x = layers.Conv2D(96, 7, 2, activation="relu")(image)
    for squeeze, expand, pooled in (
        (16, 64, True), (16, 64, False), (32, 128, False), (32, 128, True), (48, 192, False),
        (48, 192, False), (64, 256, False), (64, 256, True),
    ):  # fmt: skip
        x = layers.MaxPooling2D(3, 2, "valid")(x) if pooled else x
        x = layers.Conv2D(squeeze, 1, activation="relu")(x)
        near = layers.Conv2D(expand, 1, activation="relu")(x)
        far = layers.Conv2D(expand, 3, padding="same", activation="relu")(x)
        x = layers.Concatenate()([near, far])
    x = layers.Conv2D(1000, 1, activation="relu")(x)
    return keras.Model(image, layers.GlobalAveragePooling2D()(x))


_V3 = {"include_preprocessing": False, "dropout_rate": 0.0}
NETWORKS: Mapping[str, Callable[[], keras.Model]] = {
    "mobilenet-v1": _application(keras.applications.MobileNet),
    "mobilenet-v2": _application(keras.applications.MobileNetV2),
    "mobilenet-v3-large": _application(keras.applications.MobileNetV3Large, **_V3),
    "mobilenet-v3-small": _application(keras.applications.MobileNetV3Small, **_V3),
    "resnet-18": lambda: _resnet((2, 2, 2, 2), bottleneck=False),
    "resnet-50": lambda: _resnet((3, 4, 6, 3), bottleneck=True),
    "squeezenet": _squeezenet,
}


if __name__ == "__main__":
    main()
