"""Estimates other engines on a board we do not have: their wheels under the same core model.

An engine's wheel for the board's architecture runs in a system root in which programs detect the
board's core, so it selects the same kernels as on the board. Models are converted on this machine.
Each engine runs in the fastest precision whose outputs are as close to the reference's as ours must
be; one whose outputs are not has no time.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from edgekit.host.compiler.target import HALF_LOSS
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.contender import UnfitError
from edgekit.host.lab.bench.engines import mnn_conversion, run_converter
from edgekit.host.lab.bench.environments import interpreter
from edgekit.host.lab.bench.peer_check import (
    Expected,
    expected_of,
    largest_error,
    read_outputs,
    why_wrong,
    write_inputs,
)
from edgekit.host.lab.bench.peer_times import PeerTimes
from edgekit.host.simulator.emulator import Emulator, find_emulator
from edgekit.host.simulator.identity import view_of
from edgekit.host.simulator.native import Build, built
from edgekit.host.simulator.report import cost_document
from edgekit.host.simulator.root import SystemRoot, library_root, system_root, wheels
from edgekit.host.simulator.run import SimulatedCost, SimulatorJob, SimulatorRun, run_job
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.core import Core

Tell = Callable[[str], None]
Shapes = Mapping[str, tuple[int, ...]]

_ARM, _RISCV = "aarch64", "riscv64"
_DRIVER = "peer.py"
_MOST_ERROR = 1e9  # reported for outputs that cannot be compared
_TO_HALF = (
    "import sys, onnx; from onnxruntime.transformers.float16 import convert_float_to_float16 as f; "
    "onnx.save(f(onnx.load(sys.argv[1]), keep_io_types=True), sys.argv[2])"
)
_FIND_PNNX = (
    "import importlib.util as u; print(u.find_spec('pnnx').submodule_search_locations[0] + '/pnnx')"
)


@dataclass(frozen=True)
class _Engine:
    """wheels: to install for the board; suffixes: model files it runs; half: architectures on which
    it computes in half precision if asked; architectures: those for which wheels exist."""

    wheels: tuple[str, ...]
    suffixes: tuple[str, ...]
    half: tuple[str, ...] = ()
    architectures: tuple[str, ...] = (_ARM,)


NUMPY = "numpy<2.4"  # the last version for the root's Python
ENGINES: Mapping[str, _Engine] = {
    # No switch of LiteRT's wheel makes XNNPACK compute f32 models in half precision.
    "litert": _Engine(("ai-edge-litert", NUMPY), (".tflite",)),
    "onnxruntime": _Engine(("onnxruntime", NUMPY), (".onnx",), half=(_ARM,)),
    "mnn": _Engine(("MNN", NUMPY), (".tflite", ".onnx"), half=(_ARM,)),
    # ncnn's RISC-V wheel lacks f16 functions and aborts.
    "ncnn": _Engine(("ncnn",), (".onnx",), half=(_ARM,), architectures=(_ARM, _RISCV)),
}


@dataclass(frozen=True)
class PeerEstimate:
    """An engine's cost of one inference, or why it is missing. `precision`: f32, f16
    or int8; `error`: the largest error of an output relative to the reference's largest value."""

    name: str
    version: str = ""
    missing: str = ""
    cost: SimulatedCost | None = None
    milliseconds: float = 0.0
    precision: str = "f32"
    error: float = 0.0

    def times(self, ours_ms: float) -> PeerTimes:
        """The times for a report, with the ratio to ours."""
        if self.cost is None:
            return PeerTimes(missing=self.missing)
        return PeerTimes(
            version=self.version,
            precision=self.precision,
            error=self.error,
            estimated_ms=self.milliseconds,
            ours_estimated_ms=ours_ms,
            ratio=self.milliseconds / ours_ms,
            **cost_document(self.cost),
        )


@dataclass(frozen=True)
class PeerJob:
    """The work of each engine: a model with the `shapes` of its inputs by name, the number of
    threads, the `precisions` to try, f16, f32 or int8, and a limit in seconds. `forms`: the same
    model in other formats, by suffix; `bound`: the largest error of an output that counts."""

    model: Path
    target: SimulatedCore
    threads: int
    shapes: Shapes
    precisions: Sequence[str]
    seconds: float
    forms: Mapping[str, Path] = field(default_factory=dict)
    bound: float = HALF_LOSS

    def file_of(self, suffixes: Sequence[str]) -> Path | None:
        """The model in one of these formats, its own first; None if it is in none of them."""
        found = {self.model.suffix: self.model, **self.forms}
        return next((path for suffix, path in found.items() if suffix in suffixes), None)


def _convert_for_engine(
    name: str, model: Path, expected: Expected, folder: Path, precision: str, tell: Tell
) -> Path:
    """The model in the engine's own format."""
    if name == "mnn":
        made = folder / "model.mnn"
        run_converter(
            "its converter", mnn_conversion(interpreter(name, model, tell), model, made), made
        )
        return made
    if name == "ncnn":
        copy, made = folder / "model.onnx", folder / "model.ncnn.param"
        copy.write_bytes(model.read_bytes())
        shapes = (list(values.shape) for values in expected.inputs.values())
        listed = ",".join(str(shape).replace(" ", "") for shape in shapes)
        command = [_find_pnnx(model, tell), str(copy), f"inputshape={listed}", "fp16=0"]
        run_converter("its converter", command, made)
        return made
    if name == "onnxruntime" and precision == "f16":
        made = folder / "half.onnx"
        python = interpreter(name, model, tell)
        command = [python, "-c", _TO_HALF, str(model.resolve()), str(made)]
        run_converter("its conversion to f16", command, made)
        return made
    return model.resolve()


