"""Compiles 60 architectures of timm, torchvision and transformers with random weights.

    python -m tests.long.pytorch_architectures [--python PYTHON] [--board rpi4] [--only WORD]
        [--least 95] [--again]

PYTHON has PyTorch and the three libraries (default: environments that are fetched once). Each
network is exported by PyTorch, compared with PyTorch's outputs, and compiled. Networks of timm and
torchvision come from a factory, those of transformers from a folder. Those that agreed are kept in
the cache folder, and a run that was stopped goes on after them; --again tries all. Prints one line
for each; exit code 1 if fewer than `--least` percent agree.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.frontends.pytorch import export as exports
from edgekit.host.compiler.frontends.pytorch import worker
from edgekit.host.compiler.frontends.pytorch.source import torch_source
from edgekit.host.deploy import api
from edgekit.host.errors import EdgekitError, InputError

_SIDE = 96  # pixels, unless the architecture has a size of its own

# Without training BatchNorm does nothing, and some heads and scales are zero; statistics of one
# batch and random values instead make every layer matter.
_FACTORY = """
import torch
torch.manual_seed(1)
def make():
    {imports}
    net = {make}
    for weights in net.parameters():
        if weights.abs().max() < 1e-3:
            torch.nn.init.normal_(weights, std=0.1)
    for layer in net.modules():
        if isinstance(layer, torch.nn.modules.batchnorm._BatchNorm):
            layer.momentum = None
    shape = (2, *{shape})
    with torch.no_grad():
        net.train()
        for each in net.modules():
            if isinstance(each, torch.nn.Dropout):
                each.eval()
        try:
            net(torch.randn(shape))
        except ValueError:  # one value per channel has no statistics
            pass
        net.eval()
    return net, (torch.randn(1, *shape[1:]),)
"""
_FOLDER = """
import sys, torch
sys.path.append(sys.argv[2])
from worker import despite_torchvision
def make():
    import transformers as t
    t.set_seed(1)
    return t.{network}(t.{config}(**{options}))
net = despite_torchvision(make)
for weights in net.parameters():
    if weights.abs().max() < 1e-3:
        torch.nn.init.normal_(weights, std=0.1)
norms = [m for m in net.modules() if isinstance(m, torch.nn.modules.batchnorm._BatchNorm)]
if norms:
    side = getattr(net.config, "image_size", 128)
    net.eval()
    for layer in norms:
        layer.train()
        layer.momentum = None
    with torch.no_grad():
        net(torch.randn(2, 3, side, side))
