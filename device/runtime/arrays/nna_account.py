"""The cost of a product on the NNA: cycles, stalls, work and bytes; and its trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, Dict, Sequence, Tuple

from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS

# Instructions and the unit that each occupies.
OPERATIONS = {
    "la": "vector",
    "sa": "vector",
    "add": "vector",
    "nncfg": "nna",
    "nndwf": "nna",
    "nndww": "nna",
    "nndrdocb": "nna",
    "nnmacg": "array",
}
# What an instruction waits for: a register; the array, busy with another MAC; a RAM just written; a
# FRAM or weight set that the array is still reading; a result that is not ready.
CAUSES = ("operand", "array", "settle", "fram", "weights", "result")

_ROWS = 4  # vector unit alone: rows of A per load of a pixel


@dataclass(frozen=True)
class Counters:
    """An emulator's counters. Cycles, and instructions and stalls in the order of OPERATIONS and
    CAUSES; see NnaAccount for `overlapped`, `serial`, `load`, `fill`."""

    overlapped: int
    serial: int
    load: int
    fill: int
    last_mac_end: int
    instructions: Tuple[int, ...]
    stalls: Tuple[int, ...]


@dataclass(frozen=True)
class NnaEvent:
    """One instruction or stall, in cycles; an instruction ends when its result is ready."""

    unit: str
    name: str
    start: int
    end: int


@dataclass(frozen=True)
class NnaProductWork:
    """A product's work, independent of its execution.

    `rows`, `depth`, `lanes`: the equivalent matrix product, for the vector unit alone; `tail` of
    the lanes are computed outside the NNA. `useful`: the array's multiply-adds that contribute to
    the result; `groups`: channel groups served by one weight load (convolution: 1).
    """

    rows: int
    depth: int
    lanes: int
    tail: int
    useful: int
    weight_loads: int
    groups: int


@dataclass(frozen=True)
class NnaAccount:
    """Cycles of the complete product, including the tail outside the NNA.

    `cycles`: as the chip runs it; `serial_cycles`: the same stream, waiting for every MAC;
    `load_cycles`: the same stream if MACs took no time; `mac_cycles`: the array's busy time;
    `fill_cycles` before the first MAC, `drain_cycles` after the last; `tail_cycles`: of the
    channels outside; `vector_cycles`: the product without the NNA. Of `macs_done` on the array,
    `macs_useful` contribute to the result. Bytes: loaded and stored by the thread, into the feature
    RAMs and the weight RAM, and out of the results. `weight_image_bytes`: the rearranged weights in
    memory.
    """

    cycles: int
    serial_cycles: int
    load_cycles: int
    mac_cycles: int
    fill_cycles: int
    drain_cycles: int
    tail_cycles: int
    vector_cycles: int
    stalls: Dict[str, int]
    instructions: Dict[str, int]
    macs_done: int
    macs_useful: int
    bytes_loaded: int
    bytes_stored: int
    fram_bytes: int
    wram_bytes: int
    result_bytes: int
    weight_image_bytes: int
    weight_loads: int
    weight_loads_saved: int

    @property
    def bound(self) -> int:
        """The expected upper bound with ping-pong: max(load, MAC) + fill and drain, and the
        tail."""
        stream = max(self.load_cycles - self.tail_cycles, self.mac_cycles)
        return stream + self.fill_cycles + self.drain_cycles + self.tail_cycles

    @property
    def better(self) -> str:
        """The faster unit for this product: "nna" or "vector"."""
        return "nna" if self.cycles < self.vector_cycles else "vector"

    def document(self) -> Dict[str, Any]:
        """All fields and derived values, for JSON."""
        useful = self.macs_useful / self.macs_done if self.macs_done else 0.0
        return {**asdict(self), "bound": self.bound, "better": self.better, "useful_share": useful}


def make_account(chip: NnaChip, counters: Counters, work: NnaProductWork) -> NnaAccount:
    """Builds a stream's account, with the vector unit computing the tail after it."""
    count = dict(zip(OPERATIONS, counters.instructions))
    tail = vector_cycles(chip, work.rows, work.depth, work.tail)
    macs = count["nnmacg"]
    nndww, register = count["nndww"], 2 * CHANNELS
    return NnaAccount(
        cycles=counters.overlapped + tail,
        serial_cycles=counters.serial + tail,
        load_cycles=counters.load + tail,
        mac_cycles=macs * chip.mac_cycles,
        fill_cycles=counters.fill,
        drain_cycles=counters.overlapped - counters.last_mac_end,
        tail_cycles=tail,
        vector_cycles=vector_cycles(chip, work.rows, work.depth, work.lanes),
        stalls=dict(zip(CAUSES, counters.stalls)),
        instructions=count,
        macs_done=macs * chip.macs_per_go,
        macs_useful=work.useful,
        bytes_loaded=count["la"] * CHANNELS,
        bytes_stored=count["sa"] * CHANNELS,
        fram_bytes=count["nndwf"] * register,
        wram_bytes=nndww * register,
        result_bytes=count["nndrdocb"] * register,
        weight_image_bytes=nndww * register,
        weight_loads=work.weight_loads,
        weight_loads_saved=work.weight_loads * max(work.groups - 1, 0),
    )


