"""A model's file and its samples' → codes, from what files say themselves."""

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
    """`quantize` of a graph that was imported from `model`, by the samples in `data`, pixels scaled
    as the model says unless `options` do, for a `board`. What was lost is a note of the graph.

    Raises InputError for a model or samples that do not fit.
    """
    float_form(graph)  # is there something to quantize? Reading samples may take a while
    samples = samples_of(model, graph, data, options)
    truth = None if labels is None else read_labels(labels, graph, len(samples))
    made = quantize(graph, samples, cost_on(board), truth, target)
    return replace(made, graph=replace(made.graph, notes=(*made.graph.notes, _note(made))))


def samples_of(
    model: Path, graph: Graph, data: Path, options: InputOptions | None = None
) -> list[Sample]:
    """`read_samples`, pixels scaled as the model's file says unless `options` do."""
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
