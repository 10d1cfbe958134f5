"""The parts of a core's timing model: what each figure means."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Issue:
    """How instructions enter the core; in cycles and counts."""

    width: int  # instructions (in order) or micro-operations (out of order) per cycle
    fetch: int  # bytes of code per cycle
    taken: int  # empty cycles after a correctly predicted taken branch
    mispredict: int  # empty cycles after a mispredicted branch
    address: int = 0  # in order: extra latency from an ALU result to an address, versus to an ALU
    store_data: int = 0  # in order: delay from a store's address to its data being needed
    branch_data: int = 0  # in order: how much later a branch needs its operands than others
    window: int = 0  # micro-operations between dispatch and retirement (reorder buffer)
    retire: int = 0  # micro-operations that retire per cycle
    depth: int = 0  # cycles from dispatch to the first execution
    write_back: int = 0  # out of order: micro-operations for address write-back
    loads: int = 0  # entries of the load queue
    stores: int = 0  # entries of the store queue


@dataclass(frozen=True)
class Ports:
    """Bytes per cycle of a load or store on one port; larger accesses take more cycles."""

    load_bytes: int
    store_bytes: int


@dataclass(frozen=True)
class Unit:
    """A set of equivalent ports, and the entries of the queue before them."""

    ports: tuple[str, ...]
    queue: int = 0
    dispatch: int = 0  # out of order: micro-operations per cycle, including parts; 0: unlimited


@dataclass(frozen=True)
class Operation:
    """Timing of the instructions selected by `on`; later rows override the fields they set.

    `on` is a list of class[@width][/element] with * as a wildcard.
    """

    on: str
    unit: str | None = None
    latency: int | None = None  # cycles until the result is available
    forward: int | None = None  # the same for the accumulator of the next instruction
    cycles: int | None = None  # cycles for which a port is occupied
    uops: int | None = None  # micro-operations, each on a port of the unit
    takes: int | None = None  # ports occupied at the same time
    issue: str | None = None  # in order: any, first (of its cycle), last, alone
    source: str | None = None  # key in `sources`, if not "operations"


@dataclass(frozen=True)
class Rule:
    """Instructions in `on` do not issue `distance` cycles after those in `after`.

    0 is the same cycle, in which case the order does not matter.
    """

    on: str
    after: str
    distance: int
    source: str


@dataclass(frozen=True)
class Cache:
    """Bytes, ways, and cycles of latency; for a first level, the latency of a load."""

    bytes: int
    ways: int
    latency: int = 0
    policy: str = "lru"
    per_core: bool = False  # a second level that is private to each core
    line: int = 0  # cycles to transfer a line from the second to the first level
    out: int = 0  # cycles to write it back if it is dirty


@dataclass(frozen=True)
class Tlb:
    """Entries, and cycles of a first-level miss and of a page table walk."""

    entries: int
    second: int
    ways: int
    penalty: int
    walk: int


@dataclass(frozen=True)
class Prefetch:
    """Streams of lines that the prefetcher follows: how many, how far, after how many steps."""

    streams: int
    distance: int  # lines ahead that are prefetched to L1
    second: int  # further lines that are prefetched to L2
    confirm: int
    page: int = 4096  # bytes whose boundary it does not cross
    stores: int = 0  # 1: it also observes store misses
    apart: int = 0  # misses tracked before they form a stream; 0: each replaces a stream


@dataclass(frozen=True)
class Stores:
    """The store buffer, and completely written lines."""

    buffer: int  # entries (lines)
    drain: int  # cycles between two stores that leave it
    stream: int  # consecutive complete lines after which lines are not read first; 0: never
    gather: int = 32  # cycles for which a partial line that is not read first is held: assumed
    beyond: int = 0  # consecutive complete lines after which stores bypass the caches; 0: never
    miss: int = 0  # cycles for which a store that misses L1 blocks the buffer's exit


@dataclass(frozen=True)
class Branch:
    """Sizes of the predictor: counters, history lengths, targets, returns."""

    entries: int
    history: tuple[int, ...]
    targets: int
    indirect: int  # history bits that select an indirect target
    returns: int


@dataclass(frozen=True)
class Dram:
    """Nanoseconds of a load that misses all caches, and GB/s for one core and for all."""

    latency_ns: float
    core_gb_s: float
    gb_s: float
    write_gb_s: float = 0  # of writes alone; 0: the same as for all
    turn_ns: float = 0  # extra latency of a line after one for another core


@dataclass(frozen=True)
class Validation:
    """The validation of a core's estimates, with errors in percent on networks not used for
    fitting. `against`: the boards and their source."""

    kind: str  # float or int8
    threads: int
    networks: int
    median_percent: float
    worst_percent: float
    against: str
    date: str
