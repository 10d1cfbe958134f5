"""GGUF files that are cut, damaged or of another kind are refused with one line that says why."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model, outline_model
from edgekit.host.compiler.frontends.gguf.blocks import FORMS, NAMES, floats_of, quantized_of
from edgekit.host.errors import InputError
from tests.support.gguf_files import Array, Model, Stored, gguf_bytes, random_model
from tests.support.places import few_or_all

_Q, _NORM = "blk.0.attn_q.weight", "output_norm.weight"


def _refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        import_model(path)
    said = str(caught.value)
    assert "\n" not in said and said.startswith(path.name)
    return said


def _about(key: str, value: Any) -> Callable[[Model], None]:
    return lambda model: model.about.update({key: value})


def _stored(name: str, **changes: Any) -> Callable[[Model], None]:
    return lambda model: model.tensors.update({name: replace(model.tensors[name], **changes)})


def _without(name: str) -> Callable[[Model], None]:
    def change(model: Model) -> None:
        model.tensors.pop(name, None)
        model.about.pop(name, None)

    return change


_EXTRA = Stored(0, bytes(4 * 64), (64,))
_NAN = np.full((64, 64), np.nan, "<f4").tobytes()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_about("general.architecture", "mamba"), "expected one of bitnet, bitnet-b1.58, command"),
        (_about("general.architecture", 3), "general.architecture: expected a text, found 3"),
        (_without("general.architecture"), "expected a text as general.architecture, found none"),
        (_about("llama.block_count", 1 << 30), "llama.block_count: expected a whole number from 1"),
        (_about("llama.block_count", 3), "expected a tensor blk.2.attn_norm.weight, found none"),
        (_about("llama.block_count", 1), "expected the tensors of a plain llama network, found "
         "blk.1.attn_norm.weight besides"),
        (_about("llama.attention.head_count", 3), "expected groups of heads"),
        (_about("llama.attention.head_count_kv", 4), "attn_k.weight: expected shape [64, 64]"),
        (_about("llama.rope.dimension_count", 8), "an even number, all of them, is rotated"),
        (_about("llama.rope.freq_base", float("nan")), "expected a finite number, found nan"),
        (_about("llama.rope.scaling.type", "su"), "expected none, linear or yarn, by a factor"),
        (_about("llama.embedding_length", 32), "expected shape [96, 32], found [96, 64]"),
        (_about("general.alignment", 24), "general.alignment: expected a power of two, found 24"),
        (_stored(_Q, kind=16), "blk.0.attn_q.weight: expected one of F32, F16"),
        (_stored(_Q, kind=99), "found type 99; quantize the model"),
        (_stored(_Q, shape=(0, 64)), "expected a shape that fits, found [0, 64]"),
        (_stored(_Q, shape=(1 << 40, 1 << 40)), "expected a shape that fits"),
        (_stored(_Q, shape=(1, 1, 1, 1, 64)), "expected 1 to 4 axes, found 5"),
        (_stored(_Q, shape=(512, 8), kind=8), "expected rows of a multiple of 32 values in Q8_0"),
        (_stored(_Q, data=_NAN), "tensor blk.0.attn_q.weight: expected finite values"),
        (_stored(_NORM, shape=(2, 32)), "output_norm.weight: expected shape [64], found [2, 32]"),
        (_without(_NORM), "expected a tensor output_norm.weight, found none"),
        (lambda m: m.tensors.update({"blk.0.ffn_gate_inp.weight": _EXTRA}),
         "found blk.0.ffn_gate_inp.weight besides; choose a model without it"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_named(
    change: Callable[[Model], None], said: str, tmp_path: Path
) -> None:
    model = random_model()
    change(model)
    assert said in _refusal(model.write(tmp_path / "m.gguf"))


def _patched(at: int, form: str, *values: int) -> Callable[[bytes], bytes]:
    made = struct.pack(f"<{form}", *values)
    return lambda data: data[:at] + made + data[at + len(made) :]


def _at_table(data: bytes, name: str, form: str, *values: int, skip: int = 0) -> bytes:
    """The file with other values behind a tensor's name in the table."""
    at = data.index(name.encode()) + len(name) + skip
    return _patched(at, form, *values)(data)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (_patched(4, "I", 1), "expected a GGUF file of version 2 or 3, found b'GGUF' of version 1"),
        (_patched(8, "Q", 1 << 60), "expected at most 16,384 tensors, found"),
        (_patched(16, "Q", 1 << 60), "expected at most 65,536 values, found"),
        (_patched(24, "Q", 1 << 62), "which is cut or damaged; fetch it again"),
        (_patched(24, "Q", 0), "expected a key of 1 to 1024 characters, found ''"),
        (lambda d: _at_table(d, "general.architecture", "I", 77), "expected a known type of value"),
        (lambda d: _at_table(d, "general.architecture", "IIQ", 9, 8, 1 << 60), "cut or damaged"),
        (lambda d: _at_table(d, "general.architecture", "IIQ", 9, 4, 1 << 60), "cut or damaged"),
        (lambda d: _at_table(d, _Q, "Q", 32, skip=24), "expected bytes of its own, found that it"),
        (lambda d: _at_table(d, _Q, "Q", 8, skip=24), "bytes at a multiple of 32"),
        (lambda d: _at_table(d, _Q, "Q", 1 << 62, skip=24), "the file is cut or damaged"),
        (lambda d: d.replace(b"blk.1.attn_q", b"blk.0.attn_q"), "expected each tensor once"),
        (lambda d: d.replace(b"llama.block_count", b"llama.rope.freq_b", 1), "expected a"),
    ],
)  # fmt: skip
def test_hostile_counts_and_places_are_named(
    change: Callable[[bytes], bytes], said: str, tmp_path: Path
) -> None:
    file, model = tmp_path / "m.gguf", random_model()
    file.write_bytes(change(gguf_bytes(model.about, model.tensors)))
    assert said in _refusal(file)


