"""Models that tell in which parts of a window of sound somebody speaks: NeMo's MarbleNet (Jia et
al., 2021) and pyannote's segmentation (Plaquet and Bredin, 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edgekit.device.runtime.agent.task import VAD, TaskSpec
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.makers import maker_of
from edgekit.host.compiler.ir.types import DType, Graph, Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.feature_rows import RATE, SLANEY, Features
from edgekit.host.compiler.tasks.prepared import Prepared, free_name, recognized
from edgekit.host.compiler.tasks.sound_recipe import Recipe

_INPUTS, _LOGITS = ("audio_signal", "length"), "logits"  # as NeMo's exporter names them
_BANDS, _OF_SPEECH = 80, 2  # scores of silence and speech
_ROWS = {3: 1000, 2: 64}  # of 10 s in parts, and of 0.64 s with one score, by axes of the output
_SETS = 7  # of three speakers, of whom up to two speak at once; the first is of none
_STEPS = (160, 400)  # samples of a part
WINDOW = 160_000  # samples of pyannote's


def marble_net_recipe(
    names: Sequence[str], outputs: Mapping[str, Sequence[object]], bands: object
) -> Recipe | None:
    """The recipe of MarbleNet of `bands`; None for others. Its features are not normalized."""
    shape = outputs.get(_LOGITS, ())
    if tuple(names) != _INPUTS[: len(names)] or bands != _BANDS or shape[-1:] != (_OF_SPEECH,):
        return None
    if len(outputs) != 1 or len(shape) not in _ROWS:
        return None
    features = Features(
        window=400, bands=_BANDS, high=RATE / 2, low=0, power=2, offset=2**-24, curve="hanning",
        emphasis=0.97, around=True, mel=SLANEY,
    )  # fmt: skip
    others = dict.fromkeys(names[1:])
    return Recipe(VAD, names[0], features, _ROWS[len(shape)], "NeMo", others, across=True)


def takes_speakers_apart(given: Sequence[object], made: Sequence[object]) -> bool:
    """Whether shapes of an input and an output, in which extents may be open, are pyannote's."""
    return len(given) == len(made) == 3 and given[1] == 1 and made[2] == _SETS


def pyannote(graph: Graph) -> Prepared | None:
    """The graph with a score of speech for each part of its window; None for other models."""
    if len(graph.inputs) != 1 or len(graph.outputs) != 1:
        return None
    sound, scores = graph.tensors[graph.inputs[0]], graph.tensors[graph.outputs[0]]
    if not takes_speakers_apart(sound.shape, scores.shape) or sound.dtype is not DType.F32:
        return None
    if not _STEPS[0] <= sound.elements / max(scores.shape[1], 1) <= _STEPS[1]:
        return None
    made, spec = with_speech(graph, scores, RATE)
    source = "because outputs are those of pyannote, whose speakers are not told apart"
    return recognized(made, spec, "finds speech", source)


def with_speech(graph: Graph, scores: Tensor, rate: int) -> tuple[Graph, TaskSpec]:
    """The graph with the shares of all classes but the first, which is silence, as one more output
    [1, parts], and its task; `scores`: [1, parts, classes] or [1, classes], or their logarithms."""
    node = maker_of(graph.producer(), scores.name)
    classes = scores.shape[-1]
    parts = scores.elements // classes
    to = Appender(graph, VAD)
    x = to.add(ops.Reshape((parts, classes)), to.floats(scores.name))
    if node is None or not isinstance(node.op, ops.Softmax):
        x = to.add(ops.Softmax(), x)
    silence, _ = to.add_all(ops.Split(1, (1, classes - 1)), x)
    silence = to.add(ops.Reshape((1, parts)), silence)
    speech = to.add(ops.Sub(), to.constant(np.ones((1, 1))), silence)
    name = free_name(graph, VAD)
    made = to.with_output(speech, name)
    return made, TaskSpec(VAD, graph.inputs[0], name, labels=("speech",), rate=rate)
