"""The list of networks: how each is built, and the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import timm
import torchvision
from torch import Tensor, nn

from tests.long.networks import detect, language, pixels, sound, yolo

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True)
class Network:
    """`tokens`: inputs of whole numbers, by name, with their smallest excluded upper bound."""

    make: Callable[[], nn.Module]
    shapes: Shapes
    tokens: Mapping[str, int]


def _network(make: Callable[[], nn.Module], shapes: Shapes, **tokens: int) -> Network:
    return Network(make, shapes, tokens)


def _image(make: Callable[[], nn.Module], height: int, width: int = 0) -> Network:
    return _network(make, {"image": (1, 3, height, width or height)})


def _torchvision(name: str, size: int = 224) -> Network:
    return _image(lambda: torchvision.models.get_model(name, weights=None), size)


def _timm(name: str, size: int = 224, **sizes: int) -> Network:
    return _image(lambda: timm.create_model(name, exportable=True, **sizes), size)


def _yolo(version: int, width: int, size: int) -> Network:
    return _image(lambda: yolo.Yolo(version, width, size), size)


class _Segments(nn.Module):
    """DeepLabV3 of torchvision, whose result is a dictionary."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torchvision.models.segmentation.deeplabv3_mobilenet_v3_large(
            weights=None, weights_backbone=None
        )

    def forward(self, image: Tensor) -> Tensor:
        return self.net(image)["out"]


def _bert(layers: int, width: int, heads: int, tokens: int = 128) -> Network:
    shapes = {"ids": (1, tokens), "mask": (1, tokens)}
    return _network(lambda: language.bert(layers, width, heads), shapes, ids=30522, mask=2)


def _whisper_encoder(layers: int, width: int) -> Network:
    return _network(lambda: language.whisper_encoder(layers, width), {"mel": (1, 80, 3000)})


def _whisper_step(layers: int, width: int) -> Network:
    heads = width // 64
    shapes = {
        "token": (1, 1),
        "place": (1, 1),
        "cache": (layers, 2, heads, 63, 64),
        "cross": (layers, 2, heads, 1500, 64),
    }
    return _network(lambda: language.WhisperStep(layers, width), shapes, token=51865, place=448)


def _gated_step(
    layers: int,
    width: int,
    heads: int,
    groups: int,
    size: int,
    wide: int,
    tokens: int,
    normed: bool,
) -> Network:
    sizes = (layers, width, heads, groups, size, wide, tokens, normed)
    shapes = {"token": (1, 1), "place": (1, 1), "cache": (layers, 2, groups, 127, size)}
    return _network(lambda: language.GatedStep(*sizes), shapes, token=tokens, place=128)


