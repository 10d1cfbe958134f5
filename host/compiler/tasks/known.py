"""What a model's file, and files next to it, say of its task, classes and pixels."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from edgekit.device.runtime.agent.task import (
    BGR,
    CROP,
    CUBIC,
    DETECT,
    INSTANCES,
    LETTERBOX,
    OBB,
    PICTURES,
    SEGMENT,
    STRETCH,
)
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.inputs import ModelNotes, read_notes
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Activation, Array, DType, Node, Operator
from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.sidecars import PIXELS, TAGS, features_file
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.heads import SCALES
from edgekit.host.compiler.tasks.hub import MMDEPLOY, MMPRETRAIN, Config, read_config
from edgekit.host.compiler.tasks.label_file import NOTHING, listed_characters, read_label_file
from edgekit.host.compiler.tasks.onnx_pixels import pixels_in_onnx
from edgekit.host.compiler.tasks.shares import is_share
from edgekit.host.compiler.tasks.stated import stated_picture
from edgekit.host.compiler.tasks.ultralytics import Ultralytics, read_ultralytics
from edgekit.host.compiler.tasks.usual_pixels import (
    CAFFE2_INPUT,
    IMAGENET_PIXELS,
    IMPULSE,
    is_ambiguous,
    is_plain,
    keras_pixels,
    pixels_by_name,
)

_FINER = ((INSTANCES, SEGMENT), (OBB, DETECT))  # what else a task that is named may be
_STATED = {"segment": INSTANCES}  # as Ultralytics names it
_BYTES: dict[str, Any] = {"mean": (0.0,), "scale": (1.0,)}
_SHARES: dict[str, Any] = {"mean": (0.0,), "scale": (255.0,)}
_MOST_FACTOR, _LEAST_MEAN = 0.02, 50.0  # of pixels from 0 to 255
_MEANS = (0.3, 0.6)  # of pixels from 0 to 1
_TAGGER_PIXELS: dict[str, Any] = {
    "fit": LETTERBOX, "fill": 255, "zoom": 1.0, "channels": BGR, "filter": CUBIC, **_BYTES,
}  # fmt: skip
_IMAGENET, _WITH_BACKGROUND = 1000, 1001  # classes
_OF_TENSORFLOW = re.compile(r":\d+$|/Softmax$")  # names of tensors, as NVIDIA's TAO has them, too
# Whose classifiers have such an input and an output of shares; YOLOv5's have no softmax.
_BY_ENDS: Mapping[tuple[str, ...], tuple[str, dict[str, Any]]] = {
    ("images", "output0"): ("YOLO", {**_SHARES, "fit": CROP}),
    ("data", "model_output"): ("Custom Vision", {**_BYTES, "channels": BGR, "fit": STRETCH}),
}
_MOVES = (ops.Transpose, ops.Reshape, ops.Cast, ops.Convert, ops.Pad, ops.ResizeBilinear)
_END = 3  # operators, among which a softmax is that of the scores
_TEACHABLE = "model_unquant"  # the name of Teachable Machine's files of floats


@dataclass(frozen=True)
class KnownModel:
    """A model with what is known of it: `own` and `notes` are from its file, `config` and
    `label_file` from files next to it, and so are `asked` and `picture`, which the user wrote: a
    task, and fields of a TaskSpec."""

    path: Path
    ends: Ends
    own: Ultralytics
    notes: ModelNotes
    config: Config
    options: CompileOptions
    asked: str = ""
    picture: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def label_file(self) -> tuple[tuple[str, ...], str]:
        return read_label_file(self.path)

    @cached_property
    def listed(self) -> tuple[str, ...]:
        """Labels in the metadata of PaddlePaddle's exporters."""
        labels = tuple(listed_characters(self.path).split("\n"))
        return labels if len(labels) > 1 and all(map(str.isprintable, labels)) else ()

    @property
    def stated(self) -> str:
        """The task that the user's or the model's file states; empty if neither does."""
        return self.asked or _STATED.get(self.own.task, self.own.task)

    def asks_for(self, task: str) -> bool:
        """Whether the options or the file name the task."""
        named = self.options.task if self.options.task in PICTURES else ""
        wanted = named or (DETECT if self.options.head else self.stated)
        return task == wanted or (task, named) in _FINER

    def labels(self, count: int) -> tuple[str, ...]:
        """The labels of so many classes; 0 if their number is not known. Lists that begin with a
        label for nothing also serve models that count without it."""
        listed, name = self.label_file
        # A text that is named like the model may be anything, unless it has as many lines.
        listed = listed if count or name != f"{self.path.stem}.txt" else ()
        known = [self.own.labels, *self.notes.labels, self.listed, self.config.labels, listed]
        known = [each for each in known if each]
        shorter = [each[1:] for each in known if each[0].lower() in NOTHING]
        if not count:
            return (shorter or known or [()])[0]
        return next((each for each in (*known, *shorter) if len(each) == count), ())

    def pixels(self, count: int, head: str = "") -> dict[str, Any]:
        """What is stated of pixels, as fields of a TaskSpec: first by the user's file."""
        return {**self._stated_by_others(count, head), **self.picture}

    def _stated_by_others(self, count: int, head: str) -> dict[str, Any]:
        """Files next to the model count if they have as many classes, and MMDeploy's for its
        `head`: they may be another model's. What the file itself does with pixels counts more: they
        are of the network it is made of."""
        stated = self.notes.inputs[0] if self.notes.inputs else None
        if stated is not None and (stated.mean or stated.scale):
            return {"mean": stated.mean, "scale": stated.scale}
        if own := pixels_in_onnx(self.path):
            return own
        if count and self._is_tagger:  # whose config.json is of the network before its export
            return _TAGGER_PIXELS
        config, scaled = self.config, self._scaled_pixels
        if MMDEPLOY in (config.head, head):  # whose file does not say how many classes there are
            if config.head != head:
                return scaled
            return {"mean": config.mean, "scale": config.scale, **config.placing, **scaled}
        if config.kind == MMPRETRAIN:  # nor does it
            return {} if head else {"mean": config.mean, "scale": config.scale, **scaled}
        # A detector of PaddleDetection does not show how many classes it has, a vector has none.
        # Nor do matting's files, such as those of MODNet, list any.
        classes = count or (0 if config.classifies else config.classes)
        fits = not config.classes or classes == config.classes
        if not (config.scale and fits):
            return scaled
        order = {"channels": BGR} if config.channels == BGR else {}
        filter_ = {"filter": config.filter} if config.filter else {}
        return {"mean": config.mean, "scale": config.scale, **order, **filter_, **scaled}

    def has_config_for(self, count: int) -> bool:
        """Whether files next to it are of a model of so many classes, or of a classifier without
        saying of how many."""
        config = self.config
        if config.kind == MMPRETRAIN or (config.classifies and not config.classes):
            return True
        return count == config.classes

    @property
    def states_pixels_alone(self) -> bool:
        """Whether preprocessor_config.json is next to it, but no file with a number of classes."""
        return self.config.file == PIXELS and bool(self.config.scale)

    def source(self, labels: tuple[str, ...], otherwise: str) -> str:
        """Where the task is from."""
        file = features_file(self.path).name
        if self.asked:
            return f"by {file}"
        pixels = f", pictures by {file}" if self.picture else ""
        if self.own.task:
            return f"by {self.own.source}{pixels}"
        if labels and labels == self.config.labels:
            return f"by {self.config.file}{pixels}"
        listed, name = self.label_file
        ours = labels and labels in (listed, listed[1:])
        return f"{otherwise}, with labels of {name}{pixels}" if ours else f"{otherwise}{pixels}"

    def contradiction(self, count: int, labels: tuple[str, ...]) -> str:
        """What files say of another number of classes, so that it is left out; else empty."""
        for known, whose in ((len(self.own.labels), self.own.source),
                             (self.config.classes, self.config.file)):  # fmt: skip
            if known and count > 0 and known != count and not labels:
                return f", without labels because {whose} is for {known} classes, not {count}"
        listed, name = self.label_file
        is_other = name == f"{self.path.stem}.txt" or len(listed) == count - 1  # but for nothing
        if not listed or labels or count <= 0 or is_other:
            return ""
        return f", without labels because {name} has {len(listed)} lines, not {count}"

    def proposed_pixels(self, count: int) -> tuple[str, dict[str, Any]]:
        """Whose classifiers this may be, and their pixels; empty if it scales them itself, or if
        nobody's are likely. TensorFlow's have one more class, for the background; Keras' end in a
        softmax, and of those the MobileNets cut what is above 6, as Edge Impulse's also do.
        Teachable Machine numbers its labels. YOLOv5's exporter names classes, but no task."""
        placing = {"fit": CROP, "zoom": 256 / 224}  # of torchvision's programs
        if self.own.labels and not self.own.task:
            return "YOLOv5", {**IMAGENET_PIXELS, "fit": CROP}
        whose, pixels = self.named_pixels
        if whose:
            return whose, {**placing, **pixels}
        if self.path.stem == _TEACHABLE and not self._scales:
            return "Teachable Machine", {"mean": (127.5,), "scale": (127.5,), "fit": CROP}
        if self.path.stem.startswith(IMPULSE) and not self._scales:
            return "Edge Impulse", {**_SHARES, "fit": CROP}
        if count == _WITH_BACKGROUND and not self._scales:
            return "TensorFlow", {"mean": (127.5,), "scale": (127.5,)}
        last = self.ends.graph.tensors[self.ends.image.name].shape[3] == self.ends.image.channels
        if count == _IMAGENET and last and self._ends_in_softmax and self.is_open:
            whose, pixels = keras_pixels(self.path.stem)
            if whose:
                return whose, pixels
        if not self._scales and self._is_mobile_net:
            return "Keras", {"mean": (127.5,), "scale": (127.5,)}
        by_ends = _BY_ENDS.get((*self.ends.graph.inputs, *self.ends.graph.outputs))
        if by_ends and not self._scales and is_share(self.ends.graph, self.ends.graph.outputs[0]):
            return by_ends
        if self._is_of_any or is_ambiguous(self.path.stem):
            return "", {}
        return ("PyTorch", {**self.torch_pixels, **placing}) if self.torch_pixels else ("", {})

    @property
    def named_pixels(self) -> tuple[str, dict[str, Any]]:
        """Whose networks this is by its names, and how they take pixels; empty if unknown."""
        known = pixels_by_name(self.path.stem, self.ends.image.name)
        return known if self.is_open else ("", {})

    @property
    def torch_pixels(self) -> dict[str, Any]:
        """How PyTorch's models usually take pixels, if this may be one: TensorFlow's have channels
        last, so that .tflite files with channels first are PyTorch's, of LiteRT's converter."""
        tensor = self.ends.graph.tensors[self.ends.image.name]
        kind = format_of(self.path)
        is_torch = kind in ("onnx", "tflite") and tensor.shape[1] == 3 and not self._scales
        names = (tensor.name, *self.ends.graph.outputs)
        named = kind == "onnx" and any(map(_OF_TENSORFLOW.search, names))
        return IMAGENET_PIXELS if is_torch and not (named or CAFFE2_INPUT in names) else {}

    @property
    def is_open(self) -> bool:
        """Whether nothing shows which values its pixels have."""
        return not self._scales

    @property
    def _is_mobile_net(self) -> bool:
        graph, image = self.ends.graph, self.ends.image
        shape = graph.tensors[image.name].shape
        cuts = any(getattr(node.op, "activation", None) is Activation.RELU6 for node in graph.nodes)
        return (
            shape[3] == 3
            and cuts
            and self._ends_in_softmax
            and self.ends.computes(ops.DepthwiseConv2D.kind)
        )

    @property
    def _ends_in_softmax(self) -> bool:
        outputs = self.ends.graph.outputs
        return len(outputs) == 1 and self.ends.is_from(outputs[0], ops.Softmax.kind)

    @property
    def _is_of_any(self) -> bool:
        """Whether neither the name of the file nor the network shows whose it is: transformers are
        timm's, Hugging Face's or torchvision's, and YOLO's are among those with a softmax."""
        kinds = {node.op.kind for node in self.ends.graph.nodes[:-_END]}
        attends = ops.Softmax.kind in kinds
        like_yolo = self._ends_in_softmax and ops.Logistic.kind in kinds
        return is_plain(self.path.stem) and (attends or like_yolo)

    @property
    def _is_tagger(self) -> bool:
        tensor = self.ends.graph.tensors[self.ends.image.name]
        last = tensor.shape[-1] == self.ends.image.channels and tensor.dtype is DType.F32
        return last and self.label_file[1] == TAGS

    @cached_property
    def _scaled_pixels(self) -> dict[str, Any]:
        """The pixels that its first operator brings near 1, or around 0; empty if it does not."""
        tensors, image = self.ends.graph.tensors, self.ends.image
        if tensors[image.name].dtype is not DType.F32:
            return {}
        # Caffe has no operators for three channels but those of a batch normalization.
        sizes = (1,) if format_of(self.path) == "caffe" else (1, 3)
        for node in self._first_nodes:
            others = [tensors[n].data for n in node.inputs if n and tensors[n].data is not None]
            data = others[0] if len(others) == 1 and len(node.inputs) == 2 else None
            return _scaled_by(node.op, data) if data is not None and data.size in sizes else {}
        return {}

    @property
    def _scales(self) -> bool:
        """Whether it scales pixels itself, or takes bytes."""
        scales = any(isinstance(node.op, SCALES) for node in self._first_nodes)
        return scales or self.ends.graph.tensors[self.ends.image.name].dtype is not DType.F32

    @cached_property
    def _first_nodes(self) -> list[Node]:
        """What is computed of the pixels first, which may be moved or resized before."""
        moved, found = {self.ends.image.name}, []
        for node in self.ends.graph.nodes:
            if moved.isdisjoint(node.inputs):
                continue
            if isinstance(node.op, _MOVES):
                moved |= {*node.outputs}
            else:
                found.append(node)
        return found


def _scaled_by(op: Operator, data: Array) -> dict[str, Any]:
    """The pixels of which an operator with this constant makes others."""
    least, most = float(np.abs(data).min()), float(np.abs(data).max())
    if isinstance(op, ops.Mul):
        return _BYTES if 0 < most <= _MOST_FACTOR else {}
    if isinstance(op, ops.Div):
        return _BYTES if most >= 1 / _MOST_FACTOR else {}
    if not isinstance(op, ops.Add | ops.Sub):
        return {}
    subtracts = bool(np.all(data > 0 if isinstance(op, ops.Sub) else data < 0))
    if subtracts and _MEANS[0] <= least <= most <= _MEANS[1]:
        return _SHARES
    return _BYTES if most >= _LEAST_MEAN else {}


def known_of(path: Path, ends: Ends, options: CompileOptions) -> KnownModel:
    """Reads the files."""
    own, notes, config = read_ultralytics(path), read_notes(path), read_config(path)
    return KnownModel(path, ends, own, notes, config, options, *stated_picture(path))
