"""Reads config.json and preprocessor_config.json, which exporters of Hugging Face's models write
next to the model's file, PaddleDetection's infer_cfg.yml or MMDeploy's pipeline.json. timm's
config.json has both."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import (
    BGR,
    CORNER,
    CROP,
    CUBIC,
    FILTERS,
    LETTERBOX,
    LINEAR,
    MOST_ZOOM,
    RGB,
    STRETCH,
)
from edgekit.host.compiler.sidecars import (
    CONFIG,
    META,
    PADDLE_FILES,
    PIPELINE,
    PIXELS,
    config_folder,
    read_sidecar,
    read_yaml_sidecar,
)

_MOST_BYTES = 1 << 20
_MOST_LABEL = 128  # characters
_MOST_SIDE = 1 << 14  # pixels
_MOST_NUMBER = 1e12  # also less than what floats hold
_OF_PICTURES = {"image_mean", "do_rescale", "rescale_factor", "image_processor_type"}  # any of them
_CLASSIFIES = "ForImageClassification"  # the end of the names of architectures
_UNLISTED = ("LABEL_0", "LABEL_1")  # which transformers does not write
_TIMM_FITS = {"center": CROP, "squash": STRETCH, "border": LETTERBOX}
_FILTERS = {2: LINEAR, 3: CUBIC}  # by the numbers of Pillow
_SQUARE = ("ViT", "DeiT", "Deit", "Beit", "BEiT", "Swin")  # a number is the size of both edges
# ConvNext's pictures below this size are cut to this share; LeViT's are made larger before.
_CONVNEXT_WHOLE, _CONVNEXT_SHARE, _LEVIT_MORE = 384, 224 / 256, 256 / 224
_POOLFORMER_SHARE = 0.9
PADDLE = "paddle"  # kind and head of what PaddleDetection exports
MMDEPLOY = "mmdeploy"  # the same of MMDeploy
MMPRETRAIN = "mmpretrain"  # kind of classifiers that MMDeploy exports
# What its detectors do with pictures, and steps that change no pixels.
_MMDEPLOY_STEPS = {
    "Resize", "Pad", "Normalize", "LoadImageFromFile", "LoadAnnotations", "DefaultFormatBundle",
    "ImageToTensor", "Collect", "PackDetInputs",
}  # fmt: skip
_CLASSIFIER_STEPS = {
    "Resize", "ResizeEdge", "CenterCrop", "Normalize", "LoadImageFromFile", "ImageToTensor",
    "Collect", "PackInputs",
}  # fmt: skip
_PADDLE_CLASSIFIER_STEPS = {
    "DecodeImage", "ResizeImage", "CropImage", "NormalizeImage", "ToCHWImage", "KeepKeys",
}  # fmt: skip
POINTS = ("vitpose",)  # kinds of models that find points
# The head of each kind of model that has boxes and logits.
_HEADS = {
    **dict.fromkeys(("detr", "yolos", "table-transformer"), "detr"),
    **dict.fromkeys(
        ("conditional_detr", "deformable_detr", "dab-detr", "lw_detr", "rf_detr"), "deformable-detr"
    ),
    **dict.fromkeys(("rt_detr", "rt_detr_v2", "d_fine"), "rt-detr"),
}


@dataclass(frozen=True)
class Config:
    """The kind of model, the head of a detector, the number of classes, their labels, and what
    becomes of a picture, all from `file`; empty if unknown. `placing`: fields of a TaskSpec, for
    what is not a detector, and for MMDeploy's detectors; `filter`: how pixels are resized; `side`:
    the pixels of a square input; `independent`: several classes may be right at once."""

    kind: str = ""
    head: str = ""
    classes: int = 0
    labels: tuple[str, ...] = ()
    mean: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()
    channels: str = RGB
    placing: Mapping[str, Any] = field(default_factory=dict)
    classifies: bool = False
    file: str = CONFIG
    side: int = 0
    independent: bool = False
    filter: str = ""


def read_config(path: Path) -> Config:
    """The files next to a model; empty if there are none that can be read."""
    about, pixels = (read_json(config_folder(path) / name) for name in (CONFIG, PIXELS))
    if isinstance(own := about.get("pretrained_cfg"), dict):
        return _timm(about, own)
    if not about and (other := _paddle(path) or _mmdeploy(path) or _deepghs(path)):
        return other
    kind, names = about.get("model_type"), about.get("id2label")
    channels = BGR if pixels.get("do_flip_channel_order") is True else RGB
    placing, filter_ = _placing(pixels), _filter(pixels)
    if not isinstance(kind, str):
        if not _OF_PICTURES & {*pixels}:
            return Config()
        return Config("", "", 0, (), *_range(pixels), channels, placing, file=PIXELS,
                      side=_side(pixels), filter=filter_)  # fmt: skip
    made = about.get("architectures")
    classifies = isinstance(made, list) and any(str(n).endswith(_CLASSIFIES) for n in made)
    names = names if isinstance(names, dict) else {}
    labels = tuple(str(names.get(str(i), ""))[:_MOST_LABEL] for i in range(len(names)))
    if not all(map(str.isprintable, labels)):
        labels = ()
    labels = _UNLISTED if classifies and not names else labels
    head = _HEADS.get(kind, "")
    return Config(
        kind, head, len(names), labels, *_range(pixels), channels, placing, classifies,
        independent=about.get("problem_type") == "multi_label_classification",
        filter=filter_, side=_side(pixels),
    )  # fmt: skip


def stated_pixels(path: Path) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and scale in preprocessor_config.json next to a model; empty if it is of no pictures."""
    pixels = read_json(config_folder(path) / PIXELS)
    return _range(pixels) if _OF_PICTURES & {*pixels} else ((), ())


