"""Clocks and memory of a board's clusters: `[timing.NAME]` tables of board profiles.

A cluster names its core (kb/targets/cores); its values for caches and DRAM override those that the
core usually has. Every value states its source, as in kb/targets/units.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from edgekit.kb.targets.core import Core, core_names, load_core
from edgekit.kb.targets.core_parts import Cache, Dram
from edgekit.kb.targets.units import Origin, origin

_NEEDED = ("clock_mhz", "dram_ns", "dram_core_gb_s", "dram_gb_s")
_WRITES = "dram_write_gb_s"  # if writes alone are slower
_TURN = "dram_turn_ns"  # extra latency of a line after one for another core
_CORES = "cores"  # required if there are several clusters
_L2 = ("l2_bytes", "l2_ways", "l2_latency", "l2_per_core")
_L3 = ("l3_bytes", "l3_ways", "l3_latency")
_MOST = 1 << 30


@dataclass(frozen=True)
class TimedCluster:
    """Cores of one kind.

    `values` by name: MHz, nanoseconds, GB/s of one core and of all, and bytes, ways and cycles of
    caches; an `l3_bytes` of 0 means that there is none. On a board with several clusters, each
    states its number of `cores`.
    """

    name: str
    core: str
    values: tuple[tuple[str, float], ...]
    origins: tuple[Origin, ...] = ()

    @property
    def clock_mhz(self) -> float:
        return dict(self.values)["clock_mhz"]

    @property
    def cores(self) -> int:
        """The number of cores; 0 if all of the profile's belong to this cluster."""
        return int(dict(self.values).get(_CORES, 0))

    def timed(self) -> Core:
        """The timing model of its core with this cluster's values."""
        core, value = load_core(self.core), dict(self.values)
        ns, own, shared = (value[key] for key in _NEEDED[1:])
        dram = Dram(ns, own, shared, value.get(_WRITES, 0), value.get(_TURN, 0))
        core = replace(core, clock_mhz=int(value["clock_mhz"]), dram=dram)
        if "l2_bytes" in value:
            second = replace(_parse_cache("l2", value), per_core=bool(value["l2_per_core"]))
            core = replace(core, l2=replace(second, line=core.l2.line))
        if "l3_bytes" in value:
            core = replace(core, l3=_parse_cache("l3", value) if value["l3_bytes"] else None)
        return core


def _parse_cache(level: str, value: Mapping[str, float]) -> Cache:
    size, ways, latency = (int(value[f"{level}_{key}"]) for key in ("bytes", "ways", "latency"))
    return Cache(size, ways, latency)


def parse_cluster(where: str, name: str, table: Any) -> TimedCluster:
    """Parses a `[timing.NAME]` table; `where` names the profile.

    Raises ValueError, in one line, if a value is missing, unknown, without origin or not a number.
    """
    if not isinstance(table, Mapping) or not isinstance(table.get("core"), str):
        raise ValueError(f"{where}: expected a table [timing.{name}] with a core, found {table!r}")
    if table["core"] not in core_names():
        raise ValueError(
            f"{where}: expected timing.{name}.core to be one of {', '.join(core_names())}, "
            f"found '{table['core']}'"
        )
    values = {key: entry for key, entry in table.items() if key != "core"}
    known = (*_NEEDED, _WRITES, _TURN, _CORES, *_L2, *_L3)
    if unknown := sorted(set(values) - set(known)):
        raise ValueError(
            f"{where}: unknown values {', '.join(unknown)} of [timing.{name}]; "
            f"known are {', '.join(known)}"
        )
    wanted = [*_NEEDED, *(key for key in (_WRITES, _TURN, _CORES) if key in values)]
    wanted += _L2 if any(key in values for key in _L2) else ()
    if any(key in values for key in _L3):
        wanted += _L3 if values.get("l3_bytes", {}).get("value") != 0 else ("l3_bytes",)
    if missing := [key for key in wanted if key not in values]:
        raise ValueError(f"{where}: expected {', '.join(missing)} in [timing.{name}], found none")
    origins = tuple(origin(where, f"timing.{name}", key, values[key]) for key in wanted)
    for key in wanted:
        value = values[key]["value"]
        least = 0 if key in ("l3_bytes", "l2_per_core") else 1e-3
        if type(value) not in (int, float) or not least <= value < _MOST:
            raise ValueError(
                f"{where}: expected timing.{name}.{key} to be a number above 0, found {value!r}"
            )
    figures = tuple((key, float(values[key]["value"])) for key in wanted)
    return TimedCluster(name, table["core"], figures, origins)
