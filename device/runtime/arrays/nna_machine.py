"""The NNA and the vector unit, one instruction at a time: effects and timing.

This is the reference for kernels/nna, so it favors readability. Registers hold two pixels of 32
bytes, or 16 sums of 32 bits. Memory is NumPy: instructions receive views of it.
"""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Tuple

import numpy as np

from edgekit.device.runtime.arrays.nna_account import CAUSES, OPERATIONS, Counters, NnaEvent
from edgekit.device.runtime.arrays.nna_chip import NnaChip
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_FRAM_ROWS as FRAM_ROWS
from edgekit.device.runtime.kernel_facts import NNA_FRAMS as FRAMS
from edgekit.device.runtime.kernel_facts import NNA_REGISTERS as REGISTERS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS

Array = Any  # of NumPy, whose types the board's Python 3.9 may lack
Key = Tuple[str, int]  # a resource that an instruction waits for or makes ready: kind and index

_JUNK = 0x55  # initial RAM contents: nothing may depend on unwritten values


class Clock:
    """The issue times of a stream's instructions: in order, one per cycle.

    `mac_cycles` is the duration of a MAC; a `blocking` clock issues nothing until it is done.
    """

    def __init__(self, mac_cycles: int, blocking: bool = False) -> None:
        self.mac_cycles = mac_cycles
        self.blocking = blocking
        self.now = 0
        self.ready: Dict[Key, int] = {}
        self.stalls = dict.fromkeys(CAUSES, 0)

    def issue(self, waits: Sequence[Tuple[Key, str]]) -> Tuple[int, str]:
        """Returns an instruction's start, and the cause of its longest wait ("" if none)."""
        start, cause = self.now, ""
        for key, why in waits:
            at = self.ready.get(key, 0)
            if at > start:
                start, cause = at, why
        if cause:
            self.stalls[cause] += start - self.now
        self.now = start + 1
        return start, cause