def layer_work(
    chip: NnaChip, form: str, points: int, window: int, inputs: int, outputs: int
) -> NnaProductWork:
    """Returns a layer's work, for `points` windows of `window` pixels over `inputs` channels.
    `form`: "windows" is a convolution, "diagonal" a depthwise one (outputs equal inputs), "points"
    a 1x1 or fully connected layer."""
    ins, outs = -(-inputs // CHANNELS), -(-outputs // CHANNELS)
    if form == "diagonal":
        rows, depth, lanes, loads = 1, window, ins * CHANNELS * points, ins
        useful = points * window * inputs
    else:
        rows, depth, lanes, loads = outputs, window * inputs, points, outs * ins
        useful = points * depth * outputs
    if form == "points":
        # The vector unit uses the columns of either operand as lanes, whichever costs less.
        ways = ((outputs, points), (points, outputs))
        rows, lanes = min(ways, key=lambda way: vector_cycles(chip, way[0], depth, way[1]))
        loads = outs * -(-ins // TAPS)
    return NnaProductWork(rows, depth, lanes, tail=0, useful=useful, weight_loads=loads, groups=1)


def matmul_work(m: int, k: int, n: int) -> NnaProductWork:
    """Returns the work of [m, k] by [k, n], multiplied as in the patent."""
    groups = n // CHANNELS
    return NnaProductWork(
        rows=m,
        depth=k,
        lanes=n,
        tail=n % CHANNELS,
        useful=m * k * groups * CHANNELS,
        weight_loads=m * -(-k // TAPS) if groups else 0,
        groups=groups,
    )


def totals(accounts: Sequence[NnaAccount]) -> Dict[str, Any]:
    """Sums the accounts of consecutive products, by NnaAccount's field names."""
    found: Dict[str, Any] = {}
    for field in fields(NnaAccount):
        values = [getattr(account, field.name) for account in accounts]
        if field.name in ("stalls", "instructions"):
            names = CAUSES if field.name == "stalls" else tuple(OPERATIONS)
            found[field.name] = {name: sum(value[name] for value in values) for name in names}
        else:
            found[field.name] = sum(values)
    return found


def vector_cycles(chip: NnaChip, rows: int, depth: int, lanes: int) -> int:
    """Returns the cycles of a matrix product [rows, depth] . [depth, lanes] on the vector unit
    alone.

    One instruction per cycle, no stalls: pixels of 32 lanes are loaded once per four rows, every
    product takes chip.vector_instructions, sums are stored in four parts.
    """
    pixels = -(-lanes // CHANNELS)
    loads = -(-rows // _ROWS) * depth * pixels
    return loads + rows * depth * pixels * chip.vector_instructions + rows * pixels * 4


def trace_document(events: Sequence[NnaEvent], name: str) -> Dict[str, Any]:
    """Converts events to Chrome's trace format, for Perfetto; a cycle is shown as 1 us.

    Instructions are pipelined: a bar is the cycle in which one issues, `ready` is when its result
    is available. MACs and stalls last as long as their bars.
    """
    units = ("vector", "nna", "array", "stall")
    rows = [_trace_row(event, units.index(event.unit)) for event in events]
    threads = [
        {"ph": "M", "name": "thread_name", "pid": 0, "tid": tid, "args": {"name": unit}}
        for tid, unit in enumerate(units)
    ]
    process = {"ph": "M", "name": "process_name", "pid": 0, "args": {"name": name}}
    return {"displayTimeUnit": "ns", "traceEvents": [process, *threads, *rows]}


def _trace_row(event: NnaEvent, tid: int) -> Dict[str, Any]:
    lasts = event.unit in ("array", "stall")
    return {
        "ph": "X",
        "name": event.name,
        "cat": event.unit,
        "pid": 0,
        "tid": tid,
        "ts": event.start,
        "dur": event.end - event.start if lasts else 1,
        "args": {"ready": event.end},
    }
