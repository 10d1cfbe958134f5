"""The forms in which GGUF files store tensors: floats, and blocks of quantized values.

The blocks are those of ggml (ggml-common.h and ggml-quants.c document them). Values are kept as
bytes with a scale per group, and forms with a minimum per group also with an offset per group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from edgekit.host.compiler.ir.types import Array

NAMES = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 6: "Q5_0", 7: "Q5_1", 8: "Q8_0", 9: "Q8_1",
    10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K", 15: "Q8_K", 16: "IQ2_XXS",
    17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S", 22: "IQ2_S",
    23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M", 30: "BF16",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip
_MOST = 127  # kernels take no -128
_AT_ONCE = 1 << 22  # values that are decoded together
_CODES = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8
)  # of IQ4_NL
_HALVES = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)  # of MXFP4


@dataclass(frozen=True)
class Form:
    """A block of so many `values` in so many `bytes`.

    `read` decodes blocks u8 [n, bytes]: to f32 values [n, values], or to s8 values, their scales
    f32 [n, groups] and, if the form has minimums, offsets f32 [n, groups].
    """

    values: int
    bytes: int
    read: Callable[[Array], tuple[Array, ...]]
    is_float: bool = False


@dataclass(frozen=True, eq=False)
class Quantized:
    """`values` s8 [n, k] times `scale` f32 [n, groups], plus `offset` f32 [n, groups] if any."""

    values: Array
    scale: Array
    offset: Array | None = None


def floats_of(data: Array, shape: tuple[int, ...], kind: int) -> Array:
    """The f32 values of a tensor's bytes."""
    form, made = FORMS[kind], np.empty(shape, np.float32)
    flat = made.reshape(-1, form.values)
    for first, blocks in _parts(data, form):
        values, *groups = form.read(blocks)
        if groups:
            wide = values.reshape(*groups[0].shape, -1).astype(np.float32) * groups[0][:, :, None]
            values = wide + groups[1][:, :, None] if len(groups) > 1 else wide
        flat[first : first + len(blocks)] = values.reshape(len(blocks), -1)
    return made