class NnaMachine:
    """A running chip. Methods are instructions, named as in the patent.

    Three clocks time the same stream: `overlapped` as the chip runs it; `serial`, where the thread
    waits for every MAC; `load`, where MACs take no time.
    """

    def __init__(self, chip: NnaChip, trace: int = 0) -> None:
        """`trace`: the number of events to record."""
        self.chip = chip
        self.registers = np.full((REGISTERS, 2 * CHANNELS), _JUNK, np.int8)
        self.fram = np.full((FRAMS, FRAM_ROWS, chip.columns, CHANNELS), _JUNK, np.int8)
        self.wram = np.full((chip.weight_sets, TAPS, CHANNELS, CHANNELS), _JUNK, np.int8)
        self.results = np.zeros((FRAMS, chip.output_points, CHANNELS), np.int32)
        self.fram_at = [(0, 0)] * FRAMS  # position of the next pixel: row, column
        self.wram_at = [0] * chip.weight_sets  # in rows of 32 weights
        self.config = {"stride": 1, "jump": 0, "mask": 0}
        self.overlapped = Clock(chip.mac_cycles)
        self.serial = Clock(chip.mac_cycles, blocking=True)
        self.load = Clock(0)
        self.counts = dict.fromkeys(OPERATIONS, 0)
        self.fill, self.last_mac_end = 0, 0
        self.events: List[NnaEvent] = []
        self._trace = trace

    def la(self, register: int, half: int, memory: Array) -> None:
        """Loads 32 bytes into half of a register."""
        start = half * CHANNELS
        self.registers[register, start : start + CHANNELS] = memory.view(np.int8)
        self._issue("la", (), ("register", register), self.chip.load_latency)

    def sa(self, register: int, half: int, memory: Array) -> None:
        """Stores half of a register."""
        start = half * CHANNELS
        memory.view(np.int8)[:] = self.registers[register, start : start + CHANNELS]
        self._issue("sa", ((("register", register), "operand"),), ("memory", 0), 1)

    def add(self, target: int, left: int, right: int) -> None:
        """Adds 16 sums, modulo 2^32."""
        words = self.registers.view(np.int32)
        words[target] = words[left] + words[right]
        waits = ((("register", left), "operand"), (("register", right), "operand"))
        self._issue("add", waits, ("register", target), self.chip.add_latency)

    def nncfg(self, name: str, value: int) -> None:
        """Sets the stride, the tap mask, or the pixels per FRAM row; issues an instruction only if
        the value changes."""
        if self.config[name] != value:
            self.config[name] = value
            self._issue("nncfg", (), ("config", 0), 1)

    def nndwf(self, fram: int, register: int) -> None:
        """Writes a register's two pixels into a FRAM; advances to the next row at the end of
        one."""
        row, column = self.fram_at[fram]
        pixels = self.registers[register].reshape(2, CHANNELS)
        self.fram[fram, row, column : column + 2] = pixels
        column += 2
        self.fram_at[fram] = (row, column) if column < self.config["jump"] else (row + 1, 0)
        waits = ((("register", register), "operand"), (("fram in use", fram), "fram"))
        self._issue("nndwf", waits, ("fram", fram), self.chip.write_latency)

    def nndww(self, weights: int, register: int) -> None:
        """Writes two rows of 32 weights (one tap, two output channels) into a set of the WRAM."""
        at = self.wram_at[weights]
        rows = self.wram[weights].reshape(TAPS * CHANNELS, CHANNELS)
        rows[at : at + 2] = self.registers[register].reshape(2, CHANNELS)
        self.wram_at[weights] = at + 2
        waits = ((("register", register), "operand"), (("weights in use", weights), "weights"))
        self._issue("nndww", waits, ("weights", weights), self.chip.write_latency)

    def nnmacg(self, fram: int, weights: int) -> None:
        """Starts the array: every output point is the sum over its window's taps and channels.

        The next writes into this FRAM and this set start over at their beginning.
        """
        taps = [tap for tap in range(TAPS) if self.config["mask"] >> tap & 1]
        kernel = self.wram[weights].astype(np.int32)
        for point in range(self.chip.output_points):
            column = point * self.config["stride"]
            window = self.fram[fram, :, column : column + 3].reshape(TAPS, CHANNELS, 1)
            self.results[fram, point] = (kernel[taps] @ window[taps])[..., 0].sum(axis=0)
        self.fram_at[fram], self.wram_at[weights] = (0, 0), 0
        waits = (
            (("array", 0), "array"),
            (("fram", fram), "settle"),
            (("weights", weights), "settle"),
        )
        start = self._issue("nnmacg", waits, ("array", 0), self.chip.mac_cycles)
        for clock in (self.overlapped, self.serial, self.load):
            end = clock.now - 1 + clock.mac_cycles
            for key in ("array", 0), ("fram in use", fram), ("weights in use", weights):
                clock.ready[key] = end
            clock.ready["result", fram] = end
            if clock.blocking:
                clock.now = end
        if self.counts["nnmacg"] == 1:
            self.fill = start
        self.last_mac_end = start + self.chip.mac_cycles

    def nndrdocb(self, register: int, fram: int, point: int, half: int) -> None:
        """Reads half of an output point's sums: 16 channels."""
        sums = self.results[fram, point, 16 * half : 16 * half + 16]
        self.registers[register] = sums.view(np.int8)
        latency = self.chip.result_latency
        self._issue("nndrdocb", ((("result", fram), "result"),), ("register", register), latency)

    def counters(self) -> Counters:
        """Returns the clocks' current values."""
        return Counters(
            overlapped=self.overlapped.now,
            serial=self.serial.now,
            load=self.load.now,
            fill=self.fill,
            last_mac_end=self.last_mac_end,
            instructions=tuple(self.counts[name] for name in OPERATIONS),
            stalls=tuple(self.overlapped.stalls[name] for name in CAUSES),
        )

    def _issue(self, name: str, waits: Sequence[Tuple[Key, str]], gives: Key, latency: int) -> int:
        self.counts[name] += 1
        before = self.overlapped.now
        start, cause = self.overlapped.issue(waits)
        self.overlapped.ready[gives] = start + latency
        for clock in (self.serial, self.load):
            clock.ready[gives] = clock.issue(waits)[0] + latency
        if cause:
            self._record_event(NnaEvent("stall", cause, before, start))
        self._record_event(NnaEvent(OPERATIONS[name], name, start, start + latency))
        return start

    def _record_event(self, event: NnaEvent) -> None:
        if len(self.events) < self._trace:
            self.events.append(event)
