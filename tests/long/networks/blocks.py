"""Blocks that several networks share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class ConvNorm(nn.Sequential):
    """A convolution with padding, batch normalization and an activation."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        size: int = 3,
        stride: int = 1,
        groups: int = 1,
        act: type[nn.Module] = nn.SiLU,
    ) -> None:
        conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), act())


def separable(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, act: type[nn.Module] = nn.ReLU
) -> nn.Sequential:
    """A depthwise and a pointwise convolution."""
    return nn.Sequential(
        ConvNorm(inputs, inputs, size, stride, inputs, act), ConvNorm(inputs, outputs, 1, act=act)
    )


class Gate(nn.Module):
    """Squeeze and excite."""

    def __init__(self, width: int, reduction: int = 4) -> None:
        super().__init__()
        small = max(width // reduction, 8)
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1),
            *(nn.Conv2d(width, small, 1), nn.ReLU()),
            *(nn.Conv2d(small, width, 1), nn.Hardsigmoid()),
        )

    def forward(self, x: Tensor) -> Tensor:
        return x * self.gate(x)


class Residual(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x)


class Attention(nn.Module):
    """Self-attention over [batch, tokens, width]."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, width = x.shape
        parts = self.qkv(x).reshape(batch, tokens, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4)
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.out(y.transpose(1, 2).reshape(batch, tokens, width))


def transformer(width: int, heads: int, act: type[nn.Module] = nn.GELU) -> nn.Sequential:
    """A pre-norm layer of attention and a product of four times the width."""
    wide = nn.Sequential(nn.Linear(width, 4 * width), act(), nn.Linear(4 * width, width))
    return nn.Sequential(
        Residual(nn.Sequential(nn.LayerNorm(width), Attention(width, heads))),
        Residual(nn.Sequential(nn.LayerNorm(width), wide)),
    )


def twice(x: Tensor) -> Tensor:
    """Twice the height and width, each pixel four times."""
    return nn.functional.interpolate(x, scale_factor=2.0, mode="nearest")


def joined(maps: Sequence[Tensor]) -> Tensor:
    """Maps of several sizes as [batch, channels, pixels of all]."""
    return torch.cat([m.flatten(2) for m in maps], 2)
