"""A convolution accelerator's parameters for the emulators: sizes and timings per chip."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from edgekit.device.runtime.errors import InputError
from edgekit.device.runtime.kernel_facts import NNA_CHANNELS as CHANNELS
from edgekit.device.runtime.kernel_facts import NNA_FRAM_ROWS as FRAM_ROWS
from edgekit.device.runtime.kernel_facts import NNA_TAPS as TAPS

SET_BYTES = TAPS * CHANNELS * CHANNELS  # the weights of one convolution
_MOST = 1 << 24  # of any value: a typing error must not cause a week of emulation


@dataclass(frozen=True)
class NnaChip:
    """One chip. Sizes in bytes, times in core cycles; InputError if they are inconsistent.

    `output_points`: points of an output row that one MAC instruction computes, 4 or 8.
    `mac_startup` is added to every MAC. `write_latency`: from a write into a RAM until a MAC may
    start on it; `result_latency`: from reading a result until its register holds it.
    `vector_instructions`: instructions of the vector unit, without the NNA, to multiply one pixel
    by one weight and add.
    """

    output_points: int
    fram_bytes: int
    wram_bytes: int
    macs_per_cycle: int
    mac_startup: int
    load_latency: int
    add_latency: int
    write_latency: int
    result_latency: int
    vector_instructions: int

    def __post_init__(self) -> None:
        for field in fields(self):
            self._check_number(field.name, 0 if field.name == "mac_startup" else 1)
        if self.output_points not in (4, 8):
            raise InputError(
                f"nna: expected output_points 4 (NNA 1) or 8 (NNA 2), found {self.output_points}; "
                "correct the board profile"
            )
        self._check_ram("fram_bytes", FRAM_ROWS * self.columns * CHANNELS, "the windows of a MAC")
        self._check_ram("wram_bytes", SET_BYTES, "the weights of a MAC")
        if self.macs_per_go % self.macs_per_cycle:
            raise InputError(
                f"nna: expected macs_per_cycle to divide the {self.macs_per_go} of one MAC "
                f"instruction, found {self.macs_per_cycle}; correct the board profile"
            )

    def _check_number(self, name: str, least: int) -> None:
        value = getattr(self, name)
        if type(value) is not int or not least <= value <= _MOST:
            raise InputError(
                f"nna: expected {name} to be a whole number from {least} to {_MOST}, "
                f"found {value!r}; correct the board profile"
            )

    def _check_ram(self, name: str, needed: int, what: str) -> None:
        found = getattr(self, name)
        if found < needed:
            raise InputError(
                f"nna: expected {name} to hold {what} ({needed} bytes), found {found}; "
                "correct the board profile"
            )

    @staticmethod
    def read(path: Path) -> NnaChip:
        """Reads what `text` wrote; InputError for another file."""
        try:
            return NnaChip(**json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError) as error:
            raise InputError(
                f"{path.name}: expected the parameters of an NNA, found: {error}; deploy the "
                "kernels again"
            ) from None

    @property
    def text(self) -> str:
        """The parameters as a file."""
        return json.dumps(asdict(self))

    @property
    def columns(self) -> int:
        """Pixels of a FRAM row: the windows of all points at stride 2, in pairs."""
        return 2 * self.output_points + 2

    @property
    def groups(self) -> int:
        """Groups of 32 channels that one MAC of a matrix product serves: every second point."""
        return self.output_points // 2

    @property
    def weight_sets(self) -> int:
        """Convolutions whose weights fit in the weight RAM; two suffice for prefetching."""
        return min(2, self.wram_bytes // SET_BYTES)

    @property
    def macs_per_go(self) -> int:
        """Multiply-adds of one MAC instruction, useful or not."""
        return self.output_points * SET_BYTES

    @property
    def mac_cycles(self) -> int:
        """Cycles for which one MAC instruction occupies the array."""
        return self.mac_startup + self.macs_per_go // self.macs_per_cycle


def checked_chip(value: Any) -> NnaChip:
    """Returns a chip; InputError for anything else."""
    if not isinstance(value, NnaChip):
        raise InputError(f"nna: expected a chip such as NNA2, found {value!r}")
    return value


# The default chip of an account: board profile nna2; a test compares them.
NNA2 = NnaChip(
    output_points=8,
    fram_bytes=2048,
    wram_bytes=18432,
    macs_per_cycle=2048,
    mac_startup=0,
    load_latency=4,
    add_latency=2,
    write_latency=2,
    result_latency=4,
    vector_instructions=4,
)
