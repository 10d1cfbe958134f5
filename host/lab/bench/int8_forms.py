"""The 8-bit files of a float network that engines are compared with, as our `quantize` writes
them."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import edgekit.host.compiler.exporters as exporters
import edgekit.host.compiler.transforms.quantize as quantizer
from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.frontends import import_model, model_hash
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.errors import InputError
from edgekit.host.lab.zoo.models import zoo_options

_SAMPLES = 8
_DIGITS = 16
# The least cosine of outputs: all operators that can be are quantized. Weights are random, and
# times do not depend on them.
_TARGET = 0.0


def int8_forms(model: Path) -> Mapping[str, Path]:
    """The files by suffix: .onnx with QuantizeLinear and DequantizeLinear, and .tflite if it can
    hold the network. Written once to the cache; both have the float network's inputs and outputs.

    Raises InputError for a network that cannot be imported or has nothing to quantize.
    """
    folder = cache_folder() / "performance" / f"int8-{_digest(model)}"
    made = folder / f"{model.stem}.onnx"
    if not made.is_file():
        _write_forms(model, made)
    return {each.suffix: each for each in sorted(folder.glob(f"{model.stem}.*"))}


def _write_forms(model: Path, made: Path) -> None:
    graph = import_model(model, zoo_options(model).shapes)
    rng = np.random.default_rng(0)
    samples = [
        {name: random_input(graph.tensors[name], rng) for name in graph.inputs}
        for _ in range(_SAMPLES)
    ]
    found = quantizer.quantize(graph, samples, lambda _: 0.0, target=_TARGET).graph
    made.parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(InputError):  # LiteRT cannot run all networks
        atomic_write(made.with_suffix(".tflite"), exporters.write_tflite(found))
    atomic_write(made, exporters.write_onnx(found))


def _digest(model: Path) -> str:
    """Of the network and the code that quantizes and writes it."""
    sources = (Path(module.__path__[0]) for module in (quantizer, exporters))
    parts = [model_hash(model).encode()]
    parts += [path.read_bytes() for folder in sources for path in sorted(folder.rglob("*.py"))]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:_DIGITS]
