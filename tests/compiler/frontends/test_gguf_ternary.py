"""Folders of BitNet, whose packed weights are read as they are."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends.gguf.blocks import floats_of
from edgekit.host.compiler.frontends.gguf.file import read_gguf
from edgekit.host.compiler.frontends.gguf.hub import convert
from edgekit.host.errors import InputError
from tests.compiler.frontends.test_gguf_hub import hub_folder
from tests.support.gguf_files import Array, random_model

_UP = "model.layers.0.mlp.up_proj.weight"
_QUERY = "model.layers.1.self_attn.q_proj.weight"


def _packed(values: Array) -> Array:
    """The first quarter of the rows in the lowest bits."""
    parts = np.split((values + 1).astype(np.uint8), 4)
    return np.asarray(parts[0] | parts[1] << 2 | parts[2] << 4 | parts[3] << 6)


def _folder(path: Path, changed: dict[str, Array], about: Any) -> Path:
    """A folder whose last file has other tensors besides."""
    folder = hub_folder(path, random_model(), quantization_config=about)
    kinds = {np.dtype(np.float32): "F32", np.dtype(np.uint8): "U8"}
    table, data = {}, b""
    for name, value in changed.items():
        ends = [len(data), len(data) + value.nbytes]
        table[name] = {"dtype": kinds[value.dtype], "shape": value.shape, "data_offsets": ends}
        data += value.tobytes()
    head = json.dumps(table).encode()
    (folder / "z.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    return folder


def _tensor(file: Path, name: str) -> tuple[int, Array]:
    read = read_gguf(file)
    info = read.tensors[name]
    return info.kind, floats_of(read.data(name), info.shape, info.kind)


@pytest.mark.parametrize("columns", [64, 512])
@pytest.mark.parametrize(("kind", "factor"), [("autobitlinear", 0.5), ("bitlinear", 2.0)])
def test_packed_rows_are_read(tmp_path: Path, columns: int, kind: str, factor: float) -> None:
    rng = np.random.default_rng(0)
    values = rng.integers(-1, 2, (128, columns)).astype(np.int8)
    scale = np.array([0.5], np.float32)
    changed = {_UP: _packed(values), f"{_UP}_scale": scale}
    queries = rng.integers(-1, 2, (64, columns)).astype(np.int8)
    changed |= {_QUERY: _packed(queries), f"{_QUERY}_scale": scale}
    about = {"quant_method": "bitnet", "linear_class": kind, "quantization_mode": "offline"}
    convert(_folder(tmp_path / "llm", changed, about), tmp_path / "m.gguf")
    stored, found = _tensor(tmp_path / "m.gguf", "blk.0.ffn_up.weight")
    assert stored == (35 if columns == 512 else 0)
    np.testing.assert_array_equal(found, values * factor)
    turned = queries.reshape(4, 2, 8, columns).transpose(0, 2, 1, 3).reshape(64, columns)
    np.testing.assert_array_equal(
        _tensor(tmp_path / "m.gguf", "blk.1.attn_q.weight")[1], turned * factor
    )


@pytest.mark.parametrize(
    ("about", "scale", "said"),
    [
        ({"quant_method": "bitnet"}, [0.0], "expected a scale of a layer, found 0"),
        ({"quant_method": "bitnet"}, [1.0, 1.0], "expected a scale of a layer"),
        ({"quant_method": "bitnet"}, None, "expected F32, F16 or BF16, found 'U8'"),
        ({"quant_method": "bitnet", "use_rms_norm": True}, [1.0], "found use_rms_norm"),
        ({"quant_method": "bitnet", "quantization_mode": "online"}, [1.0], "mode online"),
        ({"quant_method": "gptq"}, [1.0], "expected weights as floats, found 'gptq'"),
        (None, [1.0], "expected F32, F16 or BF16, found 'U8'"),
    ],
)
def test_what_is_not_packed_so_is_named(
    tmp_path: Path, about: Any, scale: list[float] | None, said: str
) -> None:
    changed: dict[str, Array] = {_UP: _packed(np.zeros((128, 64), np.int8))}
    if scale is not None:
        changed[f"{_UP}_scale"] = np.array(scale, np.float32)
    with pytest.raises(InputError, match=said) as caught:
        convert(_folder(tmp_path / "llm", changed, about), tmp_path / "m.gguf")
    assert "\n" not in str(caught.value)
