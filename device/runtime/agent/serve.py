"""A session: one process that keeps the model and its state loaded between runs.

It reads requests from standard input and writes answers to standard output (wire.py), until its
input ends. It keeps using the release that was current at its start, regardless of later deploys;
each answer names the release that is current by then.
"""

from __future__ import annotations

import os
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, BinaryIO, Dict, Mapping, Optional, Tuple

from edgekit.device.runtime.agent.binding import shared_state
from edgekit.device.runtime.agent.dictation import Dictation
from edgekit.device.runtime.agent.generate import Generator
from edgekit.device.runtime.agent.generators import Replies, generator_of, values_of
from edgekit.device.runtime.agent.lines import Characters
from edgekit.device.runtime.agent.manifest import Manifest, Variant
from edgekit.device.runtime.agent.model import LoadedModel, open_model
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.placement import Placement
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.sampler import Sampler, sampler_for
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.strict import text
from edgekit.device.runtime.agent.task import SPEAK
from edgekit.device.runtime.agent.texts import Texts
from edgekit.device.runtime.agent.variants import variant_for
from edgekit.device.runtime.agent.voice import Voice
from edgekit.device.runtime.agent.wire import Document, pack, receive
from edgekit.device.runtime.errors import DeviceError, InputError
from edgekit.device.runtime.record import asdict

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.shadow import Shadow

SCHEMA = "edgekit.session/1"

Arrays = Dict[str, Array]


class _EndOfInputError(Exception):
    """The host closed the session, or is gone."""


def serve(store: Store, manifest: Manifest, files: ReleaseFiles, placement: Placement) -> None:
    """Serves a release until standard input ends. Its own messages go to standard error."""
    server = _Server(store, manifest, files, placement)
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    try:
        _write_message(out, server.hello(), {})
        while True:
            document, arrays = receive(_read_exactly, server.most_bytes)
            _write_message(out, *server.answer(document, arrays))
    except (_EndOfInputError, BrokenPipeError):
        pass
    finally:
        server.close()