def quantized_of(data: Array, shape: tuple[int, int], kind: int) -> Quantized:
    """The values of a tensor of quantized blocks, in bytes."""
    form, values = FORMS[kind], np.empty(shape, np.int8)
    flat, groups = values.reshape(-1, form.values), list[list[Array]]()
    for first, blocks in _parts(data, form, shape[1] // form.values):
        found, *of_groups = form.read(blocks)
        flat[first : first + len(blocks)] = np.maximum(found, -_MOST)
        groups.append(of_groups)
    joined = [np.concatenate(each).reshape(shape[0], -1) for each in zip(*groups, strict=True)]
    return Quantized(values, *joined)


def _parts(data: Array, form: Form, row: int = 1) -> list[tuple[int, Array]]:
    """Blocks of a tensor, some rows of `row` at a time, with the number of the first."""
    blocks = data.reshape(-1, form.bytes)
    step = max(_AT_ONCE // form.values // row, 1) * row
    return [(at, blocks[at : at + step]) for at in range(0, len(blocks), step)]


def _half(blocks: Array, at: int) -> Array:
    """The f16 at a byte of each block, as f32 [n, 1]."""
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _halves(codes: Array) -> Array:
    """4-bit values [n, 2 m] of bytes [n, m]: the low halves, then the high ones."""
    return np.concatenate([codes & 15, codes >> 4], axis=1)


def _f32(blocks: Array) -> tuple[Array]:
    return (np.ascontiguousarray(blocks).view("<f4"),)


def _f16(blocks: Array) -> tuple[Array]:
    return (_half(blocks, 0),)


def _bf16(blocks: Array) -> tuple[Array]:
    wide = np.ascontiguousarray(blocks).view("<u2").astype(np.uint32) << 16
    return (wide.view(np.float32),)


def _offset(codes: Array, middle: int, scale: Array, least: Array) -> tuple[Array, Array, Array]:
    """u8 codes of which `middle` becomes 0, with what they stand for then."""
    return codes.astype(np.int8) - np.int8(middle), scale, least + np.float32(middle) * scale


def _q4_0(blocks: Array) -> tuple[Array, Array]:
    return _halves(blocks[:, 2:]).astype(np.int8) - np.int8(8), _half(blocks, 0)


def _q4_1(blocks: Array) -> tuple[Array, Array, Array]:
    return _offset(_halves(blocks[:, 4:]), 8, _half(blocks, 0), _half(blocks, 2))


def _with_fifth_bit(low: Array, bits: Array) -> Array:
    """Values u8 [n, 32] with the bits [n, 4] as their fifth ones."""
    return np.asarray(low | np.unpackbits(bits, axis=1, bitorder="little") << 4)


def _q5_0(blocks: Array) -> tuple[Array, Array]:
    codes = _with_fifth_bit(_halves(blocks[:, 6:]), blocks[:, 2:6])
    return codes.astype(np.int8) - np.int8(16), _half(blocks, 0)


def _q5_1(blocks: Array) -> tuple[Array, Array, Array]:
    codes = _with_fifth_bit(_halves(blocks[:, 8:]), blocks[:, 4:8])
    return _offset(codes, 16, _half(blocks, 0), _half(blocks, 2))


def _q8_0(blocks: Array) -> tuple[Array, Array]:
    return np.ascontiguousarray(blocks[:, 2:]).view(np.int8), _half(blocks, 0)


def _iq4_nl(blocks: Array) -> tuple[Array, Array]:
    return _CODES[_halves(blocks[:, 2:])], _half(blocks, 0)


def _mxfp4(blocks: Array) -> tuple[Array, Array]:
    scale = np.ldexp(np.float32(1), blocks[:, :1].astype(np.int32) - 128)
    return _HALVES[_halves(blocks[:, 1:])], scale.astype(np.float32)


def _pairs_of_bits(codes: Array) -> Array:
    """2-bit values u8 [n, 256] of bytes [n, 64]: four runs of 32 in each half of the bytes."""
    runs = codes.reshape(-1, 2, 1, 32) >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    return np.asarray(runs.reshape(len(codes), 256))


def _tq2_0(blocks: Array) -> tuple[Array, Array]:
    return _pairs_of_bits(blocks[:, :64]).astype(np.int8) - np.int8(1), _half(blocks, 64)


def _digits(packed: Array, count: int) -> Array:
    """The first `count` digits, u8 [n, count m], of bytes [n, m] that are fractions in base 3."""
    powers = np.array([[3**i] for i in range(count)], np.uint8)
    found = (packed[:, None] * powers).astype(np.uint16) * np.uint16(3) >> 8
    return np.asarray(found.astype(np.uint8).reshape(len(packed), -1))


def _tq1_0(blocks: Array) -> tuple[Array, Array]:
    parts = (blocks[:, :32], 5), (blocks[:, 32:48], 5), (blocks[:, 48:52], 4)
    codes = np.concatenate([_digits(part, count) for part, count in parts], axis=1)
    return codes.astype(np.int8) - np.int8(1), _half(blocks, 52)


def _scales_and_minimums(packed: Array) -> tuple[Array, Array]:
    """The 6-bit scales and minimums f32 [n, 8] of 12 bytes."""
    low, middle, high = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scale = np.concatenate([low & 63, high & 15 | low >> 6 << 4], axis=1)
    least = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], axis=1)
    return scale.astype(np.float32), least.astype(np.float32)


def _k_values(blocks: Array, codes: Array, middle: int) -> tuple[Array, Array, Array]:
    """`codes` [n, 8, 32] with the scales and minimums at the beginning of the blocks."""
    scale, least = _scales_and_minimums(blocks[:, 4:16])
    scale, least = scale * _half(blocks, 0), least * _half(blocks, 2)
    return _offset(codes.reshape(len(blocks), 256), middle, scale, -least)


