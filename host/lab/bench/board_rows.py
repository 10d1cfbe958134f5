"""Stored time estimates of our and other engines for boards we do not have (`scripts/performance`).

A row is a model on a board with a number of threads. Each row has its own file, written as results
arrive, so that an interrupted run can resume. Our result is redone when the compiled library
changes, another engine's when its driver changes, and both when the core model or the plugin does.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
import onnx

from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS
from edgekit.device.version import VERSION
from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.driver import compile_artifact
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.compiler.options import CompileOptions, Precision
from edgekit.host.compiler.target import HALF_LOSS
from edgekit.host.deploy.bundle import Bundle, build_bundle
from edgekit.host.errors import EdgekitError, InputError
from edgekit.host.lab.bench.board_peers import (
    ENGINES,
    PeerEstimate,
    PeerJob,
    driver_content,
    estimate_peer,
    fastest,
)
from edgekit.host.lab.bench.int8_forms import int8_forms
from edgekit.host.lab.bench.peer_check import (
    Shapes,
    bound_of_int8,
    expected_of,
    largest_error,
    why_wrong,
)
from edgekit.host.lab.zoo.models import zoo_options
from edgekit.host.simulator.core_text import core_text
from edgekit.host.simulator.emulator import plugin_sources
from edgekit.host.simulator.model import ModelEstimate, run_model
from edgekit.host.simulator.target import SimulatedCore, target_of
from edgekit.kb.decoding import decode_json
from edgekit.kb.targets.board import BoardProfile, load_board

Tell = Callable[[str], None]
Allowed = Precision | Literal["int8"]

_NAME = "edgekit"
_FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
_DIGITS = 16  # of a key


@dataclass(frozen=True)
class BoardRow:
    """The results for a model on a board: `ours` is None until estimated, and `failure` is the
    reason if that failed. `allowed`: f32, auto, which allows half precision, or int8, which asks
    for the 8-bit forms of a float network (int8_forms.py). The keys identify the inputs that the
    results depend on."""

    model: str
    board: str
    threads: int
    allowed: Allowed = "auto"
    ours: PeerEstimate | None = None
    failure: str = ""
    ours_key: str = ""
    peers: dict[str, PeerEstimate] = field(default_factory=dict)
    peers_key: str = ""

    @property
    def known(self) -> bool:
        """Whether all results are present."""
        return self.ours is not None and len(self.peers) == len(ENGINES)

    def ratios(self) -> dict[str, float]:
        """Each engine's time over ours, for those that ran: above 1, ours is faster."""
        ms = self.ours.milliseconds if self.ours else 0.0
        times = {name: p.milliseconds for name, p in self.peers.items()}
        return {name: theirs / ms for name, theirs in times.items() if theirs and ms}

    @property
    def best(self) -> float | None:
        """The ratio of the fastest engine; None if none ran."""
        return min(self.ratios().values(), default=None)

    def record(self) -> dict[str, str]:
        """The row of docs/results/boards.csv, without provenance."""
        assert self.ours is not None, "only measured rows have a record"
        ran = {name: self.peers[name] for name in self.ratios()}
        times = {name: peer.milliseconds for name, peer in ran.items()}
        engines = {f"{name}_ms": f"{times[name]:.3g}" if name in times else "" for name in ENGINES}
        return {
            "board": self.board,
            "threads": str(self.threads),
            "allowed": self.allowed,
            "model": self.model,
            "type": "int8" if self.ours.precision == "int8" else "float",
            "precision": self.ours.precision,
            "edgekit_ms": f"{self.ours.milliseconds:.3g}",
            **engines,
            "in_half": " ".join(name for name, peer in ran.items() if peer.precision == "f16"),
            "fastest_ratio": "" if self.best is None else f"{self.best:.2f}",
        }

    def engine_records(self) -> list[dict[str, str]]:
        """The rows of docs/results/engines.csv: ours and the engines that ran."""
        ours = [(self.ours, self.ours_key)] if self.ours else []
        return [
            {
                "board": self.board,
                "threads": str(self.threads),
                "allowed": self.allowed,
                "model": self.model,
                "engine": each.name,
                "version": each.version,
                "precision": each.precision,
                "ms": f"{each.milliseconds:.5g}",
                "error": f"{each.error:.3g}",
                "missing": each.missing,
                "inputs": key,
            }
            for each, key in (*ours, *((peer, self.peers_key) for peer in self.peers.values()))
            if each.version
        ]


@dataclass(frozen=True)
class BoardSetup:
    """A board by name, the number of threads, what all engines may use (see BoardRow), and a limit
    in seconds for one run."""

    board: str
    threads: int = 1
    allowed: Allowed = "auto"
    seconds: float = 3600.0

    @property
    def target(self) -> SimulatedCore:
        return target_of(load_board(self.board))


