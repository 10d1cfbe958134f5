"""Estimates a compiled model on a board's core, run by a small static program under qemu-user.

The library that is timed is the one that ships.
"""

from __future__ import annotations

import hashlib
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from edgekit.device.runtime.agent.manifest import WEIGHTS, Manifest, Variant
from edgekit.device.runtime.agent.specs import OperatorSpec, TensorSpec
from edgekit.device.runtime.agent.variants import shapes_text, variant_text
from edgekit.host.common.content import Content
from edgekit.host.compiler.toolchain.zig import kernels_folder
from edgekit.host.errors import InputError
from edgekit.host.simulator.emulator import find_emulator, has_plugin
from edgekit.host.simulator.native import Build, built
from edgekit.host.simulator.native import is_built as is_kept_program
from edgekit.host.simulator.run import Region, SimulatedCost, SimulatorJob, run_job
from edgekit.host.simulator.target import SimulatedCore
from edgekit.kb.targets.core_parts import Validation

_RUNNER = Path(__file__).parent / "runner"
# The oldest CPU of an architecture that has a model of time, and the C library of its headers.
_TARGETS: Mapping[str, tuple[str, str]] = {
    "aarch64": ("aarch64-linux-gnu.2.28", "generic"),
    "armv7l": ("arm-linux-gnueabihf.2.28", "cortex_a7"),
    "riscv64": ("riscv64-linux-gnu.2.28", "baseline_rv64"),
}
# Functions begin with a cache line, so that a change of one moves the times of none that follow.
_FLAGS = (
    *("-std=gnu11", "-O2", "-g0", "-fno-sanitize=undefined", "-fno-builtin", "-fno-math-errno"),
    "-falign-functions=64",
)
_LINK_FLAGS = ("-nostdlib", "-static", "-s")
_HEADERS = ("ek.h", "gemm/gemm.h", "outlier/outlier.h", "sparse/sparse.h")
_INT8 = ("_s8_", "_u8_", "_i8_", "_s16_")


@dataclass(frozen=True)
class OperatorEstimate:
    """The cost of one operator."""

    spec: OperatorSpec
    cost: SimulatedCost


@dataclass(frozen=True)
class ModelEstimate:
    """One inference of a release with warm caches. `operators` are in execution order; with several
    threads running them in parallel, their sum exceeds the total. `kind` is float or int8,
    whichever takes most of the time. `shapes` are the inputs' shapes, for one of the release's
    `variants` variants; `signature` is its signature, if the model has several."""

    model: str
    release: str
    board: str
    core: str
    clock_mhz: float
    threads: int
    kind: str
    cost: SimulatedCost
    operators: tuple[OperatorEstimate, ...]
    unmodelled: int
    arena_bytes: int
    weights_bytes: int
    shapes: Mapping[str, tuple[int, ...]]
    variants: int
    proof: Validation | None
    signature: str = ""
    state_bytes: int = 0

    def milliseconds(self, cycles: float) -> float:
        """The duration of `cycles` on this core."""
        return cycles / self.clock_mhz / 1e3

    @property
    def total_ms(self) -> float:
        return self.milliseconds(self.cost.cycles)


def estimate_model(
    manifest: Manifest,
    files: Mapping[str, Content],
    target: SimulatedCore,
    threads: int = 1,
    seconds: float = 3600.0,
    number: int = 0,
) -> ModelEstimate:
    """Estimates variant `number` of a release, counted from 0, on its golden inputs. Raises
    InputError with advice if it cannot be estimated."""
    variant = manifest.every_variant()[number]
    golden = b"".join(files[name] for name in variant.golden.inputs)
    with tempfile.TemporaryDirectory() as folder:
        return _run_in(Path(folder), manifest, variant, files, golden, target, threads, seconds)


def run_model(
    manifest: Manifest,
    files: Mapping[str, Content],
    inputs: bytes,
    target: SimulatedCore,
    threads: int = 1,
    seconds: float = 3600.0,
) -> tuple[ModelEstimate, bytes]:
    """Estimates the first variant of a release on any inputs; also returns the outputs. Both are
    raw values, one after the other."""
    variant = manifest.every_variant()[0]
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        found = _run_in(place, manifest, variant, files, inputs, target, threads, seconds)
        return found, (place / "out").read_bytes()


def _run_in(
    folder: Path,
    manifest: Manifest,
    variant: Variant,
    files: Mapping[str, Content],
    inputs: bytes,
    target: SimulatedCore,
    threads: int,
    seconds: float,
) -> ModelEstimate:
    if target.board.nna is not None:
        raise InputError(
            f"{target.board.name}: expected a board whose cores do all the work, found one with "
            "an NNA, whose time is emulated; see: edgekit lab bench nna"
        )
    emulator = find_emulator(target.board.arch)
    command = _runner_command(folder, variant, files, inputs, threads)
    job = runner_job(command, folder, target.board.arch, seconds)
    run = run_job(emulator, target, replace(job, counter_laps=True))
    return _estimate_of(manifest, variant, target, threads, run.regions[0], run.unmodelled)


