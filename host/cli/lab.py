"""`edgekit lab`: benchmarks kernels, tunes methods and builds the knowledge base."""

from __future__ import annotations

import typer

from edgekit.host.cli import bench_gemm, bench_nna, bench_sparse, kb, tune
from edgekit.host.cli.options import examples


def register(app: typer.Typer) -> None:
    """Adds the command group to the application."""
    group = typer.Typer(
        help="Measure kernels, tune methods, and build the knowledge base.",
        epilog=examples(
            "edgekit lab bench gemm --peers",
            "edgekit lab tune model models/okay_nabu.tflite --board rpi4",
            "edgekit lab kb lookup --board a57 --gemm 500,1600,30",
        ),
        rich_markup_mode=None,
    )
    bench = typer.Typer(
        help="Measure kernels on a board.",
        epilog=examples(
            "edgekit lab bench gemm --peers",
            "edgekit lab bench nna --shape 64,576,1024 --board nna2",
        ),
        rich_markup_mode=None,
    )
    for each in (bench_gemm, bench_sparse, bench_nna):
        each.register(bench)
    group.add_typer(bench, name="bench")
    tune.register(group)
    kb.register(group)
    app.add_typer(group, name="lab")