def kept_row(model: Path, place: BoardSetup) -> BoardRow:
    """The stored row, possibly outdated."""
    try:
        return decode_json(_row_path(model, place).read_bytes(), BoardRow)
    except (OSError, msgspec.MsgspecError):
        return _empty_row(model, place)


def _empty_row(model: Path, place: BoardSetup, peers_key: str = "") -> BoardRow:
    about = (model.stem, place.board, place.threads, place.allowed)
    return BoardRow(*about, peers_key=peers_key)


def _compile_bundle(model: Path, board: BoardProfile, options: CompileOptions) -> Bundle:
    return build_bundle(compile_artifact(model, board, options=options), board)


def _computes_half(ours: ModelEstimate) -> bool:
    return any(operator.spec.kernel.endswith("half") for operator in ours.operators)


def _precision_of(ours: ModelEstimate) -> str:
    usual = "f16" if _computes_half(ours) else "f32"
    return "int8" if ours.kind == "int8" else usual


def _run_ours(model: Path, bundle: Bundle, place: BoardSetup) -> tuple[ModelEstimate, float]:
    """Our estimate on the inputs that other engines get, and the largest error of the outputs."""
    expected = expected_of(model, zoo_options(model).shapes)
    inputs = b"".join(np.ascontiguousarray(x).tobytes() for x in expected.inputs.values())
    limits = (place.target, place.threads, place.seconds)
    ours, outputs = run_model(bundle.manifest, bundle.files, inputs, *limits)
    cuts = np.cumsum([y.nbytes for y in expected.outputs])
    starts = [0, *cuts[:-1]]
    found = [
        np.frombuffer(outputs[start:end], y.dtype).reshape(y.shape)
        for start, end, y in zip(starts, cuts, expected.outputs, strict=True)
    ]
    return ours, largest_error(expected, found)


@functools.cache
def plugin_digest() -> str:
    """Of its sources: how a machine builds them does not change what it finds."""
    return _hash_parts(*(path.read_text(encoding="utf-8") for path in plugin_sources()))


@dataclass(frozen=True)
class Steps:
    """The steps that fill rows: `peer` estimates another engine, `bundle` compiles a model, `ours`
    estimates the result and its largest error, `plugin` digests the emulator's plugin, `forms`
    writes a network's 8-bit files, and `bound` is the error allowed for them."""

    peer: Callable[[str, PeerJob, Tell], PeerEstimate] = estimate_peer
    bundle: Callable[[Path, BoardProfile, CompileOptions], Bundle] = _compile_bundle
    ours: Callable[[Path, Bundle, BoardSetup], tuple[ModelEstimate, float]] = _run_ours
    plugin: Callable[[], str] = plugin_digest
    forms: Callable[[Path], Mapping[str, Path]] = int8_forms
    bound: Callable[[Path, Path, Shapes], float] = bound_of_int8


_STEPS = Steps()


def ask_peers(
    model: Path,
    place: BoardSetup,
    tell: Tell,
    steps: Steps = _STEPS,
    engines: Iterable[str] = ENGINES,
) -> BoardRow:
    """The row with these engines. Where half precision or 8 bits are allowed, an engine also runs
    without them, for that row, and counts in its fastest precision."""
    forms = _forms_of(model, place, steps)
    bound = _bound_of(model, forms, place, steps)
    row, key = kept_row(model, place), _peers_key(forms, place, steps, bound)
    if row.peers_key != key:
        row = _empty_row(model, place, key)  # redo ours as well
    less, precision = _less_allowed(place)
    shapes = zoo_options(model).shapes
    about = (place.target, place.threads, shapes, (precision,), place.seconds, forms)
    job = PeerJob(_first(forms), *about, bound)
    for name in engines:
        if name not in row.peers:
            found = steps.peer(name, job, tell)
            if less:
                plain = ask_peers(model, less, tell, steps, [name]).peers[name]
                found = fastest((found, plain))
            row = replace(row, peers={**row.peers, name: found})
            _save_row(model, place, row)
    return row


def _forms_of(model: Path, place: BoardSetup, steps: Steps) -> Mapping[str, Path]:
    """The files that engines run, by suffix; ours runs the first."""
    return steps.forms(model) if place.allowed == "int8" else {model.suffix: model}


def _first(forms: Mapping[str, Path]) -> Path:
    return next(iter(forms.values()))


def _bound_of(model: Path, forms: Mapping[str, Path], place: BoardSetup, steps: Steps) -> float:
    if place.allowed != "int8":
        return HALF_LOSS
    return steps.bound(model, _first(forms), zoo_options(model).shapes)


