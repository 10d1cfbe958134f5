"""Pixels as families of networks take them whose files do not say so: by the name of the file, or
of the input. They are proposals, which are told."""

from __future__ import annotations

import re
from typing import Any

from edgekit.device.runtime.agent.task import BGR, CROP, CUBIC, LINEAR, STRETCH

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
BGR_BYTES: dict[str, Any] = {
    "channels": BGR, "mean": (0.0,), "scale": (1.0,), "fit": STRETCH, "zoom": 1.0,
}  # fmt: skip
_DPN: dict[str, Any] = {"mean": (124.0, 117.0, 104.0), "scale": (1 / 0.0167,)}
CAFFE_PIXELS: dict[str, Any] = {"channels": BGR, "mean": (104.0, 117.0, 123.0), "scale": (1.0,)}
_Rows = tuple[tuple[str, str, dict[str, Any]], ...]
# Whose networks a name is of, and their pixels; the first that fits counts. Those of timm are by
# its table of pretrained weights, others by their authors' programs.
_NAMES: _Rows = (
    (r"(tresnet|.*_miil(_in21k|$)|fastvit_mci[0-2])", "timm", _SHARES),
    (r"vit_([blh]_(14|16|32)|.*(dino|mae|ijepa|sapiens|intern300m|rope_(mixed_)?(ape_)?224"
     r"|resnet\d+d).*)$", "timm's and torchvision", IMAGENET_PIXELS),
    (r"vit_large_patch14_clip_.*laion2b", "timm's CLIP", _SIGNED),
    (r"eva_giant_.*(560|m30m)", "timm", IMAGENET_PIXELS),
    (r"(eva02_|eva_|vit_\w*clip_|vit_betwixt_\w*rope|vitamin_|resnet\d+(x\d+)?_clip"
     r"|convnext_(\w*clip|large_mlp|xxlarge))", "timm's EVA and CLIP", CLIP_PIXELS),
    (r"vit_", "timm's ViT", _SIGNED),
    (r"dpn(68(?!b)|68b_mx|9\d|1\d\d)", "MXNet", _DPN),
    (r"(mixer_|gmlp_|tnt_|(naflex|flexi)vit_|maxx?vit\w*_(rw|tf_[35]|\w*in21k)|coatne[xt]t?_(?!bn)|beit_"
     r"|tf_efficientnetv2_(s|m|l|xl|b3$|.*in21k)|tf_efficientnet_(lite|e[sml]|cc|b\d_ap|b8$)"
     r"|efficientnet_(b\d_pruned|v2_l)|tf_mobilenetv3|mobilenetv3_large_150d|mobilenet_edgetpu"
     r"|mobilenetv1_1|mobilenetv4_conv_small_(0|e3)|(halo)?regnetz_[b-e]|resnetv2_"
     r"|(ens_)?adv_inception|(legacy_)?xception|p?nasnet|inception_v(4|3_t[fv])|inception_resnet|tf_inception"
     r"|convnext_zepto|cs3darknet_focus_s|ese_vovnet57|.*_ra4_e3600)",
     "TensorFlow and timm", _SIGNED),
    (r"(lite_model_)?deeplabv3_(\d|mobilenetv2|mnv2)", "TensorFlow", _SIGNED),
    (r".*mobilevit_(x?x_)?small", "Apple", {**_SHARES, "channels": BGR}),
    (r"mobilevit", "MobileViT", _SHARES),
    (r"yolo.*_cls", "YOLO", {**_SHARES, "zoom": 1.0}),
    (r"((age|gender)_googlenet|vgg_ilsvrc_16|open_?nsfw)", "Caffe", CAFFE_PIXELS),
    (r".*adaface", "AdaFace", {**_SIGNED, "channels": BGR}),
    (r".*magface", "MagFace", {**_SHARES, "channels": BGR}),
    (r".*minifasnet", "MiniFASNet", BGR_BYTES),
    (r"modnet", "MODNet", _SIGNED),
    (r".*pp_?(humanseg|matting|liteseg)", "PaddleSeg", _SIGNED),
    (r".*(midas|u2net|silueta|depth_anything)", "PyTorch", IMAGENET_PIXELS),
    (r".*(birefnet|rmbg_?2|inspyrenet)", "PyTorch", IMAGENET_PIXELS),
    (r"(.*depth_?pro|dpt_|zoe_?depth)", "DPT", _SIGNED),
    (r".*db_(td500|ic15)", "OpenCV's DB",
     {"channels": BGR, "mean": (122.67891434, 116.66876762, 104.00698793), "scale": (255.0,)}),
    (r"(isnet|rmbg_?1_4|bria_?rmbg|briaai)", "IS-Net", _CENTERED),
)  # fmt: skip
# Networks with the weights of Keras' applications, and Google's for small boards, which end in a
# softmax and have colors last.
_END = r"(_(keras|imagenet|float(16|32)|fp(16|32)))*$"
_OF_KERAS: _Rows = (
    (rf"(resnet_?(50|101|152)|vgg_?1[69]){_END}", "Keras",
     {"channels": BGR, "mean": (103.939, 116.779, 123.68), "scale": (1.0,)}),
    (rf"densenet_?(121|169|201){_END}", "Keras", IMAGENET_SCALING),
    (rf"resnet_?(50|101|152)_?v2{_END}", "Keras", _SIGNED),
    (rf"efficientnet_?lite_?[0-4](_\d+)?{_END}", "Google",
     {"mean": (127.0,), "scale": (128.0,), "fit": CROP, "zoom": 256 / 224, "filter": LINEAR}),
)  # fmt: skip
# Networks that make pictures of the same size, which may also look like maps of scores.
_PICTURES: _Rows = (
    (r"(gfpgan|restoreformer|gpen_)", "GFPGAN", _SIGNED),
    (r"(lite_model_)?(cartoon_?gan|white_?box)", "CartoonGAN", _SIGNED),
    (r".*(nafnet|restormer|mprnet|dncnn|drunet|scunet|zero_?dce|fbcnn|de(haz|rain|noise|blur))",
     "restoration", _SHARES),
)  # fmt: skip
# The same where colors are the last axis, as TensorFlow has them.
_OF_TENSORFLOW: _Rows = (
    (r"(lite_model_)?esrgan", "TensorFlow Hub's ESRGAN", {"mean": (0.0,), "scale": (1.0,)}),
)
_LOGITS = re.compile(r".*birefnet")  # names of networks for the outline that end before the sigmoid
# Networks of these names take pixels in one way or another.
_AMBIGUOUS = re.compile(r"(efficientnet_b1|inception_v3|vit_large_patch14_clip_(224|336))$")
# Parts of names that say nothing of a network.
_PLAIN = re.compile(
    r"((my|best|last|final|new|test|model|network|net|classif(y|ier)|classification|image|custom"
    r"|trained|export(ed)?|end2end|inference|onnx|cls|opset|v|fp(16|32)|u?int8|quant(ized)?"
    r"|sim(plified)?|opt(imized)?|dynamic|static|\d+)_?)+$"
)
IMPULSE = "ei-"  # begins the names of Edge Impulse's files
_CAFFE_INPUT = "data_0"  # as Caffe2's exporter names it
CAFFE2_INPUT = "gpu_0/data_0"  # of networks that were trained with Caffe2 itself
# Names of networks of both that take scaled pixels.
_SCALED = re.compile(r"(light_)?(densenet|resnet)")