def _side(pixels: dict[str, Any]) -> int:
    """The pixels of a square input, which is a crop or the whole picture; 0 for others."""
    crops = pixels.get("do_center_crop") is True
    size = pixels.get("crop_size" if crops else "size")
    size = size if isinstance(size, dict) else {"height": size, "width": size}
    height, width = size.get("height"), size.get("width")
    return height if type(height) is int and height == width and height <= _MOST_SIDE else 0


def _placing(pixels: dict[str, Any]) -> dict[str, Any]:
    """Resizing of the shorter or of both edges, and then a crop."""
    size, crop = pixels.get("size"), _edge(pixels.get("crop_size"))
    crops = pixels.get("do_center_crop") is True
    whose = str(pixels.get("image_processor_type") or pixels.get("feature_extractor_type"))
    if not isinstance(size, dict):
        both = whose.startswith(_SQUARE) or not crops
        size = {"height" if both else "shortest_edge": size}
    shorter = _positive(size.get("shortest_edge"))
    resized = shorter or _positive(size.get("height"))
    if not resized or pixels.get("do_resize") is False:
        return {}
    if whose.startswith("ConvNext"):
        share = _positive(pixels.get("crop_pct", _CONVNEXT_SHARE))
        whole = resized >= _CONVNEXT_WHOLE or not share
        return {"fit": STRETCH} if whole else _zoomed(CROP, 1 / share)
    if whose.startswith("PoolFormer"):
        return _zoomed(CROP, 1 / (_positive(pixels.get("crop_pct")) or _POOLFORMER_SHARE))
    if not crops:
        return {"fit": STRETCH}  # files with a fixed size take pictures of any proportions so
    if whose.startswith("Levit"):
        resized *= _LEVIT_MORE
    return _zoomed(CROP if shorter else STRETCH, resized / crop if crop else 1)


def _filter(pixels: dict[str, Any]) -> str:
    """Files without a number are of the usual bilinear resizing by Pillow."""
    number = pixels.get("resample", 2) if pixels else 0
    return _FILTERS.get(number, "") if isinstance(number, int) else ""


def _edge(size: Any) -> float:
    """The height of a crop; 0 if unknown."""
    return _positive(size.get("height") if isinstance(size, dict) else size)


def _positive(value: Any) -> float:
    """A number above 0; 0 for anything else."""
    return float(value) if _is_number(value) and value > 0 else 0.0


def _zoomed(fit: str, zoom: float) -> dict[str, Any]:
    """Empty for a crop that is larger than the picture, or much smaller."""
    return {"fit": fit, "zoom": zoom} if 1 <= zoom <= MOST_ZOOM else {}


