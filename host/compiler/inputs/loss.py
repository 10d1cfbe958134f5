"""What making its codes cost a model, kept in the model's file.

A line of JSON by the name edgekit.loss: metadata of a .tflite file, metadata_props of an .onnx one.
None of it is needed to run the model, and none is trusted: what cannot be read counts as not said.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from edgekit.device.runtime.agent.specs import LossSpec, loss_of
from edgekit.device.runtime.errors import InputError
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata
from edgekit.host.compiler.inputs.metadata import read_entry

_NAME = "edgekit.loss"


def loss_entry(loss: LossSpec) -> Mapping[str, bytes]:
    """The entry of a file's metadata, for `write_tflite` and `write_onnx`."""
    return {_NAME: json.dumps(asdict(loss), sort_keys=True).encode("ascii")}


def read_loss(path: Path) -> LossSpec | None:
    """What is said in a model's file that could be imported."""
    onnx = path.suffix == ".onnx"
    found = onnx_metadata(path).get(_NAME) if onnx else read_entry(path, _NAME)
    try:
        return None if found is None else loss_of(json.loads(found), "loss")
    except (ValueError, RecursionError, InputError):
        return None
