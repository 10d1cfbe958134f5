"""Detectors and a pose network on light backbones."""

from __future__ import annotations

from itertools import pairwise

import torch
import torchvision
from torch import Tensor, nn

from tests.long.networks.blocks import ConvNorm, joined, separable

_CLASSES = 80


class _Ghost(nn.Module):
    """Half of the outputs are depthwise results of the other half."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first = ConvNorm(inputs, half, 1, act=nn.LeakyReLU)
        self.cheap = ConvNorm(half, half, 3, groups=half, act=nn.LeakyReLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        return torch.cat((y, self.cheap(y)), 1)


class NanoDetPlus(nn.Module):
    """ShuffleNetV2, a ghost neck of four maps, and heads of 5x5 depthwise convolutions."""

    def __init__(self, width: int = 96, bins: int = 8) -> None:
        super().__init__()
        net = torchvision.models.shufflenet_v2_x1_0()
        self.stem = nn.Sequential(net.conv1, net.maxpool)
        self.stages = nn.ModuleList((net.stage2, net.stage3, net.stage4))
        self.narrow = nn.ModuleList(
            ConvNorm(w, width, 1, act=nn.LeakyReLU) for w in (116, 232, 464)
        )
        self.ups = nn.ModuleList(_Ghost(2 * width, width) for _ in range(2))
        self.steps = nn.ModuleList(self._separable(width, 2) for _ in range(2))
        self.downs = nn.ModuleList(_Ghost(2 * width, width) for _ in range(2))
        self.extra = nn.ModuleList(self._separable(width, 2) for _ in range(2))
        self.heads = nn.ModuleList(
            nn.Sequential(
                *(self._separable(width), self._separable(width)),
                nn.Conv2d(width, _CLASSES + 4 * bins, 1),
            )
            for _ in range(4)
        )

    @staticmethod
    def _separable(width: int, stride: int = 1) -> nn.Module:
        return separable(width, width, 5, stride, nn.LeakyReLU)

    def forward(self, image: Tensor) -> Tensor:
        x, maps = self.stem(image), []
        for stage, narrow in zip(self.stages, self.narrow, strict=True):
            x = stage(x)
            maps.append(narrow(x))
        large, middle, small = maps
        middle = self.ups[0](torch.cat((self._up(small), middle), 1))
        large = self.ups[1](torch.cat((self._up(middle), large), 1))
        middle = self.downs[0](torch.cat((self.steps[0](large), middle), 1))
        last = self.downs[1](torch.cat((self.steps[1](middle), small), 1))
        extra = self.extra[0](small) + self.extra[1](last)
        outputs = zip(self.heads, (large, middle, last, extra), strict=True)
        found = joined([head(m) for head, m in outputs])
        return torch.cat((found[:, :_CLASSES].sigmoid(), found[:, _CLASSES:]), 1).transpose(1, 2)

    @staticmethod
    def _up(x: Tensor) -> Tensor:
        return nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear")


class Ssd(nn.Module):
    """SSDLite: MobileNetV2 with heads at six sizes."""

    def __init__(self, classes: int = 91) -> None:
        super().__init__()
        features = torchvision.models.mobilenet_v2().features
        expand = features[14].conv[0]
        self.near = features[:14]
        self.expand, self.rest = expand, nn.Sequential(features[14].conv[1:], features[15:])
        widths = (576, 1280, 512, 256, 256, 128)
        self.extras = nn.ModuleList(
            nn.Sequential(
                ConvNorm(a, b // 2, 1, act=nn.ReLU6), separable(b // 2, b, 3, 2, nn.ReLU6)
            )
            for a, b in pairwise(widths[1:])
        )
        self.places = nn.ModuleList(self._head(w, 24) for w in widths)
        self.scores = nn.ModuleList(self._head(w, 6 * classes) for w in widths)
        self.classes = classes

    @staticmethod
    def _head(width: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            ConvNorm(width, width, 3, groups=width, act=nn.ReLU6), nn.Conv2d(width, outputs, 1)
        )

    def forward(self, image: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.expand(self.near(image))]
        maps.append(self.rest(maps[0]))
        for extra in self.extras:
            maps.append(extra(maps[-1]))
        places = [self._rows(head(m), 4) for head, m in zip(self.places, maps, strict=True)]
        scores = [
            self._rows(head(m), self.classes) for head, m in zip(self.scores, maps, strict=True)
        ]
        return torch.cat(places, 1), torch.cat(scores, 1).softmax(-1)

    @staticmethod
    def _rows(x: Tensor, values: int) -> Tensor:
        return x.permute(0, 2, 3, 1).reshape(1, -1, values)


class Pose(nn.Module):
    """MoveNet's plan: MobileNetV2, a feature pyramid, and the joints nearest to a center."""

    def __init__(self, joints: int = 17, width: int = 64) -> None:
        super().__init__()
        features = torchvision.models.mobilenet_v2().features
        self.parts = nn.ModuleList((features[:4], features[4:7], features[7:14], features[14:18]))
        self.sides = nn.ModuleList(nn.Conv2d(w, width, 1) for w in (24, 32, 96, 320))
        self.smooth = nn.ModuleList(separable(width, width) for _ in range(3))
        self.heads = nn.ModuleList(
            nn.Sequential(separable(width, 96), nn.Conv2d(96, outputs, 1))
            for outputs in (1, joints, 2 * joints, 2 * joints)
        )
        self.joints = joints

    def forward(self, image: Tensor) -> Tensor:
        x, maps = image, []
        for part in self.parts:
            x = part(x)
            maps.append(x)
        y = self.sides[3](maps[3])
        for i in (2, 1, 0):
            y = nn.functional.interpolate(y, scale_factor=2.0, mode="bilinear")
            y = self.smooth[i](self.sides[i](maps[i]) + y)
        center, heat, places, offsets = (head(y) for head in self.heads)
        _, _, height, width = heat.shape
        at = center.flatten(1).argmax(1)
        row, column = (at // width).float(), (at % width).float()
        start = places.flatten(2)[..., at].view(self.joints, 2)
        rows = torch.arange(float(height)).view(1, height, 1) - (start[:, :1, None] + row)
        columns = torch.arange(float(width)).view(1, 1, width) - (start[:, 1:, None] + column)
        near = heat[0].sigmoid() / ((rows**2 + columns**2).sqrt() + 1.8)
        best = near.flatten(1).argmax(1)
        fine = offsets.view(self.joints, 2, -1).gather(2, best.view(-1, 1, 1).expand(-1, 2, 1))
        score = heat[0].sigmoid().flatten(1).gather(1, best.view(-1, 1))
        y = ((best // width).float().view(-1, 1) + fine[:, 0]) / height
        x = ((best % width).float().view(-1, 1) + fine[:, 1]) / width
        return torch.cat((y, x, score), 1)
