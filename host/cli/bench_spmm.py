"""`edgekit lab bench spmm`: pruned 1x1 convolutions compared with dense ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from edgekit.host.cli.options import Json, examples

_PIXELS = 2304


def register(group: typer.Typer) -> None:
    """Adds the command to the group `bench`."""
    group.command(
        "spmm",
        epilog=examples(
            "edgekit lab bench spmm",
            "edgekit lab bench spmm --weights models/face_detection_full_range_sparse.tflite",
            "edgekit lab bench spmm --weights pruned.npz --pixels 2304 --threads 2 --json",
        ),
    )(bench_spmm)


def bench_spmm(
    weights: Annotated[
        Path | None,
        typer.Option(
            "--weights",
            metavar="FILE",
            show_default=False,
            help="Model, or .npz of [outputs, inputs] (default: layers of density 0.3).",
        ),
    ] = None,
    pixels: Annotated[
        int | None,
        typer.Option(
            "--pixels",
            metavar="N",
            min=1,
            show_default=False,
            help=f"Pixels per image (default: the model's; {_PIXELS} for other weights).",
        ),
    ] = None,
    threads: Annotated[
        int, typer.Option("--threads", metavar="N", min=1, help="Threads to run on.")
    ] = 1,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds", metavar="S", min=0.05, max=600.0, help="Seconds to time each layer."
        ),
    ] = 0.5,
    storage: Annotated[
        Literal["f32", "f16", "s8"],
        typer.Option("--storage", help="Type of the weights; sums are float32."),
    ] = "f32",
    as_json: Json = False,
) -> None:
    """Time pruned 1x1 convolutions here against dense ones."""
    from edgekit.host.cli.output import emit, table
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.machine import machine_summary
    from edgekit.host.lab.bench.spmm import bench_layer, layers_of, mean_ratio

    results = []
    for layer in layers_of(weights):
        with working(f"timing {layer.name}"):
            results.append(
                bench_layer(layer, pixels or layer.pixels or _PIXELS, threads, seconds, storage)
            )
    mean = mean_ratio(results)
    if as_json:
        emit(
            {
                "schema": "edgekit.bench.spmm/1",
                "machine": machine_summary(),
                "threads": threads,
                "storage": storage,
                "layers": [{**asdict(r), "effective_gflops": r.effective} for r in results],
                "mean_ratio": mean,
            }
        )
        return
    headers = ["layer", "outputs", "inputs", "pixels", "density", "µs", "GFLOP/s", "dense µs"]
    rows = [
        [r.name, str(r.outputs), str(r.inputs), str(r.pixels), f"{r.density:.2f}",
         f"{r.median_us:.1f}", f"{r.effective:.0f}", f"{r.dense_us:.1f}", f"{r.ratio:.2f}"]
        for r in results
    ]  # fmt: skip
    table([*headers, "dense / ours"], rows)
    print(f"geometric mean: the dense product takes {mean:.2f} times as long")