def lower_name(stem: str) -> str:
    """The name of a file, for comparisons, without what ONNX' model zoo adds to a network's."""
    return re.sub(r"_opset\d+$", "", re.sub(r"[-.]", "_", stem.lower()))


def is_plain(stem: str) -> bool:
    """Whether the name of a file says nothing of the network."""
    return _PLAIN.match(lower_name(stem)) is not None


def is_ambiguous(stem: str) -> bool:
    """Whether networks of that name take pixels in different ways."""
    return _AMBIGUOUS.match(lower_name(stem)) is not None


def pixels_by_name(stem: str, called: str) -> tuple[str, dict[str, Any]]:
    """Whose networks a file of that name and an input that is called so are of, and how they take
    pixels, as fields of a TaskSpec; empty if unknown."""
    lower = lower_name(stem)
    if called in (_CAFFE_INPUT, CAFFE2_INPUT) and _SCALED.match(lower):
        return "Caffe2", IMAGENET_BGR
    if called == _CAFFE_INPUT:
        return "Caffe", CAFFE_PIXELS
    return _first(_NAMES, lower)


def keras_pixels(stem: str) -> tuple[str, dict[str, Any]]:
    """The same of networks that have the form of Keras' applications."""
    return _first(_OF_KERAS, lower_name(stem))


def picture_by_name(stem: str, colors_last: bool) -> tuple[str, dict[str, Any]]:
    """The same of networks that change a picture."""
    rows = (*_OF_TENSORFLOW, *_PICTURES) if colors_last else _PICTURES
    return _first(rows, lower_name(stem))


def ends_in_logits(stem: str) -> bool:
    """Whether networks of that name give an outline before its sigmoid."""
    return _LOGITS.match(lower_name(stem)) is not None


def _first(rows: _Rows, lower: str) -> tuple[str, dict[str, Any]]:
    found = ((whose, pixels) for name, whose, pixels in rows if re.match(name, lower))
    return next(found, ("", {}))
