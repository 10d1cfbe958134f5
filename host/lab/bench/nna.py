"""Benchmarks products on a board's emulated NNA.

Reports the NNA's cost account, whether the sums are correct, and the speed of the emulation.
"""

from __future__ import annotations

import functools
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edgekit.device.runtime.arrays.nna import (
    Emulated,
    emulate_conv3x3,
    emulate_depthwise3x3,
    emulate_matmul,
    emulate_pointwise,
)
from edgekit.device.runtime.arrays.nna_account import NnaAccount, trace_document
from edgekit.host.common.files import atomic_write
from edgekit.host.errors import InputError
from edgekit.kb.targets.board import BoardProfile, board_names, load_board
from edgekit.kb.targets.units import NnaUnit

Array = npt.NDArray[Any]

_MOST_PRODUCTS = 1 << 35  # some minutes of emulation
_MOST_EXTENT = 1 << 20
_PYTHON_INSTRUCTIONS = 60_000  # about two seconds on the reference emulator in Python
_SECONDS = 0.5  # time budget for timing
_EVENTS = 200_000  # of a trace; viewers become slow beyond that


@dataclass(frozen=True)
class Matmul:
    """A [m, k] times F [k, n]."""

    m: int
    k: int
    n: int

    @property
    def products(self) -> int:
        return self.m * self.k * self.n

    @property
    def text(self) -> str:
        return f"[{self.m}, {self.k}] . [{self.k}, {self.n}]"


