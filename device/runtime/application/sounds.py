"""Listens with a deployed model."""

from __future__ import annotations

from edgekit.device.runtime.agent.listening import Listener
from edgekit.device.runtime.agent.task import HEARD
from edgekit.device.runtime.application.model import Model
from edgekit.device.runtime.errors import InputError


def listen(model: Model) -> Listener:
    """Returns what finds words, or speech, in sound: its `feed(samples)` takes the next samples, -1
    to 1, of one channel, `model.task.rate` of them a second, and returns what ended in them.

    InputError if the model is not for that.
    """
    task = model.task
    if task is None or task.kind not in HEARD:
        raise InputError(
            f"expected a model compiled with --task {' or '.join(HEARD)}, found "
            f"{task.kind if task else 'no task'}"
        )
    return Listener(task, model.inputs, model.outputs, model.run, model.is_stateful)
