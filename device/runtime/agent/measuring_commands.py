"""The runtime's commands that time or count."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from edgekit.device.runtime.agent.arguments import (
    add_placement,
    load_current,
    pinned_to_cores,
    positive,
)
from edgekit.device.runtime.errors import Document
from edgekit.device.runtime.record import asdict

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.arguments import AddCommand


def add_measuring_commands(command: AddCommand) -> None:
    """Adds the commands that time or count."""
    command("noise", _noise, "report whether other programs or heat would disturb measurements")
    if sub := command("bench", _bench, "measure the latency of the current release"):
        sub.add_argument("--input", type=Path, help=".npz (default: the golden input)")
        sub.add_argument(
            "--variant", type=int, default=0, help="variant whose golden inputs are used, from 0"
        )
        add_placement(sub)
        sub.add_argument("--count", type=positive, default=0, help="runs (default: by time)")
        sub.add_argument("--warmup", type=positive, default=3)
        sub.add_argument("--seconds", type=positive, default=2, help="time to spend")
        sub.add_argument("--hotspots", action="store_true", help="also show where the time goes")
    if sub := command(
        "count", _count, "count the instructions of an inference of the current release"
    ):
        sub.add_argument("--repeats", type=positive, default=5)
    if sub := command("gemm-bench", _gemm_bench, "measure GEMM methods: time or instructions"):
        sub.add_argument("--requests", type=Path, required=True, help="JSON lines")
        sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")
    if sub := command("spmv-bench", _spmv_bench, "time a sparse matrix in several block forms"):
        sub.add_argument("--request", type=Path, required=True, help="JSON")
        sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")
    if sub := command("spmm-bench", _spmm_bench, "time products of pruned weights and pixels"):
        sub.add_argument("--request", type=Path, required=True, help="JSON")
        sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")
    if sub := command("outlier-bench", _outlier_bench, "time products with outlier channels"):
        sub.add_argument("--request", type=Path, required=True, help="JSON")
        sub.add_argument("--library", type=Path, help="libedgekit-kernels.so of this board")


def _bench(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.bench import BenchPlan, bench_release
    from edgekit.device.runtime.agent.npz import read_npz

    given = read_npz(options.input) if options.input else None
    plan = BenchPlan(options.count, options.warmup, options.seconds)
    current = load_current(options)
    with pinned_to_cores(current[0], options) as placement:
        found = bench_release(current, placement, plan, given, options.variant)
        if options.hotspots:
            from edgekit.device.runtime.agent.model_hotspots import add_hotspots

            add_hotspots(found, current, placement, options.variant)
    return found


def _noise(_: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.noise import watch

    return watch()


def _count(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.count import count, fix_layout
    from edgekit.device.runtime.agent.golden import golden_inputs
    from edgekit.device.runtime.agent.model import open_model

    fix_layout()
    manifest, files = load_current(options)
    inputs = golden_inputs(files, manifest.every_variant()[0])
    found = count(open_model(files, manifest), inputs, options.repeats)
    return {
        "schema": "edgekit.count/1",
        "release": manifest.id,
        "model": manifest.model.name,
        **asdict(found),
    }


def _gemm_bench(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.gemm_bench import command

    return command(options.requests, options.library)


def _spmv_bench(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.sparse_bench import bench
    from edgekit.device.runtime.arrays.find import find_library
    from edgekit.device.runtime.arrays.sparse_library import SparseLibrary

    return bench(options.request, SparseLibrary(options.library or find_library()[0]))


def _spmm_bench(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.spmm_bench import bench
    from edgekit.device.runtime.arrays.find import find_library

    return bench(options.request, options.library or find_library()[0])


def _outlier_bench(options: argparse.Namespace) -> Document:
    from edgekit.device.runtime.agent.outlier_bench import bench
    from edgekit.device.runtime.arrays.find import find_library

    return bench(options.request, options.library or find_library()[0])
