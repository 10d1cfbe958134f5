"""Networks from pixels to pixels or to text."""

from __future__ import annotations

from itertools import pairwise

import timm
import torch
import torchvision
from torch import Tensor, nn

from tests.long.networks.blocks import ConvNorm, Gate, Residual, transformer, twice


def _pair(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(
        ConvNorm(inputs, outputs, act=nn.ReLU), ConvNorm(outputs, outputs, act=nn.ReLU)
    )


class UNet(nn.Module):
    def __init__(self, width: int = 32, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        pairs = list(pairwise(widths))
        self.first = _pair(3, width)
        self.down = nn.ModuleList(nn.Sequential(nn.MaxPool2d(2), _pair(a, b)) for a, b in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in reversed(pairs))
        self.joins = nn.ModuleList(_pair(2 * a, a) for a, _ in reversed(pairs))
        self.last = nn.Conv2d(width, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        maps = [self.first(x)]
        for down in self.down:
            maps.append(down(maps[-1]))
        x = maps.pop()
        for up, join in zip(self.up, self.joins, strict=True):
            x = join(torch.cat((up(x), maps.pop()), 1))
        return self.last(x)


class _Refine(nn.Module):
    """BiSeNet's attention refinement: a gate of the mean."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.conv = ConvNorm(inputs, outputs, act=nn.ReLU)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), ConvNorm(outputs, outputs, 1, act=nn.Sigmoid)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        return y * self.gate(y)


class BiSeNet(nn.Module):
    """A context path on ResNet-18, a path of details, and their fusion."""

    def __init__(self, classes: int = 19) -> None:
        super().__init__()
        net = torchvision.models.resnet18()
        self.stem = nn.Sequential(net.conv1, net.bn1, net.relu, net.maxpool, net.layer1, net.layer2)
        self.middle, self.small = net.layer3, net.layer4
        self.refine = nn.ModuleList((_Refine(256, 128), _Refine(512, 128)))
        self.whole = nn.Sequential(nn.AdaptiveAvgPool2d(1), ConvNorm(512, 128, 1, act=nn.ReLU))
        self.heads = nn.ModuleList(ConvNorm(128, 128, act=nn.ReLU) for _ in range(2))
        self.details = nn.Sequential(
            ConvNorm(3, 64, 7, 2, act=nn.ReLU),
            *(ConvNorm(64, 64, 3, 2, act=nn.ReLU) for _ in range(2)),
            ConvNorm(64, 128, 1, act=nn.ReLU),
        )
        self.fuse = ConvNorm(256, 256, 1, act=nn.ReLU)
        self.gate = Gate(256)
        self.last = nn.Sequential(ConvNorm(256, 256, act=nn.ReLU), nn.Conv2d(256, classes, 1))

    def forward(self, image: Tensor) -> Tensor:
        middle = self.middle(self.stem(image))
        small = self.small(middle)
        y = self.heads[1](twice(self.refine[1](small) + self.whole(small)))
        y = self.heads[0](twice(self.refine[0](middle) + y))
        y = self.fuse(torch.cat((self.details(image), y), 1))
        y = self.last(y + self.gate(y))
        return nn.functional.interpolate(y, scale_factor=8.0, mode="bilinear")


class SuperResolution(nn.Module):
    """The compact network of Real-ESRGAN: convolutions at the small size, PReLU, pixel shuffle."""

    def __init__(self, width: int = 64, count: int = 16, factor: int = 4) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(3, width, 3, padding=1), nn.PReLU(width)]
        for _ in range(count):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.PReLU(width)]
        last = nn.Conv2d(width, 3 * factor**2, 3, padding=1)
        self.body = nn.Sequential(*layers, last, nn.PixelShuffle(factor))
        self.factor = float(factor)

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x) + nn.functional.interpolate(x, scale_factor=self.factor)


def _refinement(width: int) -> nn.Module:
    convs = (nn.Conv2d(width, width, 3, padding=1) for _ in range(2))
    return Residual(nn.Sequential(*(m for conv in convs for m in (nn.ReLU(), conv))))


class Depth(nn.Module):
    """MiDaS small: EfficientNet-Lite3, and maps fused from the smallest to the largest."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.backbone = timm.create_model("tf_efficientnet_lite3", features_only=True)
        widths = self.backbone.feature_info.channels()[1:]
        self.sides = nn.ModuleList(
            nn.Conv2d(w, width << i, 3, padding=1, bias=False) for i, w in enumerate(widths)
        )
        self.units = nn.ModuleList(
            nn.ModuleList(_refinement(width << i) for _ in range(2)) for i in range(4)
        )
        self.outs = nn.ModuleList(
            nn.Conv2d(width << i, width << max(i - 1, 0), 1) for i in range(4)
        )
        self.last = nn.ModuleList(
            (
                nn.Conv2d(width, width // 2, 3, padding=1),
                nn.Sequential(
                    nn.Conv2d(width // 2, 32, 3, padding=1),
                    nn.ReLU(),
                    nn.Conv2d(32, 1, 1),
                    nn.ReLU(),
                ),
            )
        )

    def forward(self, image: Tensor) -> Tensor:
        maps = [s(m) for s, m in zip(self.sides, self.backbone(image)[1:], strict=True)]
        y = self.units[3][0](maps[3])
        for i in (3, 2, 1, 0):
            if i < 3:
                y = y + self.units[i][0](maps[i])
            y = self.units[i][1](y)
            y = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear", align_corners=True)
            y = self.outs[i](y)
        y = nn.functional.interpolate(self.last[0](y), scale_factor=2.0, mode="bilinear")
        return self.last[1](y).squeeze(1)


class Crnn(nn.Module):
    """VGG convolutions to a row of features, then two bidirectional LSTMs."""

    def __init__(self, classes: int = 37) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        before = 1
        pools = {0: (2, 2), 1: (2, 2), 3: (2, 1), 5: (2, 1)}
        for i, width in enumerate((64, 128, 256, 256, 512, 512)):
            layers.append(ConvNorm(before, width, act=nn.ReLU))
            layers += [nn.MaxPool2d(pools[i], pools[i])] if i in pools else []
            before = width
        self.convs = nn.Sequential(*layers, nn.Conv2d(512, 512, 2), nn.ReLU())
        self.lstm = nn.LSTM(512, 256, 2, bidirectional=True)
        self.last = nn.Linear(512, classes)

    def forward(self, image: Tensor) -> Tensor:
        y = self.convs(image).squeeze(2).permute(2, 0, 1)
        return self.last(self.lstm(y)[0])


class LightConvs(nn.Module):
    """PP-LCNet: depthwise and pointwise convolutions with HardSwish, gates in the last blocks.

    Returns the maps behind the rows of `ends`.
    """

    def __init__(self, rows: tuple[tuple[int, int, tuple[int, int] | int, bool], ...]) -> None:
        super().__init__()
        self.stem = ConvNorm(3, 16, 3, 2, act=nn.Hardswish)
        blocks, before = [], 16
        for size, width, stride, gated in rows:
            place = ConvNorm(before, before, size, stride, before, nn.Hardswish)
            gate = [Gate(before)] if gated else []
            blocks.append(nn.Sequential(place, *gate, ConvNorm(before, width, 1, act=nn.Hardswish)))
            before = width
        self.blocks = nn.ModuleList(blocks)

    def forward(self, image: Tensor) -> list[Tensor]:
        maps = [self.stem(image)]
        for block in self.blocks:
            maps.append(block(maps[-1]))
        return maps[1:]


class TextBoxes(nn.Module):
    """The detector of PP-OCRv4: PP-LCNet, a gated pyramid, and a map of probabilities (DB)."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        rows = ((3, 32, 1, 0), (3, 48, 2, 0), (3, 48, 1, 0), (3, 96, 2, 0), (3, 96, 1, 0),
                (3, 192, 2, 0), *[(5, 192, 1, 0)] * 4, (5, 384, 2, 1), (5, 384, 1, 1))  # fmt: skip
        self.backbone = LightConvs(rows)
        self.sides = nn.ModuleList(self._gated(w, width, 1) for w in (48, 96, 192, 384))
        self.outs = nn.ModuleList(self._gated(width, width // 4, 3) for _ in range(4))
        self.head = nn.Sequential(
            ConvNorm(width, width // 4, act=nn.ReLU),
            *(nn.ConvTranspose2d(width // 4, width // 4, 2, 2), nn.BatchNorm2d(width // 4)),
            *(nn.ReLU(), nn.ConvTranspose2d(width // 4, 1, 2, 2), nn.Sigmoid()),
        )

    @staticmethod
    def _gated(inputs: int, outputs: int, size: int) -> nn.Module:
        conv = nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False)
        return nn.Sequential(conv, Residual(Gate(outputs)))

    def forward(self, image: Tensor) -> Tensor:
        found = self.backbone(image)
        maps = [side(found[i]) for side, i in zip(self.sides, (2, 4, 9, 11), strict=True)]
        for i in (2, 1, 0):
            maps[i] = maps[i] + twice(maps[i + 1])
        parts = [
            nn.functional.interpolate(out(m), scale_factor=float(1 << i))
            for i, (out, m) in enumerate(zip(self.outs, maps, strict=True))
        ]
        return self.head(torch.cat(parts[::-1], 1))


class TextLine(nn.Module):
    """The recognizer of PP-OCRv4: PP-LCNet to a row of features, SVTR's layers, many classes."""

    def __init__(self, classes: int = 6625, width: int = 120) -> None:
        super().__init__()
        rows = ((3, 32, 1, 0), (3, 64, 1, 0), (3, 64, 1, 0), (3, 128, (2, 1), 0), (3, 128, 1, 0),
                (3, 240, (1, 2), 0), *[(5, 240, 1, 0)] * 4, (5, 480, (2, 1), 1),
                (5, 480, 1, 1), (5, 480, (2, 1), 1), (5, 480, 1, 1))  # fmt: skip
        self.backbone, self.pool = LightConvs(rows), nn.AvgPool2d((3, 2))
        self.narrow = nn.Sequential(ConvNorm(480, 60), ConvNorm(60, width, 1))
        self.mixers = nn.Sequential(*(transformer(width, 8, nn.SiLU) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.wide = ConvNorm(width, 480, 1)
        self.join = nn.Sequential(ConvNorm(960, 60), ConvNorm(60, width, 1))
        self.last = nn.Linear(width, classes)

    def forward(self, image: Tensor) -> Tensor:
        x = self.pool(self.backbone(image)[-1])
        y = self.narrow(x)
        tokens = self.norm(self.mixers(y.flatten(2).transpose(1, 2)))
        y = self.wide(tokens.transpose(1, 2).reshape(y.shape))
        y = self.join(torch.cat((x, y), 1)).squeeze(2).transpose(1, 2)
        return self.last(y).softmax(-1)
