"""Reads config.json and preprocessor_config.json, which exporters of Hugging Face's models write
next to the model's file. timm's config.json has both."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edgekit.host.compiler.sidecars import CONFIG, PIXELS, config_folder, read_sidecar

_MOST_BYTES = 1 << 20
_MOST_LABEL = 128  # characters
# The head of each kind of model that has boxes and logits.
_HEADS = {
    **dict.fromkeys(("detr", "yolos", "table-transformer"), "detr"),
    **dict.fromkeys(("conditional_detr", "deformable_detr", "dab-detr"), "deformable-detr"),
    **dict.fromkeys(("rt_detr", "rt_detr_v2", "d_fine"), "rt-detr"),
}


@dataclass(frozen=True)
class Config:
    """The head of a detector, the number of classes, their labels, and what becomes of a picture;
    empty if unknown."""

    head: str = ""
    classes: int = 0
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    crops: bool = False


def read_config(path: Path) -> Config:
    """The files next to a model; empty if there are none that can be read."""
    about, pixels = (read_json(config_folder(path) / name) for name in (CONFIG, PIXELS))
    if isinstance(own := about.get("pretrained_cfg"), dict):
        return _timm(about, own)
    kind, names = about.get("model_type"), about.get("id2label")
    if not isinstance(kind, str) or not isinstance(names, dict):
        return Config()
    labels = tuple(str(names.get(str(i), ""))[:_MOST_LABEL] for i in range(len(names)))
    if not all(map(str.isprintable, labels)):
        labels = ()
    mean, scale = _range(pixels)
    crops = pixels.get("do_center_crop") is True
    return Config(_HEADS.get(kind, ""), len(names), labels, mean, scale, crops)


def _timm(about: dict[str, Any], own: dict[str, Any]) -> Config:
    """The config of timm's classifiers, which are trained on crops of pictures."""
    count, names = about.get("num_classes"), about.get("label_names")
    if not (isinstance(names, list) and len(names) == count and all(map(_is_label, names))):
        names = []
    pixels = {"do_normalize": True, "image_mean": own.get("mean"), "image_std": own.get("std")}
    classes = count if type(count) is int else 0
    return Config("", classes, tuple(names), *_range(pixels), crops=True)


def _is_label(name: Any) -> bool:
    return isinstance(name, str) and len(name) <= _MOST_LABEL and name.isprintable()


def _range(pixels: dict[str, Any]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and scale of pixels from 0 to 255."""
    whole, factor = 255.0, pixels.get("rescale_factor")
    if pixels.get("do_rescale") is False:
        whole = 1.0
    elif _is_number(factor) and factor:
        whole = 1 / factor
    if pixels.get("do_normalize") is not True:
        return ((0.0,), (whole,)) if pixels else ((), ())
    mean, scale = _colors(pixels.get("image_mean")), _colors(pixels.get("image_std"))
    if not mean or not scale or 0 in scale:
        return (), ()
    return tuple(whole * v for v in mean), tuple(whole * v for v in scale)


def _colors(values: Any) -> tuple[float, ...]:
    known = isinstance(values, list) and len(values) in (1, 3) and all(map(_is_number, values))
    return tuple(values) if known else ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object; empty if there is none that can be read."""
    try:
        found = json.loads(read_sidecar(file, _MOST_BYTES) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
