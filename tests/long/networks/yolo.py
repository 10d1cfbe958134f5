"""YOLOv8, YOLO11, YOLO26 and YOLOX, written from their papers and published diagrams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from tests.long.networks.blocks import ConvNorm, Residual, joined, twice

_CLASSES = 80
_STRIDES = (8, 16, 32)
_BINS = 16  # of the distribution of a distance to a side of a box
_KEPT = 300  # boxes

Cell = Callable[[int], nn.Module]


def _bottleneck(width: int, inner: int) -> nn.Module:
    return Residual(nn.Sequential(ConvNorm(width, inner), ConvNorm(inner, width)))


def _plain_cell(width: int) -> nn.Module:
    return _bottleneck(width, width)


def _narrow_cell(width: int) -> nn.Module:
    return _bottleneck(width, width // 2)


class _Csp3(nn.Module):
    """Two bottlenecks on one half, a pointwise convolution on the other."""

    def __init__(self, width: int) -> None:
        super().__init__()
        half = width // 2
        self.one, self.two = ConvNorm(width, half, 1), ConvNorm(width, half, 1)
        self.cells = nn.Sequential(*(_plain_cell(half) for _ in range(2)))
        self.out = ConvNorm(width, width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(torch.cat((self.cells(self.one(x)), self.two(x)), 1))


class _Split(nn.Module):
    """Cells in a row on one half of the channels; all that they make is joined."""

    def __init__(
        self, inputs: int, outputs: int, cell: Cell, count: int = 1, share: float = 0.5
    ) -> None:
        super().__init__()
        width = int(outputs * share)
        self.first = ConvNorm(inputs, 2 * width, 1)
        self.cells = nn.ModuleList(cell(width) for _ in range(count))
        self.last = ConvNorm((2 + count) * width, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        parts = list(self.first(x).chunk(2, 1))
        for cell in self.cells:
            parts.append(cell(parts[-1]))
        return self.last(torch.cat(parts, 1))


class _Pools(nn.Module):
    """Three pools in a row, joined."""

    def __init__(self, width: int, residual: bool = False) -> None:
        super().__init__()
        self.residual = residual
        self.first, self.last = ConvNorm(width, width // 2, 1), ConvNorm(2 * width, width, 1)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Tensor) -> Tensor:
        parts = [self.first(x)]
        for _ in range(3):
            parts.append(self.pool(parts[-1]))
        y = self.last(torch.cat(parts, 1))
        return x + y if self.residual else y


class _PixelAttention(nn.Module):
    """Attention over all pixels; keys have half the width of values."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.heads, self.values = width // 64, 64
        self.keys = self.values // 2
        self.qkv = ConvNorm(width, width * 2, 1, act=nn.Identity)
        self.place = ConvNorm(width, width, 3, groups=width, act=nn.Identity)
        self.out = ConvNorm(width, width, 1, act=nn.Identity)

    def forward(self, x: Tensor) -> Tensor:
        batch, width, height, row = x.shape
        qkv = self.qkv(x).view(batch, self.heads, 2 * self.keys + self.values, height * row)
        q, k, v = qkv.split((self.keys, self.keys, self.values), 2)
        weights = (q.transpose(2, 3) @ k * self.keys**-0.5).softmax(-1)
        y = (v @ weights.transpose(2, 3)).view(batch, width, height, row)
        return self.out(y + self.place(v.reshape(batch, width, height, row)))


def _attending(width: int) -> nn.Module:
    wide = nn.Sequential(
        ConvNorm(width, 2 * width, 1), ConvNorm(2 * width, width, 1, act=nn.Identity)
    )
    return nn.Sequential(Residual(_PixelAttention(width)), Residual(wide))


