"""A session that computes a graph on this computer, as a board would run its release."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np

from edgekit.device.runtime.agent.lines import Characters, characters_of
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.wire import Document, pack, receive
from edgekit.device.runtime.dtypes import BY_NAME
from edgekit.host.compiler.ir.evaluate import evaluate
from edgekit.host.compiler.tasks import PlannedVariant, Prepared, planned_of
from edgekit.host.deploy.release.inference import InferenceSession, Served, ServedVariant
from edgekit.host.deploy.transport.base import Completed
from edgekit.host.errors import InputError


def graph_session(made: Prepared) -> InferenceSession:
    """A session for a graph that is prepared for its task. The NumPy references compute it: slow,
    but exact."""
    plan = planned_of(made)
    variant = ServedVariant(plan.inputs, plan.outputs, (), bool(made.graph.states))
    served = Served("", made.graph.name, 1, (variant,), made.task)
    return InferenceSession(_GraphStream(made, plan), "graph", served)


class _GraphStream:
    """Answers the requests of a session for pictures and sounds."""

    def __init__(self, made: Prepared, plan: PlannedVariant) -> None:
        self._made, self._plan = made, plan
        self._states: dict[str, np.ndarray] = {}
        self._answer = io.BytesIO()

    def send(self, data: bytes, *, deadline: float) -> None:  # noqa: ARG002
        request, arrays = receive(io.BytesIO(data).read, len(data))
        self._answer = io.BytesIO(pack(*self._answered(request, arrays)))

    def receive(self, size: int, *, deadline: float) -> bytes:  # noqa: ARG002
        return self._answer.read(size)

    def close(self, *, deadline: float) -> Completed:  # noqa: ARG002
        return Completed(0, b"", b"")

    def _answered(
        self, request: Document, arrays: Mapping[str, Array]
    ) -> tuple[Document, dict[str, Array]]:
        values = {
            name: np.frombuffer(array.data, BY_NAME[array.dtype].npy).reshape(array.shape)
            for name, array in arrays.items()
        }
        match request["do"]:
            case "run":
                done = evaluate(self._made.graph, values, self._states)
                self._states = done.states
                outputs = {
                    spec.name: Array(spec.dtype, spec.shape, done.outputs[spec.name].tobytes())
                    for spec in self._plan.outputs
                }
                return {"ns": 0, "operators_ns": []}, outputs
            case "line":
                return dict(self._characters.line(values["values"].ravel().tolist())._asdict()), {}
            case "reset":
                self._states = {}
                return {}, {}
            case other:
                raise InputError(f"expected a model of pictures or sounds, found {other}")

    @property
    def _characters(self) -> Characters:
        assert self._made.task is not None
        path = self._made.task.characters
        return Characters(characters_of(self._made.files[path], path))
