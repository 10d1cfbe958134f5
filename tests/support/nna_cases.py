"""Random operands for the NNA, chips to test, and how to run nna_products.c."""

from __future__ import annotations

import dataclasses
import functools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgekit.device.runtime.arrays.nna import (
    conv_weights,
    depthwise_weights,
    emulate_conv3x3,
    emulate_depthwise3x3,
    emulate_matmul,
    emulate_pointwise,
    pointwise_weights,
    to_ndhwc32,
)
from edgekit.device.runtime.arrays.nna_account import NnaAccount
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.host.compiler.ir.types import Array
from edgekit.host.compiler.toolchain.kernels import features_unit
from edgekit.host.compiler.toolchain.nna_units import nna_units
from edgekit.host.compiler.toolchain.zig import TranslationUnit
from edgekit.kb.targets.board import BoardProfile, load_board
from tests.support.toolchains import toolchain_for

_PRODUCTS = Path(__file__).with_name("nna_products.c")
_COUNTERS = struct.Struct("<19q")
_KINDS = {"matmul": 0, "conv": 1, "pointwise": 2, "depthwise": 1}  # numbering of nna_products.c

NNA1, NNA2 = load_board("nna1").nna.chip, load_board("nna2").nna.chip
CHIPS = {
    "nna1": NNA1,
    "nna2": NNA2,
    # The array is slower than any thread.
    "slow array": dataclasses.replace(NNA2, macs_per_cycle=64, mac_startup=10),
    # No space to preload weights.
    "one weight set": dataclasses.replace(NNA1, wram_bytes=9216, macs_per_cycle=256),
    # Latencies so high that every unit stalls.
    "late": dataclasses.replace(
        NNA2, load_latency=40, add_latency=30, write_latency=20, result_latency=50
    ),
}


def operands(m: int, k: int, n: int, seed: int = 0) -> tuple[Array, Array]:
    """A [m, k] and F [k, n], random bytes over the full range."""
    random = np.random.default_rng(seed)
    return random.integers(-128, 128, (m, k), np.int8), random.integers(-128, 128, (k, n), np.int8)


def matmul_reference(a: Array, f: Array) -> Array:
    """int32, modulo 2^32."""
    return a.astype(np.int32) @ f.astype(np.int32)


def conv_reference(x: Array, w: Array, stride: int, padding: int) -> Array:
    """[H, W, IC] with [OC, 3, 3, IC] -> [OH, OW, OC], tap by tap."""
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0))).astype(np.int32)
    height, width = ((extent - 3) // stride + 1 for extent in x.shape[:2])
    sums = np.zeros((height, width, len(w)), np.int32)
    for row in range(3):
        for column in range(3):
            rows = slice(row, row + stride * (height - 1) + 1, stride)
            columns = slice(column, column + stride * (width - 1) + 1, stride)
            sums += x[rows, columns] @ w[:, row, column].astype(np.int32).T
    return sums


def depthwise_reference(x: Array, w: Array, stride: int, padding: int) -> Array:
    """[H, W, C] with [3, 3, C] -> [OH, OW, C], one window at a time."""
    x = np.pad(x, ((padding, padding), (padding, padding), (0, 0))).astype(np.int32)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(0, 1))
    return np.einsum("yxcij,ijc->yxc", windows[::stride, ::stride], w.astype(np.int32))