class _HalfAttention(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.last = ConvNorm(width, width, 1), ConvNorm(width, width, 1)
        self.body = _attending(width // 2)

    def forward(self, x: Tensor) -> Tensor:
        one, two = self.first(x).chunk(2, 1)
        return self.last(torch.cat((one, self.body(two)), 1))


class _Neck(nn.Module):
    """Joins three maps from the smallest to the largest and back."""

    def __init__(self, widths: Sequence[int], cells: Sequence[Cell], down: type = ConvNorm) -> None:
        super().__init__()
        large, middle, small = widths
        self.up1 = _Split(middle + small, middle, cells[0])
        self.up2 = _Split(large + middle, large, cells[0])
        self.to_middle, self.to_small = (down(w, w, 3, 2) for w in (large, middle))
        self.down1 = _Split(large + middle, middle, cells[0])
        self.down2 = _Split(middle + small, small, cells[1])

    def forward(self, large: Tensor, middle: Tensor, small: Tensor) -> list[Tensor]:
        up = self.up1(torch.cat((twice(small), middle), 1))
        high = self.up2(torch.cat((twice(up), large), 1))
        middle = self.down1(torch.cat((self.to_middle(high), up), 1))
        return [high, middle, self.down2(torch.cat((self.to_small(middle), small), 1))]


def _anchors(size: int) -> tuple[Tensor, Tensor]:
    """Centers [2, pixels of all maps] in pixels of each map, and their strides."""
    centers, strides = [], []
    for stride in _STRIDES:
        along = torch.arange(size // stride) + 0.5
        rows, columns = torch.meshgrid(along, along, indexing="ij")
        centers.append(torch.stack((columns, rows)).flatten(1))
        strides.append(torch.full((1, centers[-1].shape[1]), float(stride)))
    return torch.cat(centers, 1), torch.cat(strides, 1)


class _Heads(nn.Module):
    """Boxes and classes of each map; `bins` 1 regresses distances without a distribution."""

    def __init__(self, widths: Sequence[int], size: int, bins: int, light: bool) -> None:
        super().__init__()
        self.bins = bins
        places = max(16, widths[0] // 4, 4 * bins)
        scores = max(widths[0], _CLASSES)
        self.places = nn.ModuleList(self._branch(w, places, 4 * bins, False) for w in widths)
        self.scores = nn.ModuleList(self._branch(w, scores, _CLASSES, light) for w in widths)
        centers, strides = _anchors(size)
        self.register_buffer("centers", centers)
        self.register_buffer("strides", strides)
        self.register_buffer("steps", torch.arange(float(bins)).view(1, bins, 1, 1))

    @staticmethod
    def _branch(width: int, inner: int, outputs: int, light: bool) -> nn.Module:
        def conv(inputs: int) -> nn.Module:
            if not light:
                return ConvNorm(inputs, inner)
            return nn.Sequential(
                ConvNorm(inputs, inputs, 3, groups=inputs), ConvNorm(inputs, inner, 1)
            )

        return nn.Sequential(conv(width), conv(inner), nn.Conv2d(inner, outputs, 1))

    def forward(self, maps: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Corners or centers with sizes in pixels [1, 4, boxes], scores [1, classes, boxes]."""
        sides = joined([head(m) for head, m in zip(self.places, maps, strict=True)])
        if self.bins > 1:
            spread = sides.view(1, 4, self.bins, -1).transpose(1, 2).softmax(1)
            sides = (spread * self.steps).sum(1)
        near, far = self.centers - sides[:, :2], self.centers + sides[:, 2:]
        both = ((near + far) / 2, far - near) if self.bins > 1 else (near, far)
        scores = joined([head(m) for head, m in zip(self.scores, maps, strict=True)])
        return torch.cat(both, 1) * self.strides, scores.sigmoid()


def _best(boxes: Tensor, scores: Tensor) -> Tensor:
    """The best boxes with their scores and classes, [1, boxes, 6], without suppression."""
    boxes, scores = boxes.transpose(1, 2), scores.transpose(1, 2)
    _, at = scores.amax(-1).topk(_KEPT)
    boxes = boxes.gather(1, at.unsqueeze(-1).expand(-1, -1, 4))
    scores = scores.gather(1, at.unsqueeze(-1).expand(-1, -1, _CLASSES))
    best, at = scores.flatten(1).topk(_KEPT)
    boxes = boxes.gather(1, (at // _CLASSES).unsqueeze(-1).expand(-1, -1, 4))
    return torch.cat((boxes, best.unsqueeze(-1), (at % _CLASSES).unsqueeze(-1).float()), -1)


class Yolo(nn.Module):
    """`version` 8, 11 or 26; `width` 16 for n, 32 for s; `select`: YOLO26 gives the best boxes."""

    def __init__(self, version: int, width: int, size: int, select: bool = True) -> None:
        super().__init__()
        self.selects = version == 26 and select
        old = version == 8
        light, heavy = (_plain_cell, _plain_cell) if old else (_narrow_cell, _Csp3)
        w = [width << i for i in range(5)]
        stages = [(w[1], w[1] if old else w[2], light, 1, 0.5 if old else 0.25)]
        stages += [(w[2], w[2] if old else w[3], light, 2 if old else 1, stages[0][4])]
        stages += [(w[3], w[3], heavy, 2 if old else 1, 0.5), (w[4], w[4], heavy, 1, 0.5)]
        self.stem = ConvNorm(3, width, 3, 2)
        self.stages = nn.ModuleList()
        before = width
        for inputs, outputs, cell, count, share in stages:
            down = ConvNorm(before, inputs, 3, 2)
            self.stages.append(nn.Sequential(down, _Split(inputs, outputs, cell, count, share)))
            before = outputs
        self.end = nn.Sequential(_Pools(w[4], version == 26))
        if not old:
            self.end.append(_HalfAttention(w[4]))
        maps = [s[1] for s in stages[1:]]
        outputs = [w[2], w[3], w[4]]
        self.neck = _YoloNeck(maps, outputs, (light, heavy))
        self.heads = _Heads(outputs, size, 1 if version == 26 else _BINS, light=not old)

    def forward(self, image: Tensor) -> Tensor:
        x, maps = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        boxes, scores = self.heads(self.neck(maps[1], maps[2], self.end(x)))
        return _best(boxes, scores) if self.selects else torch.cat((boxes, scores), 1)


class _YoloNeck(_Neck):
    """A neck whose results are narrower or wider than the backbone's maps."""

    def __init__(self, maps: Sequence[int], widths: Sequence[int], cells: Sequence[Cell]) -> None:
        super().__init__(widths, cells)
        self.up1 = _Split(maps[1] + maps[2], widths[1], cells[0])
        self.up2 = _Split(maps[0] + widths[1], widths[0], cells[0])


class _Separable(nn.Sequential):
    def __init__(self, inputs: int, outputs: int, size: int = 3, stride: int = 1) -> None:
        super().__init__(
            ConvNorm(inputs, inputs, size, stride, inputs), ConvNorm(inputs, outputs, 1)
        )


def _light_cell(width: int) -> nn.Module:
    return Residual(nn.Sequential(ConvNorm(width, width, 1), _Separable(width, width)))


class YoloX(nn.Module):
    """YOLOX-nano: depthwise convolutions, a focus stem and decoupled heads."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = ConvNorm(12, 16)
        rows = ((16, 32, 1), (32, 64, 3), (64, 128, 3), (128, 256, 1))
        self.stages = nn.ModuleList(
            nn.Sequential(_Separable(a, b, 3, 2), _Split(b, b, _light_cell, n)) for a, b, n in rows
        )
        self.pools = _Pools(256)
        self.neck = _Neck((64, 128, 256), (_light_cell, _light_cell), _Separable)
        self.stems = nn.ModuleList(ConvNorm(w, 64, 1) for w in (64, 128, 256))
        branches = [nn.Sequential(_Separable(64, 64), _Separable(64, 64)) for _ in range(6)]
        self.branches = nn.ModuleList(branches)
        self.scores = nn.ModuleList(nn.Conv2d(64, _CLASSES, 1) for _ in range(3))
        self.places = nn.ModuleList(nn.Conv2d(64, 5, 1) for _ in range(3))

    def forward(self, image: Tensor) -> Tensor:
        corners = [image[..., i::2, j::2] for j in (0, 1) for i in (0, 1)]
        x, maps = self.stem(torch.cat(corners, 1)), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        found = []
        for i, y in enumerate(self.neck(maps[1], maps[2], self.pools(x))):
            y = self.stems[i](y)
            scores = self.scores[i](self.branches[i](y)).sigmoid()
            places = self.places[i](self.branches[i + 3](y))
            found.append(torch.cat((places[:, :4], places[:, 4:].sigmoid(), scores), 1))
        return joined(found).transpose(1, 2)
