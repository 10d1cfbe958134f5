"""Schema of a board's probe."""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Meta

from edgekit.host.common.decode import Count, Number, Text

Time = Annotated[float, Meta(ge=0, le=1e11)]  # also for a clock, which has to convert to a date


class ClusterAnswer(TypedDict):
    name: Text
    core: Text
    cores: tuple[Count, ...]
    usable: tuple[Count, ...]
    capacity: Count | None
    max_mhz: Number | None
    governor: Text | None


class ProbeAnswer(TypedDict):
    machine: Text
    board: Text
    compatible: tuple[Text, ...]
    core_names: tuple[Text, ...]
    features: tuple[Text, ...]
    vlen_bits: Count | None
    cores: Count
    memory_bytes: Count | None
    available_bytes: Count | None
    disk_free_bytes: Count
    python: Annotated[str, Meta(pattern=r"^\d{1,3}(\.\d{1,3}){1,2}$")]
    kernel: Text
    clock: Time
    perf_event_paranoid: Annotated[int, Meta(ge=-100, le=100)] | None
    ssh_keygen: bool
    runtime_version: Text
    clusters: tuple[ClusterAnswer, ...]
    folder: Text
    folder_trouble: Text
    other_folder: Text
    c_library: Text
