"""Stores a model's quantization loss in the model file.

It is a line of JSON named edgekit.loss in the metadata of a .tflite file or the metadata_props of
an .onnx file. The model runs without it, and it is not trusted: unreadable entries are ignored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from edgekit.device.runtime.agent.specs import LossSpec, loss_of
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.inputs.metadata import read_entry

_NAME = "edgekit.loss"


def loss_entry(loss: LossSpec) -> Mapping[str, bytes]:
    """Return the metadata entry for `write_tflite` and `write_onnx`."""
    return {_NAME: json.dumps(asdict(loss), sort_keys=True).encode("ascii")}


def read_loss(path: Path) -> LossSpec | None:
    """Return the loss stored in a model file that could be imported, or None."""
    found = _read(path)
    try:
        return None if found is None else loss_of(json.loads(found), "loss")
    except (ValueError, RecursionError, InputError):
        return None


def _read(path: Path) -> str | bytes | None:
    if path.suffix != ".onnx":
        return read_entry(path, _NAME)
    from edgekit.host.compiler.frontends.onnx.file import onnx_metadata

    return onnx_metadata(path).get(_NAME)
