"""A compiled model in this process: loads the library through ctypes, runs and times it."""

from __future__ import annotations

import ctypes
import functools
import mmap
import resource
from array import array
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

from edgekit.device.runtime.agent.binding import (
    ModelStruct,
    WeightsMap,
    address_of,
    block_of,
    describe,
    load_library,
)
from edgekit.device.runtime.agent.fit import check_fit
from edgekit.device.runtime.agent.manifest import (
    LIBRARY,
    Manifest,
    Variant,
)
from edgekit.device.runtime.agent.npz import Array
from edgekit.device.runtime.agent.placement import ONE_THREAD, Placement
from edgekit.device.runtime.agent.probe import board_facts
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.specs import TensorSpec
from edgekit.device.runtime.errors import DeviceError, InputError, TransferError
from edgekit.device.runtime.pools import on_cores
from edgekit.device.runtime.record import Record
from edgekit.device.runtime.shared_library import start_pool

_STACK_BYTES = 8 << 20  # as Linux allows by default


class RunTimes(Record):
    """Nanoseconds of one inference: the total, and per operator in execution order."""

    total: int
    operators: Tuple[int, ...]


class BenchTimes(Record):
    """Nanoseconds of each inference, with one row of per-operator nanoseconds each."""

    totals: Tuple[int, ...]
    operators: Tuple[Sequence[int], ...]


