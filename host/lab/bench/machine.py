"""Describes the machine that a table of measurements was made on."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def machine_summary() -> str:
    """CPU, cores and operating system in one line."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    lines = (line.partition(":") for line in info.splitlines())
    name = next((value.strip() for key, _, value in lines if key.strip() == "model name"), "")
    return f"{name or platform.machine()}, {os.cpu_count()} cores, {platform.system()}"