@pytest.mark.parametrize("count", few_or_all([400, 40], [40]))
def test_cut_and_damaged_files_say_so(count: int, tmp_path: Path) -> None:
    file, model, rng = tmp_path / "m.gguf", random_model(), random.Random(count)
    data = gguf_bytes(model.about, model.tensors)
    for _ in range(count):
        file.write_bytes(data[: rng.randrange(1, len(data))])
        _refusal(file)
    head = data.index(b"output_norm") + 400
    for _ in range(count):
        damaged = bytearray(data)
        damaged[rng.randrange(4, head)] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        try:
            outline_model(file)
        except InputError as error:
            assert "\n" not in str(error)


def _half(block: bytes, at: int) -> float:
    return float(np.frombuffer(block[at : at + 2], "<f2")[0])


_IQ4 = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


def _value(name: str, block: bytes, i: int) -> float:
    """Value `i` of a block, one at a time, as ggml's documentation of the forms says."""
    d, part, rest = _half(block, 0), i // 16 % 2 * 4, i % 16
    if name == "Q4_0":
        return d * ((block[2 + rest] >> part & 15) - 8)
    if name == "Q4_1":
        return d * (block[4 + rest] >> part & 15) + _half(block, 2)
    if name in ("Q5_0", "Q5_1"):
        at = 2 if name == "Q5_0" else 4
        fifth = int.from_bytes(block[at : at + 4], "little") >> i & 1
        code = block[at + 4 + rest] >> part & 15 | fifth << 4
        return d * (code - 16) if name == "Q5_0" else d * code + _half(block, 2)
    if name == "Q8_0":
        return d * int.from_bytes(block[2 + i : 3 + i], "little", signed=True)
    if name == "IQ4_NL":
        return d * _IQ4[block[2 + rest] >> part & 15]
    if name == "MXFP4":  # a power of 2, a sign, and a float of 3 bits
        bits = block[1 + rest] >> part & 15
        most = (0, 0.5, 1, 1.5, 2, 3, 4, 6)[bits & 7]
        return float(2.0 ** (block[0] - 127)) * (-most if bits & 8 else most)
    if name == "TQ2_0":
        return _half(block, 64) * ((block[i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3) - 1)
    if name == "TQ1_0":
        first, width, at = (0, 32, 0) if i < 160 else (160, 16, 32) if i < 240 else (240, 4, 48)
        power = 3 ** ((i - first) // width)
        digit = (block[at + (i - first) % width] * power & 255) * 3 >> 8
        return _half(block, 52) * (digit - 1)
    if name == "Q6_K":
        low = block[i // 128 * 64 + i % 64] >> i % 128 // 64 * 4 & 15
        high = block[128 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3
        scale = int.from_bytes(block[192 + i // 16 : 193 + i // 16], "little", signed=True)
        return _half(block, 208) * scale * ((low | high << 4) - 32)
    if name == "Q2_K":
        scale = block[i // 16]
        code = block[16 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3
        return _half(block, 80) * (scale & 15) * code - _half(block, 82) * (scale >> 4)
    if name == "Q3_K":
        j = i // 16
        scale = block[96 + j % 8] >> j // 8 * 4 & 15 | (block[104 + j % 4] >> j // 4 * 2 & 3) << 4
        code = block[32 + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3
        return (
            _half(block, 108) * (scale - 32) * (code - (0 if block[i % 32] >> i // 32 & 1 else 4))
        )
    if name == "IQ4_XS":
        j = i // 32
        scale = block[4 + j // 2] >> j % 2 * 4 & 15 | (block[2 + j // 4] >> j % 4 * 2 & 3) << 4
        return d * (scale - 32) * _IQ4[block[8 + j * 16 + rest] >> part & 15]
    j, scales = i // 32, block[4:16]
    if j < 4:
        scale, least = scales[j] & 63, scales[j + 4] & 63
    else:
        scale = scales[j + 4] & 15 | scales[j - 4] >> 6 << 4
        least = scales[j + 4] >> 4 | scales[j] >> 6 << 4
    at = 16 if name == "Q4_K" else 48
    code = block[at + i // 64 * 32 + i % 32] >> i // 32 % 2 * 4 & 15
    code |= 0 if name == "Q4_K" else (block[16 + i % 32] >> i // 32 & 1) << 4
    return d * scale * code - _half(block, 2) * least


def _random_blocks(kind: int, count: int) -> Array:
    """Blocks of any bits, but for their f16 numbers, which are near 1."""
    rng, form = np.random.default_rng(kind), FORMS[kind]
    blocks = rng.integers(0, 256, (count, form.bytes)).astype(np.uint8)
    places = {"Q6_K": (208,), "TQ1_0": (52,), "TQ2_0": (64,), "Q4_1": (0, 2), "Q5_1": (0, 2)}
    places |= {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q2_K": (80, 82), "Q3_K": (108,)}
    if NAMES[kind] == "MXFP4":
        blocks[:, 0] = rng.integers(120, 130, count)
        return blocks
    for at in places.get(NAMES[kind], (0,)):
        numbers = rng.uniform(0.5, 1, (count, 1)).astype("<f2")
        blocks[:, at : at + 2] = numbers.view(np.uint8)
    return blocks


@pytest.mark.parametrize("kind", [kind for kind, form in FORMS.items() if not form.is_float])
def test_blocks_are_those_of_ggml(kind: int) -> None:
    form, blocks = FORMS[kind], _random_blocks(kind, 6)
    wanted = np.array(
        [[_value(NAMES[kind], row.tobytes(), i) for i in range(form.values)] for row in blocks]
    )
    shape = (2, 3 * form.values)
    found = floats_of(blocks.reshape(-1), shape, kind)
    np.testing.assert_allclose(found, wanted.reshape(shape), rtol=1e-5, atol=1e-4)
    bytes_ = quantized_of(blocks.reshape(-1), shape, kind)
    values = bytes_.values.reshape(*bytes_.scale.shape, -1) * bytes_.scale[:, :, None]
    if bytes_.offset is not None:
        values = values + bytes_.offset[:, :, None]
    if NAMES[kind] == "Q2_K":  # kernels of 2 bits have -2 to 1
        assert (bytes_.values.min(), bytes_.values.max()) == (-2, 1)
    few = 1e-5 * np.abs(found).max()
    clipped = np.abs(found / 128).max() if NAMES[kind] == "Q8_0" else 0  # -128 becomes -127
    np.testing.assert_allclose(values.reshape(shape), found, atol=few + clipped)
