"""What is said in sound, by a deployed model."""

from __future__ import annotations

from typing import Sequence

from edgekit.device.runtime.agent.lines import Line, reading_task
from edgekit.device.runtime.agent.task import TRANSCRIBE
from edgekit.device.runtime.agent.transcribe import transcribe
from edgekit.device.runtime.application.loaded import Loaded


def write_down(loaded: Loaded, samples: Sequence[float]) -> Line:
    """See Model.transcribe."""
    manifest = loaded.manifest
    task = reading_task(manifest.task, TRANSCRIBE)
    return transcribe(
        samples,
        task,
        manifest.inputs,
        manifest.outputs,
        lambda inputs: loaded.run(inputs, {}, ""),
        loaded.characters().line,
    )
