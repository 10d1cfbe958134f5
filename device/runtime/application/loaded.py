"""A loaded release: libraries and weights once, memory per concurrent inference.

Its open files stay valid even if the release is removed from the disk.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Sequence

from edgekit.device.runtime.agent.binding import (
    ModelStruct,
    WeightsMap,
    address_of,
    block_of,
    describe,
    load_library,
    shared_state,
)
from edgekit.device.runtime.agent.dictation import Dictation
from edgekit.device.runtime.agent.fit import check_fit
from edgekit.device.runtime.agent.generate import Generator
from edgekit.device.runtime.agent.generators import generator_of
from edgekit.device.runtime.agent.lines import Characters
from edgekit.device.runtime.agent.manifest import Manifest, Variant
from edgekit.device.runtime.agent.model import times_of
from edgekit.device.runtime.agent.placement import Placement, place
from edgekit.device.runtime.agent.probe import board_facts
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.sampler import Sampler, SamplingPace, sampler_for
from edgekit.device.runtime.agent.specs import PlacementRequest, TensorSpec
from edgekit.device.runtime.agent.store import Store
from edgekit.device.runtime.agent.texts import Texts
from edgekit.device.runtime.agent.variants import variant_for
from edgekit.device.runtime.agent.voice import Voice
from edgekit.device.runtime.application.buffers import fresh, numpy_of, readable, view_of, writable
from edgekit.device.runtime.errors import DeviceError, InputError, TransferError
from edgekit.device.runtime.pools import close_library, leave_pool, on_cores, share_pool
from edgekit.device.runtime.record import replace

if TYPE_CHECKING:
    from edgekit.device.runtime.agent.shadow import Shadow


class Outputs(Dict[str, Any]):
    """The outputs of one inference by name; `release` is the one that computed all of them."""

    release: str = ""


class Loaded:
    """A release usable until `close`, which must not be called during an inference. `repeats` is
    the pace of its shadow check."""

    def __init__(
        self,
        store: Store,
        files: ReleaseFiles,
        manifest: Manifest,
        request: PlacementRequest,
        parallel: int,
        repeats: Optional[SamplingPace] = None,
    ) -> None:
        memory = manifest.most_memory()
        stateful = any(v.memory.state_bytes for v in manifest.every_variant())
        self.manifest = manifest
        self.users = 0  # running inferences, counted by the model
        self.closed = False
        self._texts: Optional[Texts] = None
        self._characters: Optional[Characters] = None
        self._voice: Optional[Voice] = None
        self._dictation: Optional[Dictation] = None
        self._generator: Optional[Generator] = None
        lanes = 1 if stateful else parallel
        placed = place(manifest.placements, request)
        needed = replace(memory, arena_bytes=memory.arena_bytes * lanes)
        check_fit(manifest.board, needed, board_facts())
        self._free = threading.Semaphore(lanes)
        self._parts: List[_Part] = []
        self._files = files
        self._weights, self._state = WeightsMap(files, memory.weights_bytes), shared_state(manifest)
        self._shadow: Optional[Shadow] = None
        if manifest.shadow is not None:
            from edgekit.device.runtime.agent.shadow import shadow_for

            self._shadow = shadow_for(store, manifest, files, repeats)
        try:
            for number, variant in enumerate(manifest.every_variant()):
                sampler = functools.partial(sampler_for, store, manifest, number, placed.threads)
                part = _Part(files, variant, self._weights, placed, sampler, self._state)
                part.shadow = self._shadow
                self._parts.append(part)
            self._parts[0].lanes.append(_Lane(self._parts[0]))
            self._parts[0].lanes[0].reset()
        except BaseException:
            self.close()
            raise

    def run(self, inputs: Mapping[str, Any], into: Mapping[str, Any], signature: str) -> Outputs:
        """Runs one inference; waits for another to finish if the maximum number is running."""
        views = {name: view_of(name, value) for name, value in inputs.items()}
        part = self._part_for(views, signature)
        with self._free:
            lane = part.take()
            try:
                outputs = lane.run(inputs, views, into)
            finally:
                part.lanes.append(lane)
        outputs.release = self.manifest.id
        return outputs

    def texts(self) -> Texts:
        """Makes inputs of texts; InputError if the model takes none."""
        if self._texts is None:
            self._texts = Texts(self.manifest, self._files)
        return self._texts

    def characters(self) -> Characters:
        """Makes texts of outputs; InputError if the model reads none."""
        if self._characters is None:
            self._characters = Characters.of_release(self.manifest, self._files)
        return self._characters

    def voice(self) -> Voice:
        """Makes inputs of phonemes; InputError if the model does not speak."""
        if self._voice is None:
            self._voice = Voice(self.manifest, self._files)
        return self._voice

    def dictation(self) -> Dictation:
        """Transcribes speech by an encoder and a decoder."""
        if self._dictation is None:
            self._dictation = Dictation(
                self.manifest,
                self._files,
                lambda inputs, signature: self.run(inputs, {}, signature),
            )
        return self._dictation

    def generator(self) -> Generator:
        """Makes texts; InputError if the model makes none."""
        if self._generator is None:
            self._generator = generator_of(
                self.manifest, self._files, lambda inputs: self.run(inputs, {}, "")
            )
        return self._generator

    def function(self, name: str) -> Any:
        """A function of the first variant's library. AttributeError if it has none of that
        name."""
        return getattr(self._parts[0].lib, name)

    def reset(self) -> None:
        """Resets states to their initial values."""
        with self._free:
            for part in self._parts:
                for lane in part.lanes:
                    lane.reset()
            if self._generator is not None:
                self._generator.forget()

    def write_samples(self) -> None:
        """Writes pending samples of idle lanes. Call it where waiting for the disk is harmless."""
        for part in self._parts:
            for lane in part.lanes:
                lane.write_samples()
        if self._shadow is not None:
            self._shadow.write_results()

    def close(self) -> None:
        """Stops the threads, frees all memory and unloads the libraries."""
        self.closed = True
        if self._shadow is not None:
            self._shadow.close()
        for part in self._parts:
            part.close()
        self._parts = []
        self._weights.close()
        self._files.close()

    def _part_for(self, views: Mapping[str, memoryview], signature: str) -> _Part:
        if len(self._parts) == 1 and not signature:
            return self._parts[0]
        variants = [part.variant for part in self._parts]
        return self._parts[variants.index(variant_for(variants, views, signature))]


class _Part:
    """A variant: its library, and its idle lanes, which share `state` with others if given."""

    def __init__(
        self,
        files: ReleaseFiles,
        variant: Variant,
        weights: WeightsMap,
        placed: Placement,
        sampler: Callable[[], Optional[Sampler]],
        state: Optional[mmap.mmap],
    ) -> None:
        self.variant, self.sampler, self.state = variant, sampler, state
        self.lanes: List[_Lane] = []
        self.shadow: Optional[Shadow] = None
        self.placed, self.weights = placed, weights
        self.lib = load_library(files, variant.library)
        found = describe(self.lib, variant.library)
        expected = (variant.inputs, variant.outputs, variant.memory)
        if (found.inputs, found.outputs, found.memory) != expected:
            self.close()
            raise TransferError(
                f"{variant.library}: expected tensors and sizes as in the manifest, found "
                "different ones; compile the bundle again"
            )

    def take(self) -> _Lane:
        try:
            return self.lanes.pop()
        except IndexError:
            return _Lane(self)

    def close(self) -> None:
        while self.lanes:
            self.lanes.pop().close()
        close_library(self.lib)


class _Lane:
    """The resources of one inference: its own arena and state, and threads that it shares."""

    def __init__(self, part: _Part) -> None:
        memory = part.variant.memory
        self._part = part
        own = block_of(memory.state_bytes) if part.state is None else part.state
        self._blocks = (block_of(memory.arena_bytes), own)
        self._cores = part.placed.cores
        workers = part.placed.workers or self._cores
        self._pool = share_pool(part.lib, part.placed.threads, workers)
        arena, state = map(address_of, self._blocks)
        threads = self._pool and self._pool.address
        self._model = ModelStruct(part.weights.address, arena, state, threads)
        self._in = (ctypes.c_void_p * max(len(part.variant.inputs), 1))()
        self._out = (ctypes.c_void_p * max(len(part.variant.outputs), 1))()
        # One per lane, because a sampler may be used by one thread at a time.
        self._sampler = part.sampler()
        self._stamps = (ctypes.c_uint64 * (len(part.variant.operators) + 1))()
        if part.state is None:
            self.reset()

    def reset(self) -> None:
        self._part.lib.ek_reset(ctypes.byref(self._model))

    def run(
        self, inputs: Mapping[str, Any], views: Mapping[str, memoryview], into: Mapping[str, Any]
    ) -> Outputs:
        variant, held, outputs = self._part.variant, [], Outputs()
        if inputs.keys() != variant.shapes.keys():
            raise _other_names("inputs", [s.name for s in variant.inputs], inputs)
        for i, spec in enumerate(variant.inputs):
            self._in[i], keep = readable(spec, inputs[spec.name], views[spec.name])
            held.append(keep)
        names = [spec.name for spec in variant.outputs]
        if into and not into.keys() <= set(names):
            raise _other_names("outputs", names, into)
        numpy = numpy_of(inputs)
        for i, spec in enumerate(variant.outputs):
            if spec.name in into:
                outputs[spec.name] = into[spec.name]
                self._out[i], keep = writable(spec, into[spec.name])
            else:
                outputs[spec.name], (self._out[i], keep) = fresh(spec, numpy)
            held.append(keep)
        due = self._sampler is not None and self._sampler.due()
        if due:
            self._model.stamps = self._stamps
        shadow = self._part.shadow
        state = None if shadow is None else shadow.state_before(self._blocks[1])
        start = 0 if shadow is None else time.perf_counter_ns()
        if self._cores:  # restore the caller's affinity, which belongs to its program
            with on_cores(self._cores):
                code = self._part.lib.ek_run(ctypes.byref(self._model), self._in, self._out)
        else:
            code = self._part.lib.ek_run(ctypes.byref(self._model), self._in, self._out)
        if code != 0:
            raise DeviceError(f"ek_run: expected 0, found {code}; please report this model")
        if due and self._sampler is not None:
            self._model.stamps = None
            self._sampler.record(times_of(self._stamps))
        if shadow is not None and shadow.due(time.perf_counter_ns() - start, state is not None):
            copies = _copies(variant.inputs, self._in), _copies(variant.outputs, self._out)
            shadow.repeat(*copies, state)
        return outputs

    def write_samples(self) -> None:
        """Writes pending samples."""
        if self._sampler is not None:
            self._sampler.close()

    def close(self) -> None:
        if self._sampler is not None:
            self._sampler.close(wait=False)  # other threads may be waiting for this one
        leave_pool(self._pool)
        self._pool = None


def _copies(specs: Sequence[TensorSpec], places: Any) -> List[bytes]:
    """The contents of tensors at these addresses."""
    return [ctypes.string_at(place, spec.bytes) for spec, place in zip(specs, places)]


def _other_names(what: str, expected: List[str], found: Mapping[str, Any]) -> InputError:
    there = ", ".join(map(str, found)) or "none"
    return InputError(
        f"expected {what} {', '.join(expected) or 'none'}, found {there}; "
        "name the arrays as in the model"
    )