def _q4_k(blocks: Array) -> tuple[Array, Array, Array]:
    runs = blocks[:, 16:].reshape(-1, 4, 1, 32) >> np.array([[0], [4]], np.uint8) & 15
    return _k_values(blocks, runs.reshape(-1, 8, 32), 8)


def _q5_k(blocks: Array) -> tuple[Array, Array, Array]:
    runs = blocks[:, 48:].reshape(-1, 4, 1, 32) >> np.array([[0], [4]], np.uint8) & 15
    fifth = blocks[:, 16:48].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8)[:, None] & 1
    return _k_values(blocks, runs.reshape(-1, 8, 32) | fifth << 4, 16)


def _q2_k(blocks: Array) -> tuple[Array, Array, Array]:
    scale, least = blocks[:, :16] & 15, blocks[:, :16] >> 4
    of_scales = scale.astype(np.float32) * _half(blocks, 80)
    codes = _pairs_of_bits(blocks[:, 16:80])
    return _offset(codes, 2, of_scales, -least.astype(np.float32) * _half(blocks, 82))


def _q3_k(blocks: Array) -> tuple[Array, Array]:
    low, high = blocks[:, 96:104], blocks[:, 104:108]
    upper = high[:, None] >> np.arange(0, 8, 2, dtype=np.uint8)[:, None] & 3
    packed = _halves(low) | upper.reshape(len(blocks), 16) << 4
    bits = blocks[:, :32].reshape(-1, 1, 32) >> np.arange(8, dtype=np.uint8)[:, None] & 1
    codes = _pairs_of_bits(blocks[:, 32:96]) | bits.reshape(len(blocks), 256) << 2
    scale = (packed.astype(np.float32) - 32) * _half(blocks, 108)
    return codes.astype(np.int8) - np.int8(4), scale


def _iq4_xs(blocks: Array) -> tuple[Array, Array]:
    low = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15
    pairs = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype="<u2")
    packed = low.reshape(len(blocks), 8) | (pairs & 3).astype(np.uint8) << 4
    codes = _halves(blocks[:, 8:].reshape(-1, 16)).reshape(len(blocks), 256)
    return _CODES[codes], (packed.astype(np.float32) - 32) * _half(blocks, 0)


def _q6_k(blocks: Array) -> tuple[Array, Array]:
    low = blocks[:, :128].reshape(-1, 2, 1, 64) >> np.array([[0], [4]], np.uint8) & 15
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    high = blocks[:, 128:192].reshape(-1, 2, 1, 32) >> shifts & 3
    codes = low.reshape(-1, 2, 4, 32) | high << 4
    scale = np.ascontiguousarray(blocks[:, 192:208]).view(np.int8).astype(np.float32)
    values = codes.reshape(len(blocks), 256).astype(np.int8) - np.int8(32)
    return values, scale * _half(blocks, 208)


FORMS = {
    0: Form(1, 4, _f32, is_float=True),
    1: Form(1, 2, _f16, is_float=True),
    30: Form(1, 2, _bf16, is_float=True),
    2: Form(32, 18, _q4_0),
    3: Form(32, 20, _q4_1),
    6: Form(32, 22, _q5_0),
    7: Form(32, 24, _q5_1),
    8: Form(32, 34, _q8_0),
    10: Form(256, 84, _q2_k),
    11: Form(256, 110, _q3_k),
    12: Form(256, 144, _q4_k),
    13: Form(256, 176, _q5_k),
    14: Form(256, 210, _q6_k),
    20: Form(32, 18, _iq4_nl),
    23: Form(256, 136, _iq4_xs),
    34: Form(256, 54, _tq1_0),
    35: Form(256, 66, _tq2_0),
    39: Form(32, 17, _mxfp4),
}
