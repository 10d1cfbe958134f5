"""scripts/minilm.py, with weights of our own in the shape of a MiniLM's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.evaluate import evaluate

pytest.importorskip("onnx")

_SCRIPT = Path(__file__).parents[2] / "scripts" / "minilm.py"
_SIZE, _WIDE = 96, 128
_WORDS = [
    "[PAD]",
    "[UNK]",
    "[CLS]",
    "[SEP]",
    "the",
    "cat",
    "s",
    "##s",
    "sat",
    "on",
    ".",
    "'",
    "cafe",
]
Array = np.ndarray[Any, Any]


def _tensors() -> dict[str, Array]:
    rng = np.random.default_rng(0)
    layer = "encoder.layer.0"
    dense = {f"{layer}.attention.self.{n}": (_SIZE, _SIZE) for n in ("query", "key", "value")}
    dense |= {
        f"{layer}.attention.output.dense": (_SIZE, _SIZE),
        f"{layer}.intermediate.dense": (_WIDE, _SIZE),
        f"{layer}.output.dense": (_SIZE, _WIDE),
    }
    made = {f"{n}.weight": rng.standard_normal(s) / s[1] ** 0.5 for n, s in dense.items()}
    made |= {f"{n}.bias": rng.standard_normal(s[0]) / 10 for n, s in dense.items()}
    for norm in ("embeddings", f"{layer}.attention.output", f"{layer}.output"):
        made |= {
            f"{norm}.LayerNorm.{n}": np.full(_SIZE, v) for n, v in (("weight", 1), ("bias", 0))
        }
    rows = {"word": len(_WORDS), "position": 32, "token_type": 2}
    made |= {
        f"embeddings.{n}_embeddings.weight": rng.standard_normal((count, _SIZE))
        for n, count in rows.items()
    }
    return {name: value.astype(np.float32) for name, value in made.items()}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("minilm")
    tensors, about, at = _tensors(), {}, 0
    for name, value in tensors.items():
        offsets = [at, at + value.nbytes]
        about[name] = {"dtype": "F32", "shape": list(value.shape), "data_offsets": offsets}
        at += value.nbytes
    head = json.dumps({"__metadata__": {}, **about}).encode()
    data = b"".join(value.tobytes() for value in tensors.values())
    (made / "model.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + data)
    (made / "vocab.txt").write_text("\n".join(_WORDS), encoding="utf-8")
    return made


def _script(*args: object) -> subprocess.CompletedProcess[str]:
    run = [sys.executable, str(_SCRIPT), *map(str, args)]
    return subprocess.run(run, capture_output=True, text=True, check=False)


def _embedding(folder: Path, tokens: int, text: str) -> Array:
    model, inputs = folder / f"m{tokens}.onnx", folder / f"i{tokens}.npz"
    prose = folder / "text.md"
    prose.write_text(f"# Title of it all that is no sentence\n\n{text}\n", encoding="utf-8")
    assert _script("export", folder, "-o", model, "--tokens", tokens).returncode == 0
    options = ("--tokens", tokens, "--count", 1)
    assert _script("sentences", folder, "-o", inputs, *options, prose).returncode == 0
    with np.load(inputs) as made:
        values = {name: made[name][0] for name in made.files}
    return evaluate(import_model(model), values).outputs["embedding"]


@pytest.mark.slow
def test_padding_is_not_read_and_words_are(folder: Path) -> None:
    text = "The cats sat on the cat's Café."
    short, long = _embedding(folder, 16, text), _embedding(folder, 32, text)
    np.testing.assert_allclose(np.linalg.norm(short), 1, rtol=1e-5)
    np.testing.assert_allclose(short, long, atol=1e-5)
    other = _embedding(folder, 16, "The cats sat on the cat's cat.")
    assert float((short @ other.T)[0, 0]) < 0.999


def test_words_become_the_longest_pieces_that_are_known(folder: Path) -> None:
    _embedding(folder, 16, "The cats sat on the cat's Café.")
    with np.load(folder / "i16.npz") as made:
        ids, mask = made["ids"][0, 0], made["mask"][0, 0]
    pieces = [_WORDS[i] for i in ids[: mask.sum()]]
    assert pieces == [
        "[CLS]", "the", "cat", "##s", "sat", "on", "the", "cat", "'", "s", "cafe", ".", "[SEP]",
    ]  # fmt: skip


def test_too_few_sentences_are_refused(folder: Path) -> None:
    done = _script("sentences", folder, "-o", folder / "none.npz", folder / "vocab.txt")
    assert done.returncode != 0 and "expected 100 sentences in the texts, found" in done.stderr
