"""Quantizes a model file, calibrated on a file or folder of samples."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from edgekit.host.compiler.inputs import InputOptions, read_notes
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.transforms.quantize.cost import cost_on
from edgekit.host.compiler.transforms.quantize.labels import read_labels
from edgekit.host.compiler.transforms.quantize.observe import Sample
from edgekit.host.compiler.transforms.quantize.prepare import float_form
from edgekit.host.compiler.transforms.quantize.quantize import TARGET, Quantized, quantize
from edgekit.host.compiler.transforms.quantize.samples import read_samples
from edgekit.kb.targets.board import BoardProfile


def quantized_file(
    model: Path,
    graph: Graph,
    data: Path,
    board: BoardProfile,
    labels: Path | None = None,
    target: float = TARGET,
    options: InputOptions | None = None,
) -> Quantized:
    """`quantize` the graph imported from `model` for a `board`, with the samples in `data`.
    `options` override the pixel scaling recorded in the model. The loss is added to the graph as a
    note.

    Raises InputError for unsuitable models or samples.
    """
    float_form(graph)  # fail early if there is nothing to quantize: reading samples is slow
    samples = samples_of(model, graph, data, options)
    truth = None if labels is None else read_labels(labels, graph, len(samples))
    made = quantize(graph, samples, cost_on(board), truth, target)
    return replace(made, graph=replace(made.graph, notes=(*made.graph.notes, _note(made))))


def samples_of(
    model: Path, graph: Graph, data: Path, options: InputOptions | None = None
) -> list[Sample]:
    """`read_samples` with the model file's pixel scaling, unless `options` override it."""
    notes = read_notes(model).inputs[:1]
    given = options or InputOptions()
    return read_samples(data, graph, replace(given, notes=notes[0]) if notes else given)


def _note(made: Quantized) -> str:
    report = made.report
    floats = f"; {len(report.floats)} operators stay in floats" if report.floats else ""
    missed = f", expected {report.target:.10g}" if report.cosine < report.target else ""
    return (
        f"quantized to int8: cosine {report.cosine:.5f} with the float model on {report.unseen} "
        f"samples held out{missed}{floats}"
    )
