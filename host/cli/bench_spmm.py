"""`edgekit lab bench sparse --weights`: pruned 1x1 convolutions compared with dense ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Literal

PIXELS = 2304
Storage = Literal["f32", "f16", "s8"]


def bench_spmm(
    weights: Path | None,
    pixels: int | None,
    threads: int,
    seconds: float,
    storage: Storage,
    as_json: bool,
) -> None:
    """Times pruned 1x1 convolutions here against dense ones."""
    from edgekit.host.cli.output import emit, table
    from edgekit.host.cli.progress import working
    from edgekit.host.lab.bench.machine import machine_summary
    from edgekit.host.lab.bench.spmm import bench_layer, layers_of, mean_ratio

    results = []
    for layer in layers_of(weights):
        with working(f"timing {layer.name}"):
            results.append(
                bench_layer(layer, pixels or layer.pixels or PIXELS, threads, seconds, storage)
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