@dataclass(frozen=True)
class Case:
    """One product of `left` and `right`. Shapes by kind: `matmul` [m, k] and [k, n]; `conv` [H,
    W, IC] and [OC, 3, 3, IC]; `depthwise` [H, W, C] and [3, 3, C]; `pointwise` [P, IC] and [OC,
    IC]."""

    chip: NnaChip
    kind: str
    left: Array
    right: Array
    stride: int = 1

    @functools.cached_property
    def sums(self) -> Array:
        """The sums in the layout of the C function."""
        if self.kind == "matmul":
            return matmul_reference(self.left, self.right)
        if self.kind == "pointwise":
            return to_ndhwc32(matmul_reference(self.left, self.right.T))
        reference = conv_reference if self.kind == "conv" else depthwise_reference
        return to_ndhwc32(reference(self.left, self.right, self.stride, 0))

    @functools.cached_property
    def account(self) -> NnaAccount:
        """The account computed by the reference emulator."""
        emulate = {
            "matmul": emulate_matmul,
            "conv": functools.partial(emulate_conv3x3, stride=self.stride),
            "depthwise": functools.partial(emulate_depthwise3x3, stride=self.stride),
            "pointwise": emulate_pointwise,
        }[self.kind]
        done = emulate(self.left, self.right, chip=self.chip, emulator="python")
        assert done.account
        return done.account

    def encoded(self) -> bytes:
        """Encode the `description` of nna_products.c and its parts."""
        sums, nothing = self.sums, np.empty(0, np.int8)
        if self.kind == "pointwise":
            parts = [to_ndhwc32(self.left), pointwise_weights(self.right), nothing]
            shape = [len(self.left), len(parts[0]), len(sums)]
        elif self.kind == "matmul":
            (m, k), n = self.left.shape, self.right.shape[1]
            whole = n - n % 32
            parts = [self.left, to_ndhwc32(self.right[:, :whole]), self.right[:, whole:]]
            shape = [m, k, n]
        else:
            arranged = conv_weights if self.kind == "conv" else depthwise_weights
            parts = [to_ndhwc32(self.left), arranged(self.right), nothing]
            shape = [*parts[0].shape[:3], *sums.shape[:3], self.stride, self.kind == "depthwise"]
        shape += [0] * (8 - len(shape))
        c = self.chip
        chip = [c.output_points, c.weight_sets, c.mac_cycles, c.load_latency, c.add_latency]
        numbers = [_KINDS[self.kind], *chip, c.write_latency, c.result_latency, *shape]
        numbers += [part.nbytes for part in parts] + [sums.nbytes]
        return struct.pack(f"<{len(numbers)}q", *numbers) + b"".join(p.tobytes() for p in parts)


@functools.cache
def random_cases() -> tuple[Case, ...]:
    """Small products of all kinds, on all chips."""
    random = np.random.default_rng(4)
    cases = []
    for i in range(24):
        chip = list(CHIPS.values())[i % len(CHIPS)]
        kind = list(_KINDS)[i % len(_KINDS)]
        if kind == "matmul":
            m, k, n = (int(random.integers(1, top)) for top in (4, 30, 300))
            cases.append(Case(chip, kind, *operands(m, k, n, i)))
            continue
        height, width, inputs, outputs = (int(x) for x in random.integers(3, 36, 4))
        if kind == "pointwise":  # one to twelve input groups
            x, w = operands(height, width * 32 // 3, outputs, i)
            cases.append(Case(chip, kind, x, np.ascontiguousarray(w.T)))
            continue
        x, w = operands(min(height, 4) * width, inputs, 9 * outputs, i)
        x, w = x.reshape(-1, width, inputs), w.reshape(outputs, 3, 3, inputs)
        cases.append(Case(chip, kind, x, w if kind == "conv" else w[0], 1 + i // 4 % 2))
    return tuple(cases)


def encoded(cases: Sequence[Case]) -> bytes:
    return struct.pack("<q", len(cases)) + b"".join(case.encoded() for case in cases)


def output_bytes(cases: Sequence[Case]) -> int:
    return sum(_COUNTERS.size + case.sums.nbytes for case in cases)


def check(cases: Sequence[Case], made: bytes) -> None:
    """Sums match NumPy; cycles, instructions and stalls match the reference emulator."""
    at = 0
    for case in cases:
        counters = _COUNTERS.unpack_from(made, at)
        at += _COUNTERS.size
        account, sums = case.account, case.sums
        tail = account.tail_cycles
        times = (account.cycles, account.serial_cycles, account.load_cycles)
        assert counters[:3] == tuple(time - tail for time in times), case
        assert counters[3] == account.fill_cycles
        assert counters[5:13] == tuple(account.instructions.values())
        assert counters[13:] == tuple(account.stalls.values())
        found = np.frombuffer(made, np.int32, sums.size, at).reshape(sums.shape)
        np.testing.assert_array_equal(found, sums)
        at += sums.nbytes
    assert at == len(made)


def units(board: BoardProfile) -> list[TranslationUnit]:
    """The units of a board's NNA, as the model of nna_products.c."""
    abi = TranslationUnit("abi", '#include "ek.h"\nint ek_abi(void) {\n    return EK_ABI;\n}\n')
    return [
        TranslationUnit("nna_products", _PRODUCTS),
        abi,
        features_unit(board),
        *nna_units(board),
    ]


def build(board: BoardProfile, path: Path) -> Path:
    path.write_bytes(toolchain_for(board).build(units(board)))
    return path
