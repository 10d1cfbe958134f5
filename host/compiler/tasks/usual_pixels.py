"""Pixels as families of networks take them whose files do not say so: by the name of the file, or
of the input. They are proposals, which are told."""

from __future__ import annotations

import re
from typing import Any

from edgekit.device.runtime.agent.task import BGR, CUBIC, LINEAR, STRETCH

IMAGENET_SCALING: dict[str, Any] = {  # mean and deviation of its pixels, as torchvision has them
    "mean": (123.675, 116.28, 103.53),
    "scale": (58.395, 57.12, 57.375),
}
IMAGENET_PIXELS: dict[str, Any] = {**IMAGENET_SCALING, "filter": LINEAR}
CLIP_PIXELS: dict[str, Any] = {
    "mean": (122.7709383, 116.7460125, 104.0937362),
    "scale": (68.5005327, 66.6321579, 70.3231630),
    "filter": CUBIC,
}
_SIGNED: dict[str, Any] = {"mean": (127.5,), "scale": (127.5,)}
_CENTERED: dict[str, Any] = {"mean": (127.5,), "scale": (255.0,)}
_SHARES: dict[str, Any] = {"mean": (0.0,), "scale": (255.0,)}
_BYTES: dict[str, Any] = {
    "channels": BGR, "mean": (0.0,), "scale": (1.0,), "fit": STRETCH, "zoom": 1.0,
}  # fmt: skip
_CAFFE: dict[str, Any] = {"channels": BGR, "mean": (104.0, 117.0, 123.0), "scale": (1.0,)}
# Whose networks a name is of, and their pixels; the first that fits counts. Those of timm are by
# its table of pretrained weights, others by their authors' programs.
_NAMES = (
    (r"(eva02|vit_\w*clip)_", "timm's EVA-02 and CLIP", CLIP_PIXELS),
    (r"vit_(tiny|small|base|large|huge)_(?!.*(dino|mae))", "timm's ViT", _SIGNED),
    (r"(mixer_|beit_|tf_efficientnetv2|tf_efficientnet_lite|tf_mobilenetv3|regnetz|xception|p?nasnet"
     r"|inception_v4|inception_resnet|tf_inception|resnetv2_\d+x\d+_bit)",
     "TensorFlow's and timm's", _SIGNED),
    (r"(lite_model_)?deeplabv3_(\d|mobilenetv2|1_)", "TensorFlow", _SIGNED),
    (r"mobilevit", "MobileViT", _SHARES),
    (r"yolo.*_cls", "YOLO", {**_SHARES, "zoom": 1.0}),
    (r"(age|gender)_googlenet", "Caffe", _CAFFE),
    (r".*minifasnet", "MiniFASNet", _BYTES),
    (r"modnet", "MODNet", _SIGNED),
    (r".*pphumanseg", "PP-HumanSeg", _SIGNED),
    (r"(isnet|rmbg[-_]?1\.4|bria[-_]?rmbg|briaai)", "IS-Net", _CENTERED),
)  # fmt: skip
_INPUTS = ("data_0",)  # as Caffe2's exporter names it


def pixels_by_name(stem: str, called: str) -> tuple[str, dict[str, Any]]:
    """Whose networks a file of that name and an input that is called so are of, and how they take
    pixels, as fields of a TaskSpec; empty if unknown."""
    if called in _INPUTS:
        return "Caffe", _CAFFE
    found = ((whose, pixels) for name, whose, pixels in _NAMES
             if re.match(name, stem.lower().replace("-", "_")))  # fmt: skip
    return next(found, ("", {}))