def variant_number(
    manifest: Manifest, shapes: Mapping[str, Sequence[int]], signature: str = ""
) -> int:
    """The variant of `signature`, or of any, whose inputs have these shapes; unnamed inputs match
    any. InputError lists the available ones."""
    every = manifest.every_variant()
    asked = {name: tuple(shape) for name, shape in shapes.items()}
    for number, known in enumerate(every):
        fits = all(known.shapes.get(name) == shape for name, shape in asked.items())
        if fits and signature in ("", known.signature):
            return number
    found = " ".join(filter(None, (signature, shapes_text(asked))))
    raise InputError(
        f"--input-shape: expected {' or '.join(map(variant_text, every))}, which the bundle was "
        f"compiled for, found {found}; give one of them, or compile the model again"
    )


def runner_of(arch: str) -> Path:
    """The program that runs a model, built for the architecture if it is not in the cache."""
    return built(_runner_build(arch))


def runner_job(
    arguments: Sequence[str], folder: Path, arch: str, seconds: float, runner: Path | None = None
) -> SimulatorJob:
    """A job for the runner in `folder`, with neither environment variables nor paths of this
    machine on its stack. `runner`: the program, by default the one built for the architecture."""
    (folder / "runner").symlink_to(runner or runner_of(arch))
    command = ("./runner", *arguments)
    return SimulatorJob(command, quiet=True, seconds=seconds, variables={}, folder=folder)


def is_quick(arch: str) -> bool:
    """Whether an estimate can start at once: there is an emulator, and our programs are built."""
    try:
        emulator = find_emulator(arch)
    except InputError:
        return False
    return has_plugin(emulator) and is_built(arch)


def is_built(arch: str) -> bool:
    """Whether the runner of an architecture is in the cache."""
    return is_kept_program(_runner_build(arch))


def _runner_build(arch: str) -> Build:
    target, cpu = _TARGETS[arch]
    machine = ("-target", target, f"-mcpu={cpu}")
    digest = hashlib.sha256()
    for header in _HEADERS:
        digest.update((kernels_folder() / header).read_bytes())
    described = f"-DEK_HEADERS={digest.hexdigest()[:16]}"  # rebuilds when the headers change
    flags = (*machine, *_FLAGS, f"-I{kernels_folder()}", described)
    return Build(_RUNNER, flags, (*machine, *_LINK_FLAGS), "runner")


def _runner_command(
    folder: Path, variant: Variant, files: Mapping[str, Content], inputs: bytes, threads: int
) -> list[str]:
    """The runner's arguments; writes its input files to `folder`."""
    (folder / "model.so").write_bytes(files[variant.library])
    (folder / "weights").write_bytes(files[WEIGHTS])
    (folder / "in").write_bytes(inputs)
    memory = variant.memory
    numbers = (memory.arena_bytes, memory.state_bytes, threads, len(variant.operators))
    sizes = (_format_sizes(variant.inputs), _format_sizes(variant.outputs))
    return ["model.so", "weights", *map(str, numbers), "in", "out", *sizes]


def _format_sizes(specs: Sequence[TensorSpec]) -> str:
    return ",".join(str(spec.bytes) for spec in specs)


def _estimate_of(
    manifest: Manifest,
    variant: Variant,
    target: SimulatedCore,
    threads: int,
    region: Region,
    unmodelled: int,
) -> ModelEstimate:
    operators = operator_costs(variant.operators, region)
    kind = _kind_of(operators, variant.operators)
    return ModelEstimate(
        manifest.model.name,
        manifest.id,
        target.board.name,
        target.core.name,
        target.core.clock_mhz,
        threads,
        kind,
        _inference_cost(region) if operators else region.cost,
        operators,
        unmodelled,
        variant.memory.arena_bytes,
        variant.memory.weights_bytes,
        variant.shapes,
        len(manifest.every_variant()),
        target.proof(kind, threads),
        variant.signature,
        variant.memory.state_bytes,
    )


def _inference_cost(region: Region) -> SimulatedCost:
    """The sum of all laps: code after the last time stamp converts stamps to times, which is not
    done in production. With operators running in parallel, one thread's laps are incomplete, so the
    region's cost is used."""
    if region.other_laps:
        return region.cost
    bound: Counter[str] = Counter()
    for lap in region.laps:
        bound.update(lap.bound)
    laps = region.laps
    return SimulatedCost(
        sum(c.cycles for c in laps), sum(c.instructions for c in laps), dict(bound)
    )


def operator_costs(specs: Sequence[OperatorSpec], region: Region) -> tuple[OperatorEstimate, ...]:
    """The laps that are operators, on any thread: for each operator the first lap ending at its
    time stamp. Empty if any is missing."""
    laps: dict[int, SimulatedCost] = {}
    stamps, every = region.stamps + region.other_stamps, region.laps + region.other_laps
    for stamp, lap in zip(stamps, every, strict=False):
        laps.setdefault(stamp, lap)
    if not all(number in laps for number in range(1, len(specs) + 1)):
        return ()
    return tuple(OperatorEstimate(s, laps[n]) for n, s in enumerate(specs, 1))


def _kind_of(operators: Sequence[OperatorEstimate], specs: Sequence[OperatorSpec]) -> str:
    """The kind that takes most of the time, or that most operators have if times are unknown."""
    weights = [o.cost.cycles for o in operators] or [1] * len(specs)
    pairs = zip(specs, weights, strict=True)
    int8 = sum(w for s, w in pairs if any(part in s.kernel for part in _INT8))
    return "int8" if 2 * int8 > sum(weights) else "float"