def _less_allowed(place: BoardSetup) -> tuple[BoardSetup | None, str]:
    """The row whose results count as well, and the precision that only this one may use."""
    if place.allowed == "int8":
        return replace(place, allowed="auto"), "int8"
    if place.allowed != "f32" and place.target.board.computes_half:
        return replace(place, allowed="f32"), "f16"
    return None, "f32"


def take_recorded(
    model: Path, place: BoardSetup, records: Iterable[Mapping[str, str]], steps: Steps = _STEPS
) -> None:
    """Stores the results in docs/results/engines.csv, from whichever machine they are: other
    engines' unless what they depend on has changed, and ours, which `ask_ours` compares."""
    forms = _forms_of(model, place, steps)
    key = _peers_key(forms, place, steps, _bound_of(model, forms, place, steps))
    if kept_row(model, place).peers_key == key:
        return
    row = _empty_row(model, place, key)
    for each in records:
        if each["engine"] == _NAME:
            row = replace(row, ours=_recorded(each), ours_key=each["inputs"])
        elif each["inputs"] == key:
            row = replace(row, peers={**row.peers, each["engine"]: _recorded(each)})
    if row.peers:
        _save_row(model, place, row)


def _recorded(record: Mapping[str, str]) -> PeerEstimate:
    return PeerEstimate(
        record["engine"],
        record["version"],
        record["missing"],
        milliseconds=float(record["ms"]),
        precision=record["precision"],
        error=float(record["error"]),
    )


def ask_ours(model: Path, place: BoardSetup, steps: Steps = _STEPS) -> BoardRow:
    """The row with our result in the precision allowed; compiles, and redoes it on a change. As for
    other engines, half precision is asked for, and counts if the outputs are close to the
    reference's; otherwise `auto` decides, by more inputs, and then f32. The last one's outputs have
    to be as close, whatever their type."""
    row, half = kept_row(model, place), place.target.board.computes_half
    forms = _forms_of(model, place, steps)
    file, bound = _first(forms), _bound_of(model, forms, place, steps)
    options = replace(zoo_options(model), threads=place.threads)
    tried: tuple[Precision, ...] = ("f16", "auto") if half else ("auto",)
    try:
        for precision in (*(tried if place.allowed != "f32" else ()), "f32"):
            try:
                bundle = steps.bundle(
                    file, place.target.board, replace(options, precision=precision)
                )
            except InputError:
                if precision != "f16":
                    raise
                continue  # values are too large for it
            shipped = (
                hashlib.sha256(bundle.files[name]).hexdigest() for name in (LIBRARY, WEIGHTS)
            )
            key = _key(*shipped, _environment_digest(place, steps), *_limit(bound))
            if row.ours_key == key and (row.ours is not None or row.failure):
                return row
            ours, error = steps.ours(file, bundle, place)
            if error <= bound or not _computes_half(ours):
                break
        found = PeerEstimate(_NAME, VERSION, "", None, ours.total_ms, _precision_of(ours), error)
        why = why_wrong(error, found.precision, bound)
        row = replace(row, ours=None if why else found, ours_key=key, failure=why)
    except EdgekitError as failure:
        row = replace(row, ours=None, ours_key="", failure=str(failure))
    _save_row(model, place, row)
    return row


def _row_path(model: Path, place: BoardSetup) -> Path:
    name = f"{place.board}-{place.threads}-{place.allowed}-{model.stem}.json"
    return cache_folder() / "performance" / name


def _save_row(model: Path, place: BoardSetup, row: BoardRow) -> None:
    path = _row_path(model, place)
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, msgspec.json.encode(row))


def _limit(bound: float) -> tuple[str, ...]:
    """The part of a key for a bound that depends on the model."""
    return () if bound == HALF_LOSS else (f"{bound:.3g}",)


def _peers_key(forms: Mapping[str, Path], place: BoardSetup, steps: Steps, bound: float) -> str:
    driver = hashlib.sha256(driver_content()).hexdigest()
    models = map(_structure, forms.values())
    return _key(*models, driver, _environment_digest(place, steps), *_limit(bound))


def _structure(model: Path) -> str:
    """A digest of what other engines' times depend on: not the values of float weights, which
    exporters round differently on other machines."""
    if model.suffix != ".onnx":
        return model_hash(model)
    network = onnx.load(model)
    for weights in network.graph.initializer:
        if weights.data_type in _FLOATS:
            weights.ClearField("raw_data")
            weights.ClearField("float_data")
    return hashlib.sha256(network.SerializeToString(deterministic=True)).hexdigest()


def _environment_digest(place: BoardSetup, steps: Steps) -> str:
    """A digest of what all results depend on: board core, plugin and threads."""
    target = place.target
    about = (core_text(target.core), target.cpu, str(place.threads))
    return _hash_parts(*about, steps.plugin())


def _key(*parts: str) -> str:
    return _hash_parts(*parts)[:_DIGITS]


def _hash_parts(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
