"""The format of a model file and the files that belong to it, without any format's library."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Literal

from edgekit.host.compiler.frontends.common.files import (
    chunks_of_model_file,
    read_model_file,
    read_start,
)
from edgekit.host.compiler.frontends.common.names import shown_name
from edgekit.host.compiler.frontends.foreign import foreign_format
from edgekit.host.compiler.frontends.onnx import EXTERNAL_DATA
from edgekit.host.errors import InputError

CAFFE_WEIGHTS = ".caffemodel"
MODELS = ".tflite, .onnx, .gguf or .prototxt model"

_CAFFE_NETWORKS = (".prototxt", ".prototxt.txt")
_ONNX_START = b"\x08"  # tag of ir_version, the first field of an ONNX model
_TFLITE_IDENTIFIER = b"TFL3"
_GGUF_START = b"GGUF"


def format_of(path: Path) -> Literal["tflite", "onnx", "caffe", "gguf"]:
    """The format of a file, judged by content, or by name for Caffe text files."""
    start = read_start(path)
    if is_caffe(path):
        return "caffe"
    if is_tflite(start):
        return "tflite"
    if is_gguf(start):
        return "gguf"
    other = foreign_format(path)
    if other is not None:
        raise InputError(f"{path.name}: expected a {MODELS}, found {other}")
    if path.suffix == ".onnx" or start.startswith(_ONNX_START):
        return "onnx"
    raise InputError(
        f"{path.name}: expected a {MODELS}, found a file that begins with {start[:8]!r}; "
        "give a TensorFlow Lite, ONNX, GGUF or Caffe file"
    )


def model_hash(path: Path) -> str:
    """The SHA-256 over all files of a model: for Caffe the network and its weights, for ONNX the
    model and its external data. Raises `InputError`."""
    digest = hashlib.sha256()
    for file in model_files(path):
        for chunk in chunks_of_model_file(file):
            digest.update(chunk)
    return digest.hexdigest()


def model_files(path: Path) -> tuple[Path, ...]:
    """All files of a model, in a stable order. Raises `InputError`."""
    kind = format_of(path)
    if kind == "caffe":
        return tuple(file for file in caffe_files(path) if file is not None)
    if kind == "onnx" and EXTERNAL_DATA.encode() in read_model_file(path):
        from edgekit.host.compiler.frontends.onnx.file import external_files

        return (path, *external_files(path))
    return (path,)


def is_tflite(content: bytes) -> bool:
    return content[4:8] == _TFLITE_IDENTIFIER


def is_gguf(content: bytes) -> bool:
    return content.startswith(_GGUF_START)


def is_caffe(path: Path) -> bool:
    """Whether the file name is that of a Caffe network or weights file."""
    return path.name.endswith((*_CAFFE_NETWORKS, CAFFE_WEIGHTS))


def caffe_files(path: Path) -> tuple[Path, Path | None]:
    """The .prototxt and the .caffemodel of a network; `path` is either of them.

    The other has the same stem or is the only one in the folder. Weights are optional: some
    networks have none.
    """
    if path.name.endswith(CAFFE_WEIGHTS):
        stem = path.name.removesuffix(CAFFE_WEIGHTS)
        found = _find_sibling(path, stem, _CAFFE_NETWORKS)
        if found is None:
            raise InputError(
                f"{path.name}: expected the network's text next to its weights "
                f"({stem}.prototxt), found none; fetch it as well"
            )
        return found, path
    stem = path.name.removesuffix(".txt").removesuffix(".prototxt")
    return path, _find_sibling(path, stem, (CAFFE_WEIGHTS,))


def _find_sibling(path: Path, stem: str, endings: tuple[str, ...]) -> Path | None:
    for ending in endings:
        if (same := path.with_name(stem + ending)).is_file():
            return same
    try:
        siblings = sorted(path.parent.iterdir())
    except OSError:
        return None
    others = [p for p in siblings if p.name.endswith(endings) and p.is_file()]
    if len(others) > 1:
        raise InputError(
            f"{path.name}: expected {stem}{endings[0]} next to it, or one {endings[0]} file, found "
            f"{len(others)}: {', '.join(shown_name(p.name) for p in others[:3])}; "
            "give the two that belong together the same name"
        )
    return others[0] if others else None