class _Server:
    def __init__(
        self, store: Store, manifest: Manifest, files: ReleaseFiles, placement: Placement
    ) -> None:
        self._store = store
        self._manifest, self._files = manifest, files
        self._placement = placement
        self._variants = manifest.every_variant()
        self._models: Dict[str, LoadedModel] = {}
        self._state = shared_state(manifest)
        self._samplers: Dict[str, Optional[Sampler]] = {}
        self._shadow: Optional[Shadow] = None
        if manifest.shadow is not None:
            from edgekit.device.runtime.agent.shadow import shadow_for

            self._shadow = shadow_for(store, manifest, files)
        self._texts: Optional[Texts] = None
        self._voice: Optional[Voice] = None
        self._characters: Optional[Characters] = None
        self._dictation: Optional[Dictation] = None
        self._replies = Replies(self._make_generator)
        self.most_bytes = max(sum(s.bytes for s in v.inputs) for v in self._variants)
        if len(self._variants) == 1:
            self._get_model(self._variants[0])  # report a defect before the first run

    def hello(self) -> Document:
        """Describes the release, its inputs and outputs."""
        return {
            "schema": SCHEMA,
            "release": self._manifest.id,
            "model": self._manifest.model.name,
            "threads": self._placement.threads,
            "variants": [_describe_variant(variant) for variant in self._variants],
            **({"task": asdict(self._manifest.task)} if self._manifest.task else {}),
        }

    def close(self) -> None:
        """Writes pending samples."""
        for sampler in filter(None, self._samplers.values()):
            sampler.close()
        if self._shadow is not None:
            self._shadow.close()

    def answer(self, document: Document, arrays: Arrays) -> Tuple[Document, Arrays]:
        """Answers a request, which may be invalid."""
        try:
            return self._handle_request(document, arrays)
        except DeviceError as error:
            return {"error": {"kind": error.kind, "message": str(error)}}, {}

    def _handle_request(self, document: Document, arrays: Arrays) -> Tuple[Document, Arrays]:
        what = document.get("do")
        if what == "run":
            return self._run_model(arrays, text(document.get("signature", ""), "signature"))
        if what == "tokens":
            return {}, self._inputs_of(document.get("text"))
        if what == "line":
            self._characters = self._characters or Characters.of_release(
                self._manifest, self._files
            )
            values = arrays.get("values")
            if values is None or values.dtype != "f32":
                raise InputError("expected values of f32, found none")
            numbers = struct.unpack(f"<{len(values.data) // 4}f", values.data)
            return dict(self._characters.line(numbers)._asdict()), {}
        if what == "transcribe":
            if (sound := arrays.get("samples")) is None or sound.dtype != "f32":
                raise InputError("expected samples of f32, found none")
            self._dictation = self._dictation or self._make_dictation()
            begun = time.perf_counter_ns()
            samples = values_of(sound, "f")
            if document.get("timed"):
                said = [list(each) for each in self._dictation.subtitles(samples)]
                return {"subtitles": said, "ns": time.perf_counter_ns() - begun}, {}
            line = self._dictation.line(samples)
            return {**line._asdict(), "ns": time.perf_counter_ns() - begun}, {}
        if what == "reset":
            for model in self._models.values():
                model.reset()
            self._replies.forget()
            return {}, {}
        if what == "generate":
            return self._replies.begin(document), {}
        if what == "proceed":
            return {**self._replies.proceed(), "current": self._store.links().current}, {}
        raise InputError(
            "expected run, tokens, line, transcribe, generate, proceed or reset, found another"
        )

    def _inputs_of(self, given: object) -> Arrays:
        """The inputs of a model for a text, or for phonemes or their numbers."""
        if self._manifest.task is not None and self._manifest.task.kind == SPEAK:
            self._voice = self._voice or Voice(self._manifest, self._files)
            return self._voice.inputs(given if isinstance(given, list) else str(given))
        self._texts = self._texts or Texts(self._manifest, self._files)
        return self._texts.inputs(str(given))

    def _make_dictation(self) -> Dictation:
        def run(inputs: Mapping[str, Array], signature: str) -> Mapping[str, Array]:
            return self._get_model(variant_for(self._variants, inputs, signature)).run(inputs)[0]

        return Dictation(self._manifest, self._files, run)

    def _make_generator(self) -> Generator:
        def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            return self._get_model(variant_for(self._variants, inputs)).run(inputs)[0]

        return generator_of(self._manifest, self._files, run)

    def _run_model(self, arrays: Mapping[str, Array], signature: str) -> Tuple[Document, Arrays]:
        variant = variant_for(self._variants, arrays, signature)
        model, shadow = self._get_model(variant), self._shadow
        state = None if shadow is None else shadow.state_before(model.state)
        outputs, times = model.run(arrays)
        sampler = self._samplers[variant.library]
        if sampler and sampler.due():
            sampler.record(times)
        if shadow is not None and shadow.due(times.total, state is not None):
            shadow.repeat(
                [arrays[spec.name].data for spec in variant.inputs],
                [outputs[spec.name].data for spec in variant.outputs],
                state,
            )
        return {
            "variant": self._variants.index(variant),
            "ns": times.total,
            "operators_ns": times.operators,
            "current": self._store.links().current,
        }, outputs

    def _get_model(self, variant: Variant) -> LoadedModel:
        """Loads a variant's model once. Each variant has its own state, but see `shared_state`."""
        if variant.library not in self._models:
            made = open_model(self._files, self._manifest, self._placement, variant, self._state)
            if not self._models:
                made.reset()
            self._models[variant.library] = made
            number = self._variants.index(variant)
            self._samplers[variant.library] = sampler_for(
                self._store, self._manifest, number, self._placement.threads
            )
        return self._models[variant.library]


def _describe_variant(variant: Variant) -> Dict[str, Any]:
    return {
        "inputs": [asdict(spec) for spec in variant.inputs],
        "outputs": [asdict(spec) for spec in variant.outputs],
        "operators": [asdict(spec) for spec in variant.operators],
        "stateful": variant.memory.state_bytes > 0,
        **({"signature": variant.signature} if variant.signature else {}),
    }


def _read_exactly(size: int) -> bytes:
    data = sys.stdin.buffer.read(size)
    if len(data) < size:
        raise _EndOfInputError
    return data


def _write_message(out: BinaryIO, document: Document, arrays: Arrays) -> None:
    left = memoryview(pack(document, arrays))
    while left:
        left = left[out.write(left) :]