net.eval().save_pretrained(sys.argv[1])
"""
_TEXT = {
    "vocab_size": 211,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
}
_PICTURE = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 128,
    "image_size": 64,
    "patch_size": 16,
}
_DECODER = {**_TEXT, "num_key_value_heads": 2, "max_position_embeddings": 128}

# name: options of timm.create_model, size
_TIMM: dict[str, tuple[dict[str, object], int]] = {
    "resnet18d": ({}, _SIDE),
    "resnext26ts": ({}, _SIDE),
    "seresnet18": ({}, _SIDE),
    "mobilenetv3_small_100": ({}, _SIDE),
    "mobilenetv4_conv_small": ({}, _SIDE),
    "efficientnet_lite0": ({}, _SIDE),
    "efficientnetv2_rw_t": ({}, _SIDE),
    "mixnet_s": ({}, _SIDE),
    "ghostnetv2_100": ({}, _SIDE),
    "regnety_002": ({}, _SIDE),
    "repvgg_a0": ({}, _SIDE),
    "convnext_atto": ({}, _SIDE),
    "convnextv2_atto": ({}, _SIDE),
    "edgenext_xx_small": ({}, _SIDE),
    "fastvit_t8": ({}, 128),
    "mobileone_s0": ({}, _SIDE),
    "mobilevit_xxs": ({}, 128),
    "mobilevitv2_050": ({}, 128),
    "efficientformer_l1": ({}, 224),
    "efficientvit_b0": ({}, _SIDE),
    "efficientvit_m0": ({}, 224),
    "poolformer_s12": ({}, _SIDE),
    "levit_128s": ({}, 224),
    "vit_tiny_patch16_224": ({"img_size": 96}, 96),
    "deit_tiny_patch16_224": ({"img_size": 96}, 96),
    "mixer_s32_224": ({"img_size": 96}, 96),
    "tiny_vit_5m_224": ({}, 224),
    "xcit_nano_12_p16_224": ({}, 96),
    "rexnet_100": ({}, _SIDE),
    "hardcorenas_a": ({}, _SIDE),
}
# factory of torchvision.models: its options, size
_TORCHVISION: dict[str, tuple[str, int]] = {
    "alexnet": ("", 128),
    "vgg11_bn": ("", _SIDE),
    "squeezenet1_1": ("", _SIDE),
    "densenet121": ("", _SIDE),
    "googlenet": ("init_weights=True, aux_logits=False", _SIDE),
    "inception_v3": ("init_weights=True, aux_logits=False", 160),
    "mobilenet_v2": ("", _SIDE),
    "mobilenet_v3_large": ("", _SIDE),
    "mnasnet0_5": ("", _SIDE),
    "shufflenet_v2_x0_5": ("", _SIDE),
    "efficientnet_b0": ("", _SIDE),
    "regnet_x_400mf": ("", _SIDE),
    "resnet50": ("", _SIDE),
    "swin_t": ("", _SIDE),
    "swin_v2_t": ("", _SIDE),
    "maxvit_t": ("", 224),
    "segmentation.lraspp_mobilenet_v3_large": ("weights_backbone=None", 128),
    "segmentation.deeplabv3_mobilenet_v3_large": ("weights_backbone=None", 128),
    "segmentation.fcn_resnet50": ("weights_backbone=None", _SIDE),
}
# name: class, configuration, its options, --input-shape
_TRANSFORMERS: dict[str, tuple[str, str, dict[str, object], dict[str, tuple[int, ...]]]] = {
    "bert": ("BertForSequenceClassification", "BertConfig", _TEXT, {}),
    "distilbert": (
        "DistilBertForMaskedLM",
        "DistilBertConfig",
        {"vocab_size": 211, "dim": 64, "n_layers": 2, "n_heads": 4, "hidden_dim": 128},
        {},
    ),
    "roberta": ("RobertaForTokenClassification", "RobertaConfig", _TEXT, {}),
    "albert": ("AlbertModel", "AlbertConfig", {**_TEXT, "embedding_size": 32}, {}),
    "electra": ("ElectraForSequenceClassification", "ElectraConfig", _TEXT, {}),
    "mpnet": ("MPNetModel", "MPNetConfig", _TEXT, {}),
    "vit": ("ViTForImageClassification", "ViTConfig", _PICTURE, {}),
    "dinov2": (
        "Dinov2Model",
        "Dinov2Config",
        {**_PICTURE, "patch_size": 8},
        {},
    ),
    "mobilevit-hf": (
        "MobileViTForImageClassification",
        "MobileViTConfig",
        {"image_size": 128, "hidden_sizes": [64, 80, 96]},
        {},
    ),
    "segformer": (
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        {"hidden_sizes": [16, 32, 64, 128], "decoder_hidden_size": 64},
        {"pixel_values": (1, 3, 128, 128)},
    ),
    "wav2vec2": (
        "Wav2Vec2ForCTC",
        "Wav2Vec2Config",
        {**_TEXT, "conv_dim": [32] * 7, "num_conv_pos_embeddings": 16},
        {"input_values": (1, 8000)},
    ),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"vocab_size": 211, "n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 128},
        {"input_ids": (1, 32)},
    ),
    "llama": ("LlamaForCausalLM", "LlamaConfig", _DECODER, {"input_ids": (1, 32)}),
    "qwen3": (
        "Qwen3ForCausalLM",
        "Qwen3Config",
        {**_DECODER, "head_dim": 16},
        {"input_ids": (1, 32)},
    ),
}


@dataclass(frozen=True)
class _Network:
    """A program that makes it, and the shapes of its inputs; `folder`: it writes one."""

    name: str
    text: str
    folder: bool
    shapes: dict[str, tuple[int, ...]]
    needs: str


def _networks() -> list[_Network]:
    found = []
    for name, (options, side) in _TIMM.items():
        made = f"timm.create_model({name!r}, pretrained=False, **{options!r})"
        text = _FACTORY.format(imports="import timm", make=made, shape=(3, side, side))
        found.append(_Network(f"timm/{name}", text, False, {}, "timm"))
    for name, (given, side) in _TORCHVISION.items():
        made = f"torchvision.models.{name}(weights=None, {given})"
        text = _FACTORY.format(imports="import torchvision", make=made, shape=(3, side, side))
        found.append(_Network(f"torchvision/{name}", text, False, {}, "timm"))
    for name, (network, config, settings, shapes) in _TRANSFORMERS.items():
        text = _FOLDER.format(network=network, config=config, options=settings)
        found.append(_Network(f"transformers/{name}", text, True, shapes, "transformers"))
    return found


def _try(network: _Network, python: str | None, board: str, folder: Path) -> str:
    """Exports, compares and compiles; returns how it agreed."""
    python = python or exports.interpreter_for(network.needs, print)
    place = folder / "net"
    if network.folder:
        command = [python, "-B", "-c", network.text, str(place), str(Path(worker.__file__).parent)]
        subprocess.run(command, check=True, capture_output=True)
        source = torch_source(str(place))
    else:
        place.with_suffix(".py").write_text(network.text)
        source = torch_source(f"{place}.py:make")
    assert source is not None
    out = folder / "out"
    out.mkdir()
    made = exports.export(source, network.shapes, out, lambda _: None, python)
    if made.largest == 0:
        raise InputError("expected outputs that depend on the input, found constant ones")
    api.compile_model(made.model, board=board)
    return f"cosine {made.cosine:.6f}, largest difference {made.largest:.2g}"


def _kept_file(network: _Network, board: str) -> Path:
    """Where the line of a network that agreed is kept; another one if what is tried changes."""
    tried = repr((network, board)).encode()
    folder = cache_folder() / "pytorch-architectures"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / hashlib.sha256(tried).hexdigest()[:32]


def _cpu_seconds() -> float:
    """Of this process and those that it waited for."""
    used = os.times()
    return used.user + used.system + used.children_user + used.children_system


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python")
    parser.add_argument("--board", default="rpi4")
    parser.add_argument("--only", default="")
    parser.add_argument("--least", type=float, default=95.0)
    parser.add_argument("--again", action="store_true", help="also try those that agreed before")
    options = parser.parse_args()
    tried = agreed = 0
    for network in _networks():
        if options.only not in network.name:
            continue
        tried += 1
        kept = _kept_file(network, options.board)
        if kept.is_file() and not options.again:
            line = kept.read_text()
            agreed += 1
        else:
            begin = _cpu_seconds()
            try:
                with tempfile.TemporaryDirectory() as made:
                    said = _try(network, options.python, options.board, Path(made))
                agreed += 1
            except (EdgekitError, subprocess.CalledProcessError) as error:
                said = f"FAILED {error}"
            line = f"{network.name}: {said} ({_cpu_seconds() - begin:.0f} s of CPU)"
            if "FAILED" not in line:
                atomic_write(kept, line.encode())
        print(line, flush=True)
    print(f"{tried} architectures, {agreed} compile and agree")
    return 0 if tried and agreed >= options.least / 100 * tried else 1


if __name__ == "__main__":
    sys.exit(main())
