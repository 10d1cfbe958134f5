"""The module `edgekit_runtime` for programs on a board: runs deployed models in-process.

import edgekit_runtime

model = edgekit_runtime.open()
outputs = model.run({"image": image})
"""

from __future__ import annotations

from typing import Any

from edgekit.device.runtime.agent.dictation import Subtitle
from edgekit.device.runtime.agent.fitting import Box, Point, Pose
from edgekit.device.runtime.agent.instances import Instance, Span
from edgekit.device.runtime.agent.listening import Heard, Listener
from edgekit.device.runtime.agent.pages import TextLine
from edgekit.device.runtime.agent.rotated import Rotated
from edgekit.device.runtime.agent.segments import Segments, Share
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.agent.subtitles import srt, vtt
from edgekit.device.runtime.application.loaded import Outputs
from edgekit.device.runtime.application.metrics import Metrics
from edgekit.device.runtime.application.model import Model
from edgekit.device.runtime.application.model import open_model as open
from edgekit.device.runtime.application.pictures import Class
from edgekit.device.runtime.application.sd_notify import Heartbeats, alive
from edgekit.device.runtime.application.sounds import listen
from edgekit.device.runtime.application.texts import Text
from edgekit.device.runtime.errors import (
    BusyError,
    DeviceError,
    IncompatibleError,
    InputError,
    TransferError,
)
from edgekit.device.version import VERSION

__all__ = [
    "VERSION",
    "Box",
    "BusyError",
    "Class",
    "DeviceError",
    "Heard",
    "Heartbeats",
    "IncompatibleError",
    "InputError",
    "Instance",
    "Listener",
    "Metrics",
    "Model",
    "Outputs",
    "Point",
    "Pose",
    "Rotated",
    "Segments",
    "Share",
    "Span",
    "Subtitle",
    "TensorSpec",
    "Text",
    "TextLine",
    "TransferError",
    "alive",
    "listen",
    "open",
    "srt",
    "vtt",
]

_PRODUCTS = ("OutlierWeights", "SparseMatrix", "gemm", "nna_matmul", "outlier_matmul")


def __getattr__(name: str) -> Any:
    """Names the release to import products from; this one has none."""
    if name in _PRODUCTS:
        raise IncompatibleError(
            f"{name}: expected the runtime of a release of kernels, found that of a model; run "
            "edgekit deploy --kernels, and import named/kernels/current/runtime.pyz"
        )
    raise AttributeError(f"module 'edgekit_runtime' has no attribute {name!r}")
