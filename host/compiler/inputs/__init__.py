"""Converts users' input files to model inputs."""

from edgekit.host.compiler.inputs.convert import fitted
from edgekit.host.compiler.inputs.detection_notes import (
    Anchors,
    DetectionNotes,
    read_detection_notes,
)
from edgekit.host.compiler.inputs.metadata import (
    InputNotes,
    ModelNotes,
    loss_entry,
    read_attached,
    read_loss,
    read_notes,
)
from edgekit.host.compiler.inputs.options import InputOptions
from edgekit.host.compiler.inputs.pictures import (
    PixelFrames,
    frames_of,
    loaded_picture,
    picture_size,
    placed_in,
    placed_picture,
    upright_picture,
)
from edgekit.host.compiler.inputs.sound import read_sound
from edgekit.host.compiler.inputs.sources import (
    DRAWN,
    input_files,
    is_array,
    is_live,
    is_picture,
    is_sound,
    is_text,
    is_video,
    read_arrays,
    read_inputs,
    read_lines,
    read_texts,
)

__all__ = [
    "DRAWN",
    "Anchors",
    "DetectionNotes",
    "InputNotes",
    "InputOptions",
    "ModelNotes",
    "PixelFrames",
    "fitted",
    "frames_of",
    "input_files",
    "is_array",
    "is_live",
    "is_picture",
    "is_sound",
    "is_text",
    "is_video",
    "loaded_picture",
    "loss_entry",
    "picture_size",
    "placed_in",
    "placed_picture",
    "read_arrays",
    "read_attached",
    "read_detection_notes",
    "read_inputs",
    "read_lines",
    "read_loss",
    "read_notes",
    "read_sound",
    "read_texts",
    "upright_picture",
]