def _timm(about: dict[str, Any], own: dict[str, Any]) -> Config:
    """The config of timm's classifiers, which are trained on crops of pictures."""
    count, names = about.get("num_classes"), about.get("label_names")
    if not (isinstance(names, list) and len(names) == count and all(map(_is_label, names))):
        names = []
    pixels = {"do_normalize": True, "image_mean": own.get("mean"), "image_std": own.get("std")}
    classes = count if type(count) is int else 0
    share, fit = _positive(own.get("crop_pct")), _TIMM_FITS.get(str(own.get("crop_mode", "center")))
    placing = _zoomed(fit, 1 / share if share else 1.0) if fit else {}
    mean, scale = _range(pixels)
    if fit == LETTERBOX and mean:
        placing["fill"] = round(min(max(sum(mean) / len(mean), 0), 255))
    known = classes > 0
    named = own.get("interpolation")
    filter_ = named if named in FILTERS else LINEAR
    return Config(
        "timm", "", classes, tuple(names), mean, scale, RGB, placing, known, filter=filter_
    )


def _paddle(path: Path) -> Config | None:
    """What PaddleDetection's exporter writes; None unless pictures are stretched to the input."""
    folder = config_folder(path)
    name = next((name for name in PADDLE_FILES if (folder / name).is_file()), PADDLE_FILES[0])
    about = read_yaml_sidecar(folder / name)
    steps, names = about.get("Preprocess"), about.get("label_list")
    if "PreProcess" in about:
        return _paddle_classifier(about, name)
    if not isinstance(steps, list) or not isinstance(names, list):
        return None
    known = {str(step.get("type")): step for step in steps if isinstance(step, dict)}
    pixels = known.get("NormalizeImage")
    if known.get("Resize", {}).get("keep_ratio") is not False or pixels is None:
        return None
    if {*known} - {"Resize", "NormalizeImage", "Permute"}:
        return None
    labels = tuple(map(str, names)) if all(_is_label(str(name)) for name in names) else ()
    mean, scale = _range(
        {
            "do_rescale": pixels.get("is_scale", True),
            "do_normalize": pixels.get("norm_type", "mean_std") == "mean_std",
            "image_mean": pixels.get("mean"),
            "image_std": pixels.get("std"),
        }
    )
    return Config(PADDLE, PADDLE, len(names), labels, mean, scale, file=name)


def _paddle_classifier(about: dict[str, Any], file: str) -> Config | None:
    """What PaddleX writes for a classifier; None for others and unknown steps."""
    before, after = about["PreProcess"], about.get("PostProcess")
    listed = before.get("transform_ops") if isinstance(before, dict) else None
    best = after.get("Topk") if isinstance(after, dict) else None
    names = best.get("label_list") if isinstance(best, dict) else None
    if not isinstance(listed, list) or not isinstance(names, list):
        return None
    steps = {name: own or {} for each in listed if isinstance(each, dict)
             for name, own in each.items()}  # fmt: skip
    if {*steps} - _PADDLE_CLASSIFIER_STEPS or not all(isinstance(n, dict) for n in steps.values()):
        return None
    resize, pixels = steps.get("ResizeImage", {}), steps.get("NormalizeImage", {})
    mean, scale = _range(
        {
            "rescale_factor": pixels.get("scale"),
            "do_normalize": True,
            "image_mean": pixels.get("mean"),
            "image_std": pixels.get("std"),
        }
    )
    shorter = _positive(resize.get("resize_short"))
    crop = _positive(steps.get("CropImage", {}).get("size"))
    placing = _zoomed(CROP, shorter / crop) if shorter and crop else {"fit": STRETCH}
    if not scale or bool(shorter) != bool(crop):
        return None
    labels = tuple(map(str, names)) if all(_is_label(str(name)) for name in names) else ()
    return Config(
        "paddle-classifier", "", len(names), labels, mean, scale, RGB, placing, True, file
    )


