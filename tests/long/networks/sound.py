"""Networks for sound: keywords, voice activity, noise, speech to text and text to speech."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import VitsConfig, VitsModel

from tests.long.networks.blocks import ConvNorm, separable


def ds_cnn(classes: int = 12, width: int = 64) -> nn.Module:
    """MLPerf Tiny's keyword network, for 49 frames of 10 features."""
    return nn.Sequential(
        ConvNorm(1, width, 5, 2, act=nn.ReLU),
        *(separable(width, width) for _ in range(4)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes), nn.Softmax(-1)),
    )


class _Temporal(nn.Module):
    """A residual block of TC-ResNet: convolutions of 9 frames."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv1d(inputs, outputs, 9, 2, 4, bias=False), nn.BatchNorm1d(outputs), nn.ReLU()),
            *(nn.Conv1d(outputs, outputs, 9, 1, 4, bias=False), nn.BatchNorm1d(outputs)),
        )
        self.side = nn.Sequential(nn.Conv1d(inputs, outputs, 1, 2), nn.BatchNorm1d(outputs))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + torch.relu(self.side(x)))


def tc_resnet(features: int = 40, classes: int = 12) -> nn.Module:
    """TC-ResNet8: features are the channels of a convolution over time."""
    return nn.Sequential(
        nn.Conv1d(features, 16, 3, padding=1, bias=False),
        *(_Temporal(16, 24), _Temporal(24, 32), _Temporal(32, 48)),
        *(nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(48, classes)),
    )


class _Broadcast(nn.Module):
    """A block of BC-ResNet: a residual over time is added to all frequencies."""

    def __init__(self, inputs: int, width: int, stride: int, dilation: int, bands: int = 5) -> None:
        super().__init__()
        self.bands, self.same = bands, inputs == width
        self.enter = ConvNorm(inputs, width, 1, act=nn.ReLU) if not self.same else nn.Identity()
        self.across = nn.Conv2d(width, width, (3, 1), (stride, 1), (1, 0), groups=width, bias=False)
        self.norm = nn.BatchNorm2d(width * bands)
        self.along = nn.Sequential(
            nn.Conv2d(width, width, (1, 3), 1, (0, dilation), (1, dilation), width, bias=False),
            *(nn.BatchNorm2d(width), nn.SiLU(), nn.Conv2d(width, width, 1, bias=False)),
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.across(self.enter(x))
        batch, width, rows, frames = y.shape
        split = y.reshape(batch, width * self.bands, rows // self.bands, frames)
        y = self.norm(split).reshape(y.shape)
        z = self.along(y.mean(2, keepdim=True))
        return torch.relu(x + y + z if self.same else y + z)


def bc_resnet(classes: int = 12) -> nn.Module:
    """BC-ResNet-1, for 40 features and 101 frames."""
    blocks, before = [], 16
    for width, count, stride, dilation in (
        (8, 2, 1, 1),
        (12, 2, 2, 2),
        (16, 4, 2, 4),
        (20, 4, 1, 8),
    ):
        for i in range(count):
            blocks.append(_Broadcast(before, width, 1 if i else stride, dilation))
            before = width
    last = nn.Conv2d(20, 20, 5, padding=(0, 2), groups=20, bias=False)
    return nn.Sequential(
        ConvNormRows(1, 16),
        *(*blocks, last, ConvNorm(20, 32, 1, act=nn.ReLU), nn.AdaptiveAvgPool2d(1)),
        *(nn.Conv2d(32, classes, 1), nn.Flatten()),
    )


class ConvNormRows(nn.Sequential):
    """A 5x5 convolution with a stride over the rows only."""

    def __init__(self, inputs: int, outputs: int) -> None:
        conv = nn.Conv2d(inputs, outputs, 5, (2, 1), 2, bias=False)
        super().__init__(conv, nn.BatchNorm2d(outputs), nn.ReLU())


class VoiceActivity(nn.Module):
    """Silero's plan: a learned spectrum of 576 samples, convolutions, an LSTM with its state."""

    def __init__(self) -> None:
        super().__init__()
        self.spectrum = nn.Conv1d(1, 258, 256, 128, bias=False)
        rows = ((129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1))
        self.convs = nn.Sequential(
            *(m for a, b, s in rows for m in (nn.Conv1d(a, b, 3, s, 1), nn.ReLU()))
        )
        self.lstm = nn.LSTM(128, 128)
        self.last = nn.Conv1d(128, 1, 1)

    def forward(self, sound: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        x = nn.functional.pad(sound.unsqueeze(1), (0, 64), "reflect")
        real, imaginary = self.spectrum(x).chunk(2, 1)
        y = self.convs((real**2 + imaginary**2).sqrt()).mean(2)
        y, (h, c) = self.lstm(y.unsqueeze(0), (state[:1], state[1:]))
        y = self.last(torch.relu(y[0]).unsqueeze(2)).sigmoid()
        return y.mean((1, 2)).unsqueeze(1), torch.cat((h, c))


class NoiseFilter(nn.Module):
    """DeepFilterNet's plan: convolutions over bands, GRUs over frames, gains and filter taps."""

    def __init__(self, bands: int = 32, bins: int = 96, taps: int = 5) -> None:
        super().__init__()
        self.bands = nn.ModuleList(self._conv(a, 64, s) for a, s in ((1, 1), (64, 2), (64, 2)))
        self.bins = nn.ModuleList(self._conv(a, 64, s) for a, s in ((2, 1), (64, 2)))
        self.narrow = nn.Linear(64 * bins // 2, 64 * bands // 4)
        self.gru = nn.GRU(64 * bands // 4, 256, batch_first=True)
        self.wide = nn.Linear(256, 64 * bands // 4)
        self.ups = nn.ModuleList(
            nn.ConvTranspose2d(64, 64, (1, 3), (1, 2), (0, 1), (0, 1), groups=64) for _ in range(2)
        )
        self.last = nn.Conv2d(64, 1, (1, 3), padding=(0, 1))
        self.taps_gru = nn.GRU(256, 256, 2, batch_first=True)
        self.taps = nn.Linear(256, bins * taps * 2)

    @staticmethod
    def _conv(inputs: int, outputs: int, stride: int) -> nn.Module:
        depthwise = nn.Conv2d(
            inputs, outputs, 3, (1, stride), 1, groups=2 if inputs == 2 else inputs
        )
        pointwise = nn.Conv2d(outputs, outputs, 1, bias=False)
        return nn.Sequential(depthwise, pointwise, nn.BatchNorm2d(outputs), nn.ReLU())

    def forward(self, bands: Tensor, bins: Tensor) -> tuple[Tensor, Tensor]:
        maps = [self.bands[0](bands)]
        for conv in self.bands[1:]:
            maps.append(conv(maps[-1]))
        small = maps[-1]
        for conv in self.bins:
            bins = conv(bins)
        rows = small.permute(0, 2, 3, 1).flatten(2)
        rows = rows + torch.relu(self.narrow(bins.permute(0, 2, 3, 1).flatten(2)))
        hidden, _ = self.gru(rows)
        y = torch.relu(self.wide(hidden)).view(1, -1, small.shape[3], 64).permute(0, 3, 1, 2)
        for up, skip in zip(self.ups, maps[::-1], strict=False):
            y = torch.relu(up(y + skip))
        gains = self.last(y + maps[0]).sigmoid()
        return gains, self.taps(self.taps_gru(hidden)[0]).tanh()


class Speech(nn.Module):
    """Piper's second half: the flow and HiFi-GAN of VITS, from latents to sound."""

    def __init__(self) -> None:
        super().__init__()
        config = VitsConfig(
            upsample_rates=[8, 8, 4],
            upsample_kernel_sizes=[16, 16, 8],
            upsample_initial_channel=256,
            resblock_kernel_sizes=[3, 5, 7],
            resblock_dilation_sizes=[[1, 3], [2, 6], [3, 12]],
        )
        net = VitsModel(config)
        self.flow, self.decoder = net.flow, net.decoder

    def forward(self, latents: Tensor) -> Tensor:
        mask = torch.ones_like(latents[:, :1])
        return self.decoder(self.flow(latents, mask, reverse=True))


def without_norms(module: nn.Module) -> nn.Module:
    """Folds the weight normalization of a trained network, as exporters of Piper do."""
    for part in module.modules():
        if nn.utils.parametrize.is_parametrized(part, "weight"):
            nn.utils.parametrize.remove_parametrizations(part, "weight")
    return module


def speech() -> nn.Module:
    return without_norms(Speech())
