"""Board architectures under their Debian and QEMU names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    """A Debian architecture on QEMU's `virt` machine.

    `kernel_package` is the metapackage for the newest kernel; `console` is the guest's serial
    device.
    """

    name: str
    suite: str
    kernel_package: str
    library_folder: str
    qemu: str
    console: str

    @property
    def label(self) -> str:
        return f"{self.name}-{self.suite}"


ARM64 = Architecture(
    "arm64",
    "bookworm",
    "linux-image-cloud-arm64",
    "aarch64-linux-gnu",
    "qemu-system-aarch64",
    "ttyAMA0",
)
ARMHF = Architecture(
    "armhf",
    "bookworm",
    "linux-image-armmp",
    "arm-linux-gnueabihf",
    "qemu-system-arm",
    "ttyAMA0",
)
RISCV64 = Architecture(
    "riscv64",
    "trixie",
    "linux-image-riscv64",
    "riscv64-linux-gnu",
    "qemu-system-riscv64",
    "ttyS0",
)