def _allow_stack() -> None:
    """Raises this process's soft limit of the stack, which kernels need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_STACK)
    bounds = [limit for limit in (_STACK_BYTES, hard) if limit != resource.RLIM_INFINITY]
    if soft != resource.RLIM_INFINITY and soft < min(bounds):
        resource.setrlimit(resource.RLIMIT_STACK, (min(bounds), hard))


def open_model(
    files: ReleaseFiles,
    manifest: Manifest,
    placement: Placement = ONE_THREAD,
    variant: Optional[Variant] = None,
    state: Optional[mmap.mmap] = None,
) -> LoadedModel:
    """Opens a release's model (by default its first variant), checking the board first, then that
    the library matches the manifest. `state`: as in LoadedModel."""
    wanted = variant or manifest.every_variant()[0]
    check_fit(manifest.board, wanted.memory, board_facts())
    _allow_stack()
    model = LoadedModel(files, placement.threads, wanted.library, placement.workers, state)
    found = model.description
    if (found.inputs, found.outputs, found.memory) != (
        wanted.inputs,
        wanted.outputs,
        wanted.memory,
    ):
        raise TransferError(
            f"{wanted.library}: expected tensors and sizes as in the manifest, found different "
            "ones; compile the bundle again"
        )
    return model


class LoadedModel:
    """A loaded model with its own arena and state; only one thread at a time may use it.

    Inputs and outputs are passed by name as `Array` (inputs also as NumPy arrays). The library
    stays loaded until the process exits; arena, state and weights are freed with the object.
    """

    def __init__(
        self,
        files: ReleaseFiles,
        threads: int = 1,
        library: str = LIBRARY,
        workers: Sequence[int] = (),
        state: Optional[mmap.mmap] = None,
    ) -> None:
        """Loads `library` and weights.bin of `files`. Threads other than the caller's are pinned to
        the cores `workers`, if given. `state` is memory that it shares with another model, and does
        not reset here. IncompatibleError if this CPU lacks a required feature,
        TransferError if the files are damaged."""
        self._lib = load_library(files, library)
        self.description = describe(self._lib, library)
        memory = self.description.memory
        self._weights = WeightsMap(files, memory.weights_bytes)
        own = block_of(memory.state_bytes) if state is None else state
        self._blocks = [block_of(memory.arena_bytes), own]
        self._in = [block_of(spec.bytes) for spec in self.description.inputs]
        self._out = [block_of(spec.bytes) for spec in self.description.outputs]
        self._in_list = _pointer_array(self._in)
        self._out_list = _pointer_array(self._out)
        self.threads = threads
        with on_cores(workers):
            self._pool = start_pool(self._lib, threads)
        self._model = ModelStruct(
            self._weights.address,
            address_of(self._blocks[0]),
            address_of(self._blocks[1]),
            self._pool,
        )
        if state is None:
            self.reset()

    def close(self) -> None:
        """Stops the threads and unmaps the weights; the object is unusable afterwards."""
        if self._pool:
            self._lib.ek_pool_destroy(self._pool)
            self._pool = None
        self._weights.close()

    @property
    def state(self) -> mmap.mmap:
        """The memory of the states, larger than they are."""
        return self._blocks[1]

    def reset(self) -> None:
        """Resets the state of a stateful model to its initial values."""
        self._lib.ek_reset(ctypes.byref(self._model))

    def run(self, inputs: Mapping[str, Any]) -> Tuple[Dict[str, Array], RunTimes]:
        """Runs one inference; returns outputs by name, and the times of all operators."""
        self.set_inputs(inputs)
        stamps = self._attach_stamps(1)
        self._check_status(
            self._lib.ek_run(ctypes.byref(self._model), self._in_list, self._out_list)
        )
        return self._copy_outputs(), times_of(stamps)

    def bench(self, count: int) -> BenchTimes:
        """Runs `count` inferences on the inputs last set, timing totals and operators."""
        stamps, totals = self._attach_stamps(count), (ctypes.c_uint64 * count)()
        self._check_status(
            self._lib.ek_bench(
                ctypes.byref(self._model), self._in_list, self._out_list, count, totals
            )
        )
        operators = len(self.description.operators)
        width = operators + 1
        starts = range(0, count * width, width)
        # Packed: as Python integers, a thousand runs would take megabytes.
        rows = (array("Q", _stamp_differences(stamps[i : i + width], operators)) for i in starts)
        return BenchTimes(tuple(totals), tuple(rows))

    def prepared_call(self) -> Callable[[], int]:
        """Returns a function that runs one inference on the inputs last set and nothing else.

        For comparisons with other engines: called from Python, without time stamps. It returns 0 on
        success, and is valid until the next run or bench.
        """
        self._model.stamps = None
        return functools.partial(
            self._lib.ek_run, ctypes.byref(self._model), self._in_list, self._out_list
        )

    def prepared_calls(self, count: int) -> Callable[[], int]:
        """Returns a function that runs `count` inferences in one call into the library (see
        `prepared_call`)."""
        self._model.stamps = None
        totals = (ctypes.c_uint64 * count)()
        return functools.partial(
            self._lib.ek_bench,
            ctypes.byref(self._model),
            self._in_list,
            self._out_list,
            count,
            totals,
        )

    def set_inputs(self, inputs: Mapping[str, Any]) -> None:
        """Checks names, types and shapes and copies the arrays in; InputError otherwise."""
        specs = self.description.inputs
        if set(inputs) != {spec.name for spec in specs}:
            raise InputError(
                f"expected inputs {_join_names([s.name for s in specs])}, "
                f"found {_join_names(sorted(inputs))}; name the arrays as in the model"
            )
        for spec, block in zip(specs, self._in):
            array = Array.of(inputs[spec.name])
            _check_array(spec, array)
            block[: len(array.data)] = array.data

    def _copy_outputs(self) -> Dict[str, Array]:
        return {
            spec.name: Array(spec.dtype, spec.shape, bytes(block[: spec.bytes]))
            for spec, block in zip(self.description.outputs, self._out)
        }

    def _attach_stamps(self, count: int) -> "ctypes.Array[ctypes.c_uint64]":
        stamps = (ctypes.c_uint64 * (count * (len(self.description.operators) + 1)))()
        self._model.stamps = ctypes.cast(stamps, ctypes.POINTER(ctypes.c_uint64))
        return stamps

    def _check_status(self, code: int) -> None:
        if code != 0:
            raise DeviceError(f"ek_run: expected 0, found {code}; please report this model")


def _check_array(spec: TensorSpec, array: Array) -> None:
    if (array.dtype, array.shape) != (spec.dtype, spec.shape):
        raise InputError(
            f"input '{spec.name}': expected {spec.dtype} {list(spec.shape)}, "
            f"found {array.dtype} {list(array.shape)}"
        )


def _pointer_array(blocks: Sequence[mmap.mmap]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * max(len(blocks), 1))(*(address_of(b) for b in blocks))


def times_of(stamps: "ctypes.Array[ctypes.c_uint64]") -> RunTimes:
    """Converts an inference's time stamps to durations."""
    found = stamps[:]
    return RunTimes(int(found[-1] - found[0]), _stamp_differences(found, len(found) - 1))


def _stamp_differences(stamps: Sequence[int], operators: int) -> Tuple[int, ...]:
    return tuple(int(stamps[i + 1] - stamps[i]) for i in range(operators))


def _join_names(names: List[str]) -> str:
    return ", ".join(names) if names else "none"
