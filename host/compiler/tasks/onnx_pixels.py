"""How pixels become values by ONNX' own metadata for pictures, as Custom Vision writes it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from edgekit.device.runtime.agent.task import BGR, RGB
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata

_FORMAT, _RANGE = "Image.BitmapPixelFormat", "Image.NominalPixelRange"
_ORDERS = {"Bgr8": BGR, "Rgb8": RGB}
_SCALINGS: Mapping[str, Mapping[str, Any]] = {
    "NominalRange_0_255": {"mean": (0.0,), "scale": (1.0,)},
    "Normalized_0_1": {"mean": (0.0,), "scale": (255.0,)},
    "Normalized_1_1": {"mean": (127.5,), "scale": (127.5,)},
}


def pixels_in_onnx(path: Path) -> dict[str, Any]:
    """Fields of a TaskSpec; empty for files that do not have them, and for other formats."""
    about = onnx_metadata(path) if format_of(path) == "onnx" else {}
    scaling = _SCALINGS.get(about.get(_RANGE, ""))
    if scaling is None:
        return {}
    order = _ORDERS.get(about.get(_FORMAT, ""))
    return {**scaling, **({"channels": order} if order else {})}