def _deepghs(path: Path) -> Config | None:
    """What is next to deepghs' classifiers of stretched pictures; None for others."""
    names = read_json(config_folder(path) / META).get("labels")
    if not isinstance(names, list) or not names or not all(_is_label(str(name)) for name in names):
        return None
    halves = {"do_normalize": True, "image_mean": [0.5] * 3, "image_std": [0.5] * 3}
    fit = {"fit": STRETCH}
    return Config(
        "deepghs", "", len(names), tuple(map(str, names)), *_range(halves), RGB, fit, True, META
    )


def _mmdeploy(path: Path) -> Config | None:
    """What MMDeploy writes for a detector or a classifier; None for others and unknown steps."""
    about = read_json(config_folder(path) / PIPELINE).get("pipeline")
    tasks = about.get("tasks") if isinstance(about, dict) else None
    tasks = tasks if isinstance(tasks, list) else []
    modules = {str(task.get("module")): task for task in tasks if isinstance(task, dict)}
    steps = modules.get("Transform", {}).get("transforms")
    if not isinstance(steps, list):
        return None
    known = {str(step.get("type")): step for step in steps if isinstance(step, dict)}
    if {"mmpretrain", "mmcls"} & {*modules}:
        return _mmpretrain(known)
    if "mmdet" not in modules or {*known} - _MMDEPLOY_STEPS:
        return None
    resize, pad, pixels = (known.get(name, {}) for name in ("Resize", "Pad", "Normalize"))
    mean, scale = _normalized(known)
    keeps = resize.get("keep_ratio")
    if type(keeps) is not bool or not scale:
        return None
    value = pad.get("pad_val", 0)
    value = value.get("img", 0) if isinstance(value, dict) else value
    fill = value[0] if isinstance(value, list) and value else value
    if not _is_number(fill) or not 0 <= fill <= 255:
        return None
    placing: dict[str, Any] = {"fit": CORNER, "fill": round(fill)} if keeps else {"fit": STRETCH}
    placing["channels"] = RGB if pixels.get("to_rgb") is True else BGR
    size = pad.get("size") or resize.get("size")
    side = size[0] if isinstance(size, list) and size and size == size[:1] * 2 else 0
    side = side if type(side) is int and 0 < side <= _MOST_SIDE else 0
    return Config(MMDEPLOY, MMDEPLOY, 0, (), mean, scale, RGB, placing, False, PIPELINE, side)


def _mmpretrain(known: dict[str, dict[str, Any]]) -> Config | None:
    """Of a classifier: both edges, or the shorter one, become a size, of which the center is
    taken."""
    edge = known.get("ResizeEdge")
    resize = known.get("Resize", {}) if edge is None else edge
    mean, scale = _normalized(known)
    if {*known} - _CLASSIFIER_STEPS or not scale or "Normalize" not in known:
        return None
    size = resize.get("size", resize.get("scale"))
    sides = size if isinstance(size, list) else [size, size if edge is None else -1]
    shorter = sides[1:] == [-1] or resize.get("edge") == "short"
    cut = known.get("CenterCrop", {}).get("crop_size", sides[0])
    crop = _positive(cut[0] if isinstance(cut, list) and cut else cut)
    if not crop or not (shorter or sides == sides[:1] * 2):
        return None
    placing = _zoomed(CROP if shorter else STRETCH, _positive(sides[0]) / crop)
    placing["channels"] = RGB if known["Normalize"].get("to_rgb") is True else BGR
    return Config(MMPRETRAIN, "", 0, (), mean, scale, RGB, placing, True, PIPELINE)


def _normalized(known: dict[str, dict[str, Any]]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and scale by a step of MMDeploy."""
    pixels = known.get("Normalize", {})
    return _range(
        {
            "do_rescale": False,
            "do_normalize": "Normalize" in known,
            "image_mean": pixels.get("mean"),
            "image_std": pixels.get("std"),
        }
    )


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
    if pixels.get("include_top") is True:  # EfficientNet's values are divided twice
        scale = tuple(v * v for v in scale)
    return tuple(whole * v for v in mean), tuple(whole * v for v in scale)


def _colors(values: Any) -> tuple[float, ...]:
    known = isinstance(values, list) and len(values) in (1, 3) and all(map(_is_number, values))
    return tuple(values) if known else ()


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < _MOST_NUMBER


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object; empty if there is none that can be read."""
    try:
        found = json.loads(read_sidecar(file, _MOST_BYTES) or b"{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
