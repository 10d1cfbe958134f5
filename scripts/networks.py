#!/usr/bin/env python3
"""Compiles the networks that people run, and compares their outputs with ONNX Runtime's.

    scripts/networks FOLDER [--only yolo resnet] [--board local rpi4 rpi5]
        [--type float int8] [--exporter new old] [--export] [--small] [--compile-only] [--record]

--export first writes the missing networks of `tests.long.networks` to FOLDER, by both exporters of
PyTorch, in an environment that pip makes in the user's cache; --small instead only writes those for
`scripts/performance --networks FOLDER`, by the older exporter. Each network is compiled by `edgekit
compile`, twice in an empty EDGEKIT_HOME: once cold, once warm; boards that compute in half
precision with --precision auto. int8 is a file that `edgekit quantize` wrote. The library then runs
here or under qemu-user, where a network of 640 x 640 takes minutes. --record adds the rows to
docs/results/networks.csv. Exit code 1 if an output is wrong, a network is refused, or a cold
compilation takes more than 30 CPU seconds.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from results import record

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.golden.vectors import random_input
from edgekit.host.compiler.ir.types import Array
from edgekit.host.deploy.bundle import Bundle
from edgekit.host.lab.zoo.cases import Cases
from edgekit.kb.targets.board import load_board
from tests.cross.conftest import CPUS, VirtualBoard, compile_driver
from tests.long.random_graphs import Here
from tests.long.zoo_one import PeerError, WrongError, apart, distance, onnx_peer

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("torch==2.13.0", "torchvision==0.28.0", "timm==1.0.31", "transformers==5.24.0",
             "onnxscript==0.7.2")  # fmt: skip
_CPUS = {"local": "", "rpi3": CPUS["a53"], "rpi4": CPUS["a57"], "rpi5": CPUS["a76"]}
_MOST_CPU_SECONDS = 30.0
_SAMPLES = 8
_NUDGE = {"float": 4 * 2.0**-24, "int8": 1 / 512}
_HALF = 0.02  # of the largest value: what --precision auto promises


@dataclass(frozen=True)
class Used:
    """What a command used, and the last line that it printed on stderr if it failed."""

    cpu_seconds: float
    mib: float
    error: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", nargs="+", default=[""], help="parts of names")
    parser.add_argument("--board", nargs="+", choices=list(_CPUS), default=["rpi4", "rpi5"])
    parser.add_argument("--type", nargs="+", choices=list(_NUDGE), default=list(_NUDGE))
    parser.add_argument("--exporter", nargs="+", choices=["new", "old"], default=["new", "old"])
    parser.add_argument("--export", action="store_true", help="write missing networks first")
    parser.add_argument("--small", action="store_true", help="write those for scripts/performance")
    parser.add_argument("--compile-only", action="store_true", help="do not run libraries")
    parser.add_argument("--record", action="store_true", help="add rows to docs/results")
    options = parser.parse_args()
    exporters = ["old", "--small"] if options.small else options.exporter
    if options.export or options.small:
        command = [torch_python(), "-m", "tests.long.networks.export", str(options.folder)]
        # PyTorch's random weights depend on the vectors of the machine.
        env = {**os.environ, "ATEN_CPU_CAPABILITY": "avx2"}
        done = subprocess.run([*command, "--exporter", *exporters], cwd=_ROOT, env=env, check=False)
        if options.small:
            return done.returncode
    bad = 0
    for row in rows(options):
        print("  ".join(row.values()), flush=True)
        bad += (
            row["verdict"] not in ("right", "compiled")
            or float(row["cold_cpu_s"]) > _MOST_CPU_SECONDS
        )
        if options.record:
            source = "x86, qemu-user", "scripts/networks"
            record("networks.csv", [row], ("network", "exporter", "board", "type"), source)
    return int(bad > 0)


def torch_python() -> str:
    """The Python of the environment with PyTorch; makes it if it is missing."""
    folder = cache_folder() / "networks" / "-".join(_PACKAGES)
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "-q", *_PACKAGES], check=True)
    return str(python)


def rows(options: argparse.Namespace) -> Iterator[dict[str, str]]:
    for path in sorted(options.folder.glob("*.onnx")):
        name, _, exporter = path.stem.rpartition("-")
        if exporter not in options.exporter or not any(part in name for part in options.only):
            continue
        for kind in options.type:
            with tempfile.TemporaryDirectory() as scratch:
                model = path if kind == "float" else quantized(path, Path(scratch))
                for board in options.board:
                    about = {"network": name, "exporter": exporter, "board": board, "type": kind}
                    yield about | judged(model, board, kind, Path(scratch), options.compile_only)


def judged(
    model: Path | str, board: str, kind: str, scratch: Path, compile_only: bool
) -> dict[str, str]:
    """The verdict on a model's library, and what compiling it used; `model`: an error instead."""
    row = {"cold_cpu_s": "0", "warm_cpu_s": "0", "mib": "0", "verdict": "refused", "detail": ""}
    if isinstance(model, str):
        return row | {"detail": model}
    bundle = scratch / f"{board}-{kind}.ekb"
    words = ["compile", str(model), "--board", board, "-o", str(bundle)]
    words += ["--precision", "auto"] if load_board(board).computes_half and kind == "float" else []
    with tempfile.TemporaryDirectory(dir=scratch) as home:
        cold, warm = edgekit(words, home), edgekit(words, home)
    row |= {"cold_cpu_s": f"{cold.cpu_seconds:.1f}", "warm_cpu_s": f"{warm.cpu_seconds:.1f}"}
    row |= {"mib": f"{cold.mib:.0f}"}
    if cold.error:
        return row | {"detail": cold.error}
    if compile_only:
        return row | {"verdict": "compiled"}
    verdict, detail = compared(model, board, Bundle.read(bundle), kind, scratch)
    return row | {"verdict": verdict, "detail": detail}