def _find_pnnx(model: Path, tell: Tell) -> str:
    """The path of the converter program, in whichever environment its wheel is installed."""
    python = interpreter("ncnn", model, tell)
    done = subprocess.run([python, "-c", _FIND_PNNX], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError("its converter pnnx is not installed")
    return done.stdout.strip()


@dataclass(frozen=True)
class Tools:
    """The environment of an engine: `root` is the system root of an architecture, `site` a folder
    with wheels for it, `view` the root as programs on a core see it, and `run` runs a program
    there; `expected` are a model's inputs and outputs, `convert` writes it for an engine;
    `packages` is a root with more Debian packages, `build` compiles a program for it."""

    root: Callable[[str, Tell], SystemRoot] = system_root
    site: Callable[[SystemRoot, Sequence[str], Tell], Path] = wheels
    view: Callable[[str, Core, SystemRoot], SystemRoot] = view_of
    run: Callable[[Emulator, SimulatedCore, SimulatorJob], SimulatorRun] = run_job
    expected: Callable[[Path, Shapes], Expected] = expected_of
    convert: Callable[[str, Path, Expected, Path, str, Tell], Path] = _convert_for_engine
    packages: Callable[[str, Sequence[str], Tell], SystemRoot] = library_root
    build: Callable[[Build], Path] = built


_TOOLS = Tools()


def estimate_peers(job: PeerJob, tell: Tell, tools: Tools = _TOOLS) -> tuple[PeerEstimate, ...]:
    """Estimates every engine; one that fails or has no wheels for the board is missing."""
    return tuple(estimate_peer(name, job, tell, tools) for name in ENGINES)


def driver_content() -> bytes:
    """The program that runs an engine; estimates depend on it."""
    return (guest_folder() / _DRIVER).read_bytes()


def estimate_peer(name: str, job: PeerJob, tell: Tell, tools: Tools = _TOOLS) -> PeerEstimate:
    """Estimates one engine; see `estimate_peers`."""
    engine, arch = ENGINES[name], job.target.board.arch
    if arch not in engine.architectures:
        return PeerEstimate(name, missing=f"has no wheels for {arch}")
    file = job.file_of(engine.suffixes)
    if file is None:
        return PeerEstimate(name, missing=f"runs {' and '.join(engine.suffixes)} models only")
    half = arch in engine.half and job.target.board.computes_half
    precisions = [each for each in job.precisions if each != "f16" or half]
    if not precisions:
        return PeerEstimate(name, missing="computes in f32 only")
    try:
        root = tools.root(arch, tell)
        place = _Place(
            tools.site(root, engine.wheels, tell),
            tools.view(job.target.core.name, job.target.core, root),
            tools.expected(job.model, job.shapes),
            file,
        )
    except EdgekitError as failure:
        return PeerEstimate(name, missing=str(failure))
    return fastest([_estimate_in(each, name, job, place, tell, tools) for each in precisions])


def fastest(tried: Sequence[PeerEstimate]) -> PeerEstimate:
    """An engine in the precision in which it is fastest; the last one if it runs in none."""
    ran = [each for each in tried if each.milliseconds]
    return min(ran, key=lambda each: each.milliseconds) if ran else tried[-1]


@dataclass(frozen=True)
class _Place:
    """Where an engine runs, what it must compute, see Tools, and the file of the model."""

    site: Path
    view: SystemRoot
    expected: Expected
    model: Path


def _estimate_in(
    precision: str, name: str, job: PeerJob, place: _Place, tell: Tell, tools: Tools
) -> PeerEstimate:
    """The engine in one precision; without a time if it fails or its outputs are wrong."""
    view, expected = place.view, place.expected
    try:
        with tempfile.TemporaryDirectory() as made:
            folder = Path(made)
            file = tools.convert(name, place.model, expected, folder, precision, tell)
            write_inputs(expected, folder)
            driver = folder / _DRIVER
            driver.write_bytes(driver_content())
            command = [str(view.interpreter), "-S", str(driver), name, str(file), str(job.threads)]
            program = SimulatorJob(
                (*command, made, precision),
                view.folder,
                quiet=True,
                seconds=job.seconds,
                variables={"PYTHONPATH": str(place.site), "LC_ALL": "C", "PYTHONHASHSEED": "0"},
            )
            run = tools.run(find_emulator(job.target.board.arch, tell), job.target, program)
            error = largest_error(expected, read_outputs(folder))
    except (EdgekitError, UnfitError) as failure:
        return PeerEstimate(name, missing=_why_missing(failure, view.interpreter))
    version = run.said.rpartition("version ")[2].strip()
    found = PeerEstimate(name, version, precision=precision, error=min(error, _MOST_ERROR))
    if why := why_wrong(error, precision, job.bound):
        return replace(found, missing=why)
    cost = run.regions[0].cost
    return replace(found, cost=cost, milliseconds=job.target.milliseconds(cost.cycles))


def _why_missing(failure: Exception, program: Path) -> str:
    """Without the root's interpreter, whose path says nothing about the engine."""
    found = str(failure).removeprefix(f"{program}: ")
    return found.partition("; check that it runs")[0]


def guest_folder() -> Path:
    """The folder of the programs that run in system roots."""
    import edgekit.host.simulator

    return Path(next(iter(edgekit.host.simulator.__path__))) / "guest"
