"""Sample probe results of boards."""

from __future__ import annotations

from edgekit.device.runtime.agent.probe import Probe

JETSON_NANO = Probe(
    machine="aarch64",
    board="NVIDIA Jetson Nano Developer Kit",
    compatible=("nvidia,p3450-0000", "nvidia,tegra210"),
    core_names=("cortex-a57",),
    features=("asimd", "fp"),
    vlen_bits=None,
    cores=4,
    memory_bytes=2 << 30,
    available_bytes=1 << 30,
    disk_free_bytes=1 << 30,
    python="3.11.2",
    kernel="6.1.0",
    clock=0.0,
    perf_event_paranoid=2,
    ssh_keygen=True,
    runtime_version="0",
)
