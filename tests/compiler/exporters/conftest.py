"""ONNX Runtime, for running exported files."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

Arrays = dict[str, Any]


@pytest.fixture(scope="session")
def onnx_runtime() -> Callable[[bytes, Mapping[str, Any]], Arrays]:
    """Run a file once: (content, inputs by name) → outputs by name, in the file's order."""
    import onnxruntime

    def run(content: bytes, inputs: Mapping[str, Any]) -> Arrays:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [o.name for o in session.get_outputs()]
        return dict(zip(names, session.run(names, dict(inputs)), strict=True))

    return run
