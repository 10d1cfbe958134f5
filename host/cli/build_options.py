"""Options that `compile` and `estimate` share beside those of all that compile: samples and what is
fitted to them, and states."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from edgekit.host.compiler.options import CompileOptions, Tie

QuantizeOption = Annotated[
    Path | None,
    typer.Option(
        "--quantize",
        metavar="FILE.npz or FOLDER",
        show_default=False,
        help="Quantize a model of floats to 8 bits first, calibrated on these samples; see "
        "edgekit quantize.",
    ),
]
SamplesOption = Annotated[
    Path | None,
    typer.Option(
        "--samples",
        metavar="FILE.npz or FOLDER",
        show_default=False,
        help="Fit weights in few bits, and thresholds of outliers, to these inputs.",
    ),
]
GroupSizeOption = Annotated[
    int | None,
    typer.Option(
        "--group-size",
        metavar="32|64|128",
        show_default=False,
        help="Weights in few bits that share a scale. Default: of 8 bits all of an output's, of 4 "
        "the largest that divides.",
    ),
]
TargetOption = Annotated[
    float | None,
    typer.Option(
        "--target",
        metavar="COSINE",
        show_default=False,
        help="With --weights int4 and --samples: give 8 bits to the layers that need them, until "
        "outputs are so close to the float model's.",
    ),
]
StateOption = Annotated[
    list[str] | None,
    typer.Option(
        "--state",
        metavar="INPUT=OUTPUT",
        show_default=False,
        help="Keep an output on the board as that input of the next run, zero at first; several "
        "times, or with * for the same text in both names: 'past.*=present.*'.",
    ),
]


def with_samples(
    options: CompileOptions,
    quantize: Path | None,
    samples: Path | None,
    group_size: int | None,
    target: float | None,
    state: list[str] | None,
) -> CompileOptions:
    """`options` and what these ask for; InputError for what does not go together."""
    return replace(
        options,
        quantize=quantize,
        samples=samples,
        group_size=group_size,
        target=target,
        states=tuple(_tie(text) for text in state or ()),
    )


def _tie(text: str) -> Tie:
    name, _, output = text.partition("=")
    return Tie(name, output)
