"""Runs a release on this machine, for boards that are this machine."""

from __future__ import annotations

import ctypes
import tempfile
from collections.abc import Mapping
from pathlib import Path

from edgekit.device.runtime.agent.binding import (
    ModelStruct,
    WeightsMap,
    address_of,
    block_of,
    describe,
    load_library,
)
from edgekit.device.runtime.agent.manifest import LIBRARY, WEIGHTS, Manifest
from edgekit.device.runtime.agent.model import LoadedModel
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.host.common.content import Content
from edgekit.host.errors import InputError

_RUNS = 9  # per operator; the median counts


def run_here(manifest: Manifest, files: Mapping[str, Content], inputs: bytes) -> bytes:
    """The outputs of one inference, raw values one after the other, as are `inputs`. The sizes of
    both are the manifest's. Raises InputError if the library reports a failure."""
    with tempfile.TemporaryDirectory() as folder:
        opened = _write(Path(folder), files)
        library = load_library(opened, LIBRARY)
        memory = describe(library, LIBRARY).memory
        weights = WeightsMap(opened, memory.weights_bytes)
        arena, state = block_of(memory.arena_bytes), block_of(memory.state_bytes)
        given, made = (
            [block_of(spec.bytes) for spec in specs]
            for specs in (manifest.inputs, manifest.outputs)
        )
        at = 0
        for spec, block in zip(manifest.inputs, given, strict=True):
            block[: spec.bytes] = inputs[at : at + spec.bytes]
            at += spec.bytes
        model = ModelStruct(weights.address, address_of(arena), address_of(state), None)
        library.ek_reset(ctypes.byref(model))
        ends = [(ctypes.c_void_p * len(each))(*map(address_of, each)) for each in (given, made)]
        code = library.ek_run(ctypes.byref(model), *ends)
        weights.close()
    if code:
        raise InputError(f"ek_run: expected 0, found {code}; please report this model")
    return b"".join(bytes(b[: s.bytes]) for s, b in zip(manifest.outputs, made, strict=True))


def times_here(manifest: Manifest, files: Mapping[str, Content]) -> dict[str, float]:
    """Microseconds of each operator by name, measured with one thread on zeros."""
    with tempfile.TemporaryDirectory() as folder:
        model = LoadedModel(_write(Path(folder), files))
        rows = model.bench(_RUNS).operators
        model.close()
    middle = (sorted(column)[_RUNS // 2] for column in zip(*rows, strict=True))
    return {spec.name: ns / 1e3 for spec, ns in zip(manifest.operators, middle, strict=True)}


def _write(folder: Path, files: Mapping[str, Content]) -> ReleaseFiles:
    for name in (LIBRARY, WEIGHTS):
        (folder / name).write_bytes(files[name])
    return ReleaseFiles(folder)
