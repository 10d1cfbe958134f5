"""Prunes a model file, calibrated on a file or folder of samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.host.compiler.inputs import InputOptions
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.prune.choose import layers_of
from edgekit.host.compiler.transforms.prune.pattern import Pattern
from edgekit.host.compiler.transforms.prune.prune import Pruned, prune
from edgekit.host.compiler.transforms.quantize.file import samples_of
from edgekit.host.compiler.transforms.quantize.labels import read_labels
from edgekit.host.compiler.transforms.quantize.prepare import float_form


def pruned_file(
    model: Path,
    graph: Graph,
    data: Path,
    pattern: Pattern,
    labels: Path | None = None,
    every: bool = False,
    options: InputOptions | None = None,
) -> Pruned:
    """`prune` the graph imported from `model` with the samples in `data`. `options` override the
    pixel scaling recorded in the model. The loss is added to the graph as a note.

    Raises InputError for unsuitable models or samples.
    """
    layers_of(float_form(graph, "prune"), pattern, every)  # fail early: reading samples is slow
    samples = samples_of(model, graph, data, options)
    truth = None if labels is None else read_labels(labels, graph, len(samples))
    made = prune(graph, samples, pattern, truth, every)
    report = made.report
    note = (
        f"pruned: {report.sparsity:.0%} of the weights of {len(report.pruned)} layers; cosine "
        f"{report.cosine:.5f} with the original model on {report.unseen} samples held out"
    )
    return replace(made, graph=replace(made.graph, notes=(*made.graph.notes, note)))