def edgekit(words: Sequence[str], home: str) -> Used:
    """Runs a command of edgekit with its own folders."""
    environment = {**os.environ, "EDGEKIT_HOME": home} if home else dict(os.environ)
    command = [str(Path(sys.executable).with_name("edgekit")), *words]
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=environment
    )
    assert process.stderr is not None
    lines = process.stderr.read().strip().splitlines() or [""]
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    error = lines[-1] if process.returncode else ""
    return Used(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, error)


def quantized(model: Path, scratch: Path) -> Path | str:
    """The model in 8 bits, or why there is none."""
    graph, rng = import_model(model), np.random.default_rng(1)
    samples, written = scratch / "samples.npz", scratch / f"{model.stem}.int8.onnx"
    drawn = {
        name: np.stack([random_input(graph.tensors[name], rng) for _ in range(_SAMPLES)])
        for name in graph.inputs
    }
    np.savez(samples, allow_pickle=False, **drawn)
    done = edgekit(["quantize", str(model), "--samples", str(samples), "-o", str(written)], "")
    return done.error or written


def compared(model: Path, board: str, bundle: Bundle, kind: str, scratch: Path) -> tuple[str, str]:
    """Runs the library of a bundle on random inputs; the verdict on its outputs, and a detail."""
    release = scratch / board
    release.mkdir(exist_ok=True)
    for name in (LIBRARY, WEIGHTS):
        (release / name).write_bytes(bundle.files[name])
    graph, rng = import_model(model), np.random.default_rng(2)
    inputs = {name: random_input(graph.tensors[name], rng) for name in graph.inputs}
    cases = Cases(tuple(x[np.newaxis] for x in inputs.values()), 1)
    found = [y[0] for y in machine(board).run(release, cases, scratch)]
    try:
        peer = onnx_peer(model)
        if kind == "float" and bundle.manifest.loss is not None:
            worst = max(map(share, found, peer(inputs))) / _HALF
            return "right" if worst <= 1 else "wrong", f"half, {worst:.2f} of what is allowed"
        worst = distance(found, inputs, peer, rng, _NUDGE[kind])
    except PeerError as error:
        return "no peer", str(error)
    except WrongError as error:
        return "wrong", str(error)
    return "right", f"at most {worst:.2f} of what is allowed"


def share(found: Array, wanted: Array) -> float:
    """The largest difference as a fraction of the largest value."""
    return apart(found, wanted) / max(float(np.abs(wanted).max(initial=0)), 1e-7)


@cache
def machine(board: str) -> VirtualBoard:
    profile = load_board(board)
    driver = Path(tempfile.mkdtemp()) / "driver"
    compile_driver(profile, driver)
    kind = VirtualBoard if _CPUS[board] else Here
    return kind(profile.arch, _CPUS[board], driver)


if __name__ == "__main__":
    raise SystemExit(main())