NETWORKS: Mapping[str, Network] = {
    "yolov8n-640": _yolo(8, 16, 640),
    "yolov8n-320": _yolo(8, 16, 320),
    "yolo11n-640": _yolo(11, 16, 640),
    "yolo11n-320": _yolo(11, 16, 320),
    "yolo11s-640": _yolo(11, 32, 640),
    "yolo11s-320": _yolo(11, 32, 320),
    "yolo26n-640": _yolo(26, 16, 640),
    "yolo26n-320": _yolo(26, 16, 320),
    "yolox-nano": _image(yolo.YoloX, 416),
    "nanodet-plus": _image(detect.NanoDetPlus, 320),
    "ssd-mobilenet-v2": _image(detect.Ssd, 320),
    "movenet": _image(detect.Pose, 192),
    "resnet-18": _torchvision("resnet18"),
    "resnet-50": _torchvision("resnet50"),
    "mobilenet-v1": _timm("mobilenetv1_100"),
    "mobilenet-v2": _torchvision("mobilenet_v2"),
    "mobilenet-v3-small": _torchvision("mobilenet_v3_small"),
    "mobilenet-v3-large": _torchvision("mobilenet_v3_large"),
    "mobilenet-v4-small": _timm("mobilenetv4_conv_small"),
    "efficientnet-b0": _torchvision("efficientnet_b0"),
    "efficientnet-lite0": _timm("tf_efficientnet_lite0"),
    "shufflenet-v2": _torchvision("shufflenet_v2_x1_0"),
    "ghostnet": _timm("ghostnet_100"),
    "convnext-atto": _timm("convnext_atto"),
    "deit-tiny": _timm("deit_tiny_patch16_224"),
    "mobilevit-xxs": _timm("mobilevit_xxs", 256),
    "swin-tiny": _timm("swin_tiny_patch4_window7_224"),
    "unet": _image(pixels.UNet, 256),
    "deeplab-v3": _image(_Segments, 256),
    "bisenet": _image(pixels.BiSeNet, 256, 512),
    "real-esrgan-small": _image(pixels.SuperResolution, 64),
    "midas-small": _image(pixels.Depth, 256),
    "crnn": _network(pixels.Crnn, {"image": (1, 1, 32, 100)}),
    "ppocr-v4-det": _image(pixels.TextBoxes, 320),
    "ppocr-v4-rec": _image(pixels.TextLine, 48, 320),
    "whisper-tiny-encoder": _whisper_encoder(4, 384),
    "whisper-tiny-step": _whisper_step(4, 384),
    "whisper-base-encoder": _whisper_encoder(6, 512),
    "whisper-base-step": _whisper_step(6, 512),
    "moonshine-tiny-encoder": _network(language.moonshine_encoder, {"sound": (1, 32000)}),
    "silero-vad": _network(sound.VoiceActivity, {"sound": (1, 576), "state": (2, 1, 128)}),
    "piper-vits": _network(sound.speech, {"latents": (1, 192, 32)}),
    "deepfilternet": _network(sound.NoiseFilter, {"bands": (1, 1, 20, 32), "bins": (1, 2, 20, 96)}),
    "ds-cnn": _network(sound.ds_cnn, {"features": (1, 1, 49, 10)}),
    "tc-resnet8": _network(sound.tc_resnet, {"features": (1, 40, 101)}),
    "bc-resnet1": _network(sound.bc_resnet, {"features": (1, 1, 40, 101)}),
    "bert-tiny": _bert(2, 128, 2),
    "minilm": _bert(6, 384, 12),
    "bge-small": _bert(12, 384, 12),
    "smollm-step": _gated_step(30, 576, 9, 3, 64, 1536, 49152, False),
    # Four of its 28 layers: files of ONNX are limited to 2 GiB.
    "qwen3-4-layers-step": _gated_step(4, 1024, 16, 8, 128, 3072, 151936, True),
}

# For `scripts/performance --networks`: few enough multiply-adds to estimate all engines on all
# boards. YOLO26 gives all boxes: with random weights so many scores are nearly equal that each
# engine chooses others.
SMALL: Mapping[str, Network] = {
    "yolov8n-160": _yolo(8, 16, 160),
    "yolo11n-160": _yolo(11, 16, 160),
    "yolo26n-160": _image(lambda: yolo.Yolo(26, 16, 160, select=False), 160),
    "yolox-nano-160": _image(yolo.YoloX, 160),
    "nanodet-plus-160": _image(detect.NanoDetPlus, 160),
    "movenet-96": _image(detect.Pose, 96),
    "resnet-18-96": _torchvision("resnet18", 96),
    "mobilenet-v1-96": _timm("mobilenetv1_100", 96),
    "mobilenet-v2-128": _torchvision("mobilenet_v2", 128),
    "mobilenet-v3-small-160": _torchvision("mobilenet_v3_small", 160),
    "mobilenet-v4-small-128": _timm("mobilenetv4_conv_small", 128),
    "efficientnet-b0-96": _torchvision("efficientnet_b0", 96),
    "efficientnet-lite0-128": _timm("tf_efficientnet_lite0", 128),
    "shufflenet-v2-160": _torchvision("shufflenet_v2_x1_0", 160),
    "ghostnet-128": _timm("ghostnet_100", 128),
    "convnext-atto-96": _timm("convnext_atto", 96),
    "deit-tiny-96": _timm("deit_tiny_patch16_224", 96, img_size=96),
    "mobilevit-xxs-128": _timm("mobilevit_xxs", 128),
    "unet-64": _image(pixels.UNet, 64),
    "bisenet-64": _image(pixels.BiSeNet, 64, 128),
    "real-esrgan-small-24": _image(pixels.SuperResolution, 24),
    "ppocr-v4-det-96": _image(pixels.TextBoxes, 96),
    "ppocr-v4-rec-96": _image(pixels.TextLine, 48, 96),
    "bert-tiny-64": _bert(2, 128, 2, 64),
    "minilm-16": _bert(6, 384, 12, 16),
    **{
        name: NETWORKS[name]
        for name in ("crnn", "silero-vad", "deepfilternet", "ds-cnn", "tc-resnet8", "bc-resnet1")
    },
}
