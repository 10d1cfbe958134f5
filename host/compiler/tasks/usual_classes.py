"""Classifiers that are known by the names of their files, or by their sizes: labels and pixels."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from edgekit.host.compiler.tasks.ends import InputImage
from edgekit.host.compiler.tasks.usual_pixels import (
    BGR_BYTES,
    CAFFE_PIXELS,
    IMAGENET_PIXELS,
    lower_name,
)

_SIGNED: dict[str, Any] = {"mean": (127.5,), "scale": (127.5,)}


@dataclass(frozen=True)
class UsualClasses:
    """`whose` labels and pixels they are, as authors' programs have them. The file's `name` begins
    so, and its picture has this `size`: height, width and channels; 0 for any."""

    whose: str
    name: str
    labels: tuple[str, ...]
    pixels: dict[str, Any]
    size: tuple[int, int, int] = (0, 0, 0)


def _of(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_PERSON = ("no person", "person")
_USUAL = (
    UsualClasses(
        "FER+ for gray faces", "",
        _of("neutral happiness surprise sadness anger disgust fear contempt"),
        {"mean": (0.0,), "scale": (1.0,)}, (64, 64, 1)),  # Barsoum et al., 2016
    UsualClasses(
        "mini_XCEPTION for gray faces", r"(fer2013_)?mini_xception",
        _of("angry disgust fear happy sad surprise neutral"), _SIGNED, (64, 64, 1)),
    UsualClasses(
        "mini_XCEPTION for gray faces", r"gender_mini_xception", _of("woman man"), _SIGNED,
        (64, 64, 1)),
    UsualClasses(
        "HSEmotion for faces", r"enet_b[02]_8_?(?!.*va_mtl)",
        _of("anger contempt disgust fear happiness neutral sadness surprise"), IMAGENET_PIXELS),
    UsualClasses(
        "HSEmotion for faces", r"enet_b[02]_7",
        _of("anger disgust fear happiness neutral sadness surprise"), IMAGENET_PIXELS),
    UsualClasses(
        "ONNX' model zoo for faces", "age_googlenet",
        _of("0-2 4-6 8-12 15-20 25-32 38-43 48-53 60-100"), CAFFE_PIXELS, (224, 224, 3)),
    UsualClasses(
        "ONNX' model zoo for faces", "gender_googlenet", _of("male female"),
        CAFFE_PIXELS, (224, 224, 3)),
    UsualClasses(
        "MNIST for digits", r"mnist(_\d+)?(_int8)?$", _of("0 1 2 3 4 5 6 7 8 9"),
        {"mean": (0.0,), "scale": (255.0,)}, (28, 28, 1)),
    UsualClasses(
        "Fashion-MNIST", r"fashion_?mnist",
        ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag",
         "ankle boot"),
        {"mean": (0.0,), "scale": (255.0,)}, (28, 28, 1)),
    UsualClasses(
        "MLPerf Tiny for persons", "vww_96", _PERSON, {"mean": (0.0,), "scale": (255.0,)},
        (96, 96, 3)),
    UsualClasses(
        "MLPerf Tiny for CIFAR-10", "pretrainedresnet",
        _of("airplane automobile bird cat deer dog frog horse ship truck"),
        {"mean": (0.0,), "scale": (1.0,)}, (32, 32, 3)),
    UsualClasses("TensorFlow Lite Micro for persons", "person_detect", _PERSON, {}, (96, 96, 1)),
    UsualClasses(
        "MiniFASNet for faces", r".*minifasnet", _of("fake real fake"), BGR_BYTES),
    UsualClasses(
        "OpenCV's zoo for faces", r"facial_expression_recognition_mobilefacenet",
        _of("angry disgust fearful happy neutral sad surprised"), _SIGNED, (112, 112, 3)),
)  # fmt: skip


def usual_classes(stem: str, image: InputImage, count: int) -> UsualClasses | None:
    """What a file of this name may be that gives `count` scores; None if it is unknown."""
    size, lower = (image.height, image.width, image.channels), lower_name(stem)
    fits = (
        usual
        for usual in _USUAL
        if len(usual.labels) == count
        and re.match(usual.name, lower)
        and all(n in (0, m) for n, m in zip(usual.size, size, strict=True))
    )
    return next(fits, None)