@dataclass(frozen=True)
class Conv:
    """A 3x3 convolution of an image [height, width, inputs] to `outputs` channels, padding 1."""

    height: int
    width: int
    inputs: int
    outputs: int
    stride: int = 1

    @property
    def products(self) -> int:
        rows, columns = ((n - 1) // self.stride + 1 for n in (self.height, self.width))
        return rows * columns * 9 * self.inputs * self.outputs

    @property
    def text(self) -> str:
        image = f"[{self.height}, {self.width}, {self.inputs}]"
        return f"3x3 convolution of {image} to {self.outputs} channels, stride {self.stride}"


@dataclass(frozen=True)
class Depthwise:
    """A 3x3 depthwise convolution of an image [height, width, channels], padding 1."""

    height: int
    width: int
    channels: int
    stride: int = 1

    @property
    def products(self) -> int:
        rows, columns = ((n - 1) // self.stride + 1 for n in (self.height, self.width))
        return rows * columns * 9 * self.channels

    @property
    def text(self) -> str:
        image = f"[{self.height}, {self.width}, {self.channels}]"
        return f"3x3 depthwise convolution of {image}, stride {self.stride}"


@dataclass(frozen=True)
class Pointwise:
    """A 1x1 convolution or fully connected layer of `points` points or rows."""

    points: int
    inputs: int
    outputs: int

    @property
    def products(self) -> int:
        return self.points * self.inputs * self.outputs

    @property
    def text(self) -> str:
        return f"1x1 layer of {self.points} points, {self.inputs} to {self.outputs} channels"


Product = Matmul | Conv | Depthwise | Pointwise
KINDS = {Matmul: "matmul", Conv: "conv3x3", Depthwise: "depthwise3x3", Pointwise: "pointwise"}


@dataclass(frozen=True)
class Timing:
    """Median milliseconds of a product, and useful multiply-adds per second."""

    median_ms: float
    useful_per_second: float


@dataclass(frozen=True)
class NnaBenchmark:
    """`correct`: the sums equal NumPy's; `python` is None if that emulator would take too long."""

    board: str
    product: Product
    unit: NnaUnit
    account: NnaAccount
    correct: bool
    native: Timing
    native_account: Timing
    python: Timing | None
    traced: int


def unit_of(board: BoardProfile) -> NnaUnit:
    """The NNA of a board; InputError if it has none."""
    if board.nna is None:
        having = [name for name in board_names() if load_board(name).nna]
        raise InputError(
            f"expected a board with an NNA ({', '.join(having)}), found {board.name}; "
            "name one with --board"
        )
    return board.nna


def check_product(product: Product) -> None:
    """InputError if a product is too large to emulate."""
    extents = [value for name, value in asdict(product).items() if name != "stride"]
    if min(extents) < 1 or max(extents) > _MOST_EXTENT or product.products > _MOST_PRODUCTS:
        raise InputError(
            f"expected extents of 1 to {_MOST_EXTENT} and at most {_MOST_PRODUCTS} products, "
            f"found {','.join(map(str, extents))} ({product.products}); choose a smaller shape"
        )


def bench_nna(board: BoardProfile, product: Product, trace: Path | None = None) -> NnaBenchmark:
    """Emulates a random product; writes a trace of its first instructions to `trace`."""
    unit = unit_of(board)
    check_product(product)
    emulate, expected = _prepare_product(product, unit)
    done = emulate("native", True, _EVENTS if trace else 0)
    if trace:
        document = trace_document(done.events, f"{board.name}: {product.text}")
        atomic_write(trace, json.dumps(document).encode())
    assert done.account
    small = sum(done.account.instructions.values()) <= _PYTHON_INSTRUCTIONS
    return NnaBenchmark(
        board=board.name,
        product=product,
        unit=unit,
        account=done.account,
        correct=bool(np.array_equal(done.sums, expected)),
        native=_time_runs(lambda: emulate("native", False, 0), product),
        native_account=_time_runs(lambda: emulate("native", True, 0), product),
        python=_time_runs(lambda: emulate("python", True, 0), product) if small else None,
        traced=len(done.events),
    )


def _prepare_product(
    product: Product, unit: NnaUnit
) -> tuple[Callable[[str, bool, int], Emulated], Array]:
    """A function emulating the product (emulator, with account, events), and NumPy's sums."""
    emulate, operands, expected = _random_product(product)

    def run(emulator: str, account: bool, trace: int) -> Emulated:
        return emulate(*operands, account=account, chip=unit.chip, emulator=emulator, trace=trace)

    return run, expected


def _random_product(product: Product) -> tuple[Callable[..., Emulated], tuple[Array, Array], Array]:
    """The emulator for the kind of product, random operands, and NumPy's sums."""
    random = np.random.default_rng(0)

    def values(*shape: int) -> Array:
        return random.integers(-128, 128, shape, np.int8)

    if isinstance(product, Matmul):
        a, f = values(product.m, product.k), values(product.k, product.n)
        return emulate_matmul, (a, f), _matmul(a, f)
    if isinstance(product, Pointwise):
        x, w = values(product.points, product.inputs), values(product.outputs, product.inputs)
        return emulate_pointwise, (x, w), _matmul(x, w.T)
    around: dict[str, Any] = {"stride": product.stride, "padding": 1}
    if isinstance(product, Depthwise):
        x = values(product.height, product.width, product.channels)
        w = values(3, 3, product.channels)
        return functools.partial(emulate_depthwise3x3, **around), (x, w), _depthwise(x, w, product)
    x = values(product.height, product.width, product.inputs)
    w = values(product.outputs, 3, 3, product.inputs)
    return functools.partial(emulate_conv3x3, **around), (x, w), _conv(x, w, product.stride)


def _matmul(a: Array, f: Array) -> Array:
    """The product via float64, which is exact here and much faster than NumPy's integer matmul."""
    return (a.astype(np.float64) @ f.astype(np.float64)).astype(np.int64).astype(np.int32)


def _conv_windows(x: Array, stride: int) -> Array:
    """Windows [rows, columns, channels, 3, 3] of the padded image."""
    padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
    windows: Array = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(0, 1))
    return windows[::stride, ::stride]


def _depthwise(x: Array, w: Array, product: Depthwise) -> Array:
    sums: Array = np.einsum("yxcij,ijc->yxc", _conv_windows(x, product.stride), w, dtype=np.int32)
    return sums


def _conv(x: Array, w: Array, stride: int) -> Array:
    windows = _conv_windows(x, stride).transpose(0, 1, 3, 4, 2)
    sums = _matmul(windows.reshape(-1, w[0].size), w.reshape(len(w), -1).T)
    return sums.reshape((*windows.shape[:2], len(w)))


def _time_runs(run: Callable[[], object], product: Product) -> Timing:
    times: list[float] = []
    while not times or sum(times) < _SECONDS:
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    median = statistics.median(times)
    return Timing(median * 1e3, product.products / median)
