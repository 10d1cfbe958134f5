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
IMAGENET_BGR: dict[str, Any] = {
    "channels": BGR, **{name: values[::-1] for name, values in IMAGENET_SCALING.items()},
}  # fmt: skip
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
    (r"(tresnet|.*_miil(_in21k|$)|fastvit_mci)", "timm", _SHARES),
    (r"vit_.*(dino|mae|rope_(mixed_)?(ape_)?224|resnet\d+d)", "timm", IMAGENET_PIXELS),
    (r"vit_large_patch14_clip_.*laion2b", "timm's CLIP", _SIGNED),
    (r"(eva02_|eva_|vit_\w*clip_|convnext_(\w*clip|large_mlp|xxlarge))", "timm's EVA and CLIP",
     CLIP_PIXELS),
    (r"vit_", "timm's ViT", _SIGNED),
    (r"(mixer_|gmlp_|tnt_|(naflex|flexi)vit_|maxx?vit\w*_(rw|tf_[35]|\w*in21k)|coatne[xt]t?_(?!bn)|beit_"
     r"|tf_efficientnetv2_(s|m|l|xl|.*in21k)|tf_efficientnet_(lite|e[sml]|cc|b\d_ap)|tf_mobilenetv3"
     r"|efficientnet_b\d_pruned|mobilenetv1_1|mobilenetv4_conv_small_0|(halo)?regnetz_[b-e]|resnetv2_"
     r"|(legacy_)?xception|p?nasnet|inception_v4|inception_resnet|tf_inception|.*_ra4_e3600)",
     "TensorFlow and timm", _SIGNED),
    (r"(lite_model_)?deeplabv3_(\d|mobilenetv2|1_)", "TensorFlow", _SIGNED),
    (r"mobilevit", "MobileViT", _SHARES),
    (r"yolo.*_cls", "YOLO", {**_SHARES, "zoom": 1.0}),
    (r"((age|gender)_googlenet|vgg_ilsvrc_16|open_?nsfw)", "Caffe", _CAFFE),
    (r".*minifasnet", "MiniFASNet", _BYTES),
    (r"modnet", "MODNet", _SIGNED),
    (r".*pp_?(humanseg|matting|liteseg)", "PaddleSeg", _SIGNED),
    (r".*(midas|u2net|silueta|depth_anything)", "PyTorch", IMAGENET_PIXELS),
    (r"(isnet|rmbg[-_]?1\.4|bria[-_]?rmbg|briaai)", "IS-Net", _CENTERED),
)  # fmt: skip
_CAFFE_INPUT = "data_0"  # as Caffe2's exporter names it
CAFFE2_INPUT = "gpu_0/data_0"  # of networks that were trained with Caffe2 itself
_SCALED = re.compile(r"(densenet|resnet)")  # names of networks of both that take scaled pixels


def pixels_by_name(stem: str, called: str) -> tuple[str, dict[str, Any]]:
    """Whose networks a file of that name and an input that is called so are of, and how they take
    pixels, as fields of a TaskSpec; empty if unknown."""
    lower = stem.lower().replace("-", "_")
    if called in (_CAFFE_INPUT, CAFFE2_INPUT) and _SCALED.match(lower):
        return "Caffe2", IMAGENET_BGR
    if called == _CAFFE_INPUT:
        return "Caffe", _CAFFE
    found = ((whose, pixels) for name, whose, pixels in _NAMES if re.match(name, lower))
    return next(found, ("", {}))
