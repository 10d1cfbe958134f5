"""The float model of a release, which repeats inferences in a thread of the idle class."""

from __future__ import annotations

import _ctypes
import ctypes
import math
from array import array
from typing import List, Sequence, Tuple

from edgekit.device.runtime.agent.batch import RangeSketch
from edgekit.device.runtime.agent.binding import (
    ModelStruct,
    WeightsMap,
    address_of,
    block_of,
    describe,
    load_library,
)
from edgekit.device.runtime.agent.fit import check_fit
from edgekit.device.runtime.agent.manifest import BoardNeeds, Variant
from edgekit.device.runtime.agent.probe import board_facts
from edgekit.device.runtime.agent.release_files import ReleaseFiles
from edgekit.device.runtime.agent.shadow_spec import ShadowSpec
from edgekit.device.runtime.agent.sketch import BINS, odd_values, sketch_of, sketch_text
from edgekit.device.runtime.dtypes import count
from edgekit.device.runtime.errors import DeviceError, TransferError
from edgekit.device.runtime.record import Record, replace

_F32 = "f32"


class Comparison(Record):
    """A repeated inference: RMS of the difference as a fraction of the float output's (the worst
    output's), whether the first output's largest value is at the same place, and CPU time."""

    noise: float
    same: bool
    ns: int


class _Job(ctypes.Structure):
    """ek_shadow_job of shadow.h."""

    _fields_ = (
        ("model", ctypes.POINTER(ModelStruct)),
        ("inputs", ctypes.c_void_p),
        ("out", ctypes.c_void_p),
        ("released", ctypes.c_void_p),
        ("elements", ctypes.c_void_p),
        ("raw", ctypes.c_void_p),
        ("seen", ctypes.c_void_p),
        ("counts", ctypes.c_void_p),
        ("outputs", ctypes.c_int),
        ("watched", ctypes.c_int),
        ("bins", ctypes.c_void_p),
        ("ends", ctypes.c_void_p),
        ("noise", ctypes.c_double),
        ("same", ctypes.c_int),
        ("code", ctypes.c_int),
        ("ns", ctypes.c_uint64),
    )


class FloatModel:
    """Loads the float model of a release's `variant`. IncompatibleError or TooLittleMemoryError if
    this board cannot run it, TransferError if the files are damaged."""

    def __init__(
        self, files: ReleaseFiles, board: BoardNeeds, variant: Variant, spec: ShadowSpec
    ) -> None:
        self._spec = spec
        self._lib = load_library(files, spec.library)
        found = describe(self._lib, spec.library)
        outputs = found.outputs[: len(variant.outputs)]
        mine = [(s.dtype, s.shape) for s in (*found.inputs, *outputs)]
        theirs = [(s.dtype, s.shape) for s in (*variant.inputs, *variant.outputs)]
        states = found.memory.state_bytes, variant.memory.state_bytes
        ends = {s.name: s for s in (*found.inputs, *found.outputs) if s.dtype == _F32}
        if (
            mine != theirs
            or len({*states}) > 1
            or not {each.name for each in spec.watched} <= ends.keys()
        ):
            raise TransferError(
                f"{spec.library}: expected the tensors of the manifest, found different ones; "
                "compile the bundle again"
            )
        held = sum(s.bytes for s in found.outputs)
        needed = replace(spec.memory, arena_bytes=spec.memory.arena_bytes + held)
        check_fit(board, needed, board_facts())
        self._sizes = [s.bytes for s in (*variant.inputs, *variant.outputs)]
        self._sizes.append(spec.memory.state_bytes)
        self._weights = WeightsMap(files, spec.memory.weights_bytes)
        self._blocks = [block_of(spec.memory.arena_bytes), block_of(spec.memory.state_bytes)]
        self._out = [block_of(s.bytes) for s in found.outputs]
        self._addresses = _pointers([address_of(block) for block in self._out])
        self._elements = array("q", [count(s.shape) for s in outputs])
        self._inputs = {s.name: number for number, s in enumerate(found.inputs)}
        self._seen = {s.name: at for s, at in zip(found.outputs, self._addresses)}
        self._counts = array("q", [count(ends[each.name].shape) for each in spec.watched])
        self._raw = array("q", [0 if s.dtype == _F32 else s.bytes for s in outputs])
        arena, state = map(address_of, self._blocks)
        self._model = ModelStruct(self._weights.address, arena, state, None)
        self._lib.ek_reset(ctypes.byref(self._model))
        self._lib.ek_shadow.argtypes = (ctypes.POINTER(_Job),)
        self._clear_ranges()

    def compare(
        self, inputs: Sequence[bytes], outputs: Sequence[bytes], state: bytes
    ) -> Comparison:
        """Repeats an inference. The bytes are those of all inputs and outputs of the release, and
        of its states before it."""
        assert [len(each) for each in (*inputs, *outputs, state)] == self._sizes
        self._blocks[1][: len(state)] = state
        given, released = (
            (ctypes.c_char_p * max(len(some), 1))(*some) for some in (inputs, outputs)
        )
        places = ctypes.cast(given, ctypes.POINTER(ctypes.c_void_p))
        seen = _pointers(
            [
                places[self._inputs[each.name]]
                if each.name in self._inputs
                else self._seen[each.name]
                for each in self._spec.watched
            ]
        )
        job = _Job(
            ctypes.pointer(self._model),
            ctypes.addressof(given),
            ctypes.addressof(self._addresses),
            ctypes.addressof(released),
            self._elements.buffer_info()[0],
            self._raw.buffer_info()[0],
            ctypes.addressof(seen),
            self._counts.buffer_info()[0],
            len(self._raw),
            len(self._spec.watched),
            ctypes.addressof(self._bins),
            ctypes.addressof(self._ends),
        )
        if self._lib.ek_shadow(ctypes.byref(job)) or job.code:
            raise DeviceError("expected to repeat an inference in float, found no thread for it")
        return Comparison(float(job.noise), bool(job.same), int(job.ns))

    def take_ranges(self) -> Tuple[RangeSketch, ...]:
        """The values of the watched tensors since the last call."""
        found = tuple(self._range(number) for number in range(len(self._spec.watched)))
        self._clear_ranges()
        return found

    def close(self) -> None:
        """Frees all memory and unloads the library."""
        self._weights.close()
        self._blocks = self._out = []
        _ctypes.dlclose(self._lib._handle)

    def _clear_ranges(self) -> None:
        watched = len(self._spec.watched)
        self._bins = (ctypes.c_uint64 * (BINS * watched))()
        self._ends = (ctypes.c_float * (2 * watched))(*(math.inf, -math.inf) * watched)

    def _range(self, number: int) -> RangeSketch:
        about = self._spec.watched[number]
        bins: List[int] = self._bins[number * BINS : (number + 1) * BINS]
        low, high = self._ends[2 * number : 2 * number + 2]
        if low > high:  # no finite value
            low = high = 0.0
        sketch = sketch_text(sketch_of(bins))
        return RangeSketch(about.name, low, high, odd_values(bins), about.low, about.high, sketch)


def _pointers(addresses: Sequence[int]) -> "ctypes.Array[ctypes.c_void_p]":
    return (ctypes.c_void_p * max(len(addresses), 1))(*addresses)
