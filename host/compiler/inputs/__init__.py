"""Converts users' input files to model inputs."""

from edgekit.host.compiler.inputs.convert import fitted
from edgekit.host.compiler.inputs.loss import loss_entry, read_loss
from edgekit.host.compiler.inputs.metadata import ModelNotes, read_attached, read_notes
from edgekit.host.compiler.inputs.options import InputOptions
from edgekit.host.compiler.inputs.pictures import PixelFrames
from edgekit.host.compiler.inputs.sources import (
    input_files,
    is_array,
    is_picture,
    read_arrays,
    read_inputs,
)

__all__ = [
    "InputOptions",
    "ModelNotes",
    "PixelFrames",
    "fitted",
    "input_files",
    "is_array",
    "is_picture",
    "loss_entry",
    "read_arrays",
    "read_attached",
    "read_inputs",
    "read_loss",
    "read_notes",
]
