"""Serializes a core for host/simulator/plugin: flat text with one `key values` per line."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from edgekit.kb.targets.core import ISSUE, Core, operation_table, selected


def core_text(core: Core) -> str:
    """The text that the plugin reads."""
    cycles = core.clock_mhz / 1000
    ports = list(dict.fromkeys(p for unit in core.units.values() for p in unit.ports))
    lines = [f"core {core.name}", f"order {core.order}", f"vector_bits {core.vector_bits}"]
    lines += [f"datapath_bits {core.datapath_bits}", f"misses {core.misses}"]
    for part in ("issue", "ports", "tlb", "prefetch", "stores"):
        lines += [f"{part}.{k} {v}" for k, v in asdict(getattr(core, part)).items()]
    for level in ("l1i", "l1d", "l2", "l3"):
        cache = getattr(core, level)
        if cache is not None:
            shape = f"{cache.bytes} {cache.ways} {cache.latency}"
            flags = f"{int(cache.policy == 'random')} {int(cache.per_core)}"
            lines.append(f"{level} {shape} {flags} {cache.line} {cache.out}")
    branch = core.branch
    lines += [f"branch {branch.entries} {branch.targets} {branch.indirect} {branch.returns}"]
    lines += [f"history {length}" for length in branch.history]
    # in cycles, and in 1/256 cycle per line
    lines.append(f"dram.latency {round(core.dram.latency_ns * cycles)}")
    dram = core.dram
    rates = {"core_line": dram.core_gb_s, "line": dram.gb_s}
    for key, rate in (rates | {"write_line": dram.write_gb_s or dram.gb_s}).items():
        lines.append(f"dram.{key} {round(64 * 256 * cycles / rate)}")
    lines.append(f"dram.turn {round(256 * cycles * dram.turn_ns)}")
    lines += [f"feature {feature}" for feature in ("base", *core.features)]
    for name, unit in core.units.items():
        mask = sum(1 << ports.index(port) for port in unit.ports)
        lines.append(f"unit {name} {mask} {unit.queue}")
    lines += [*_limit_lines(core), *_operation_lines(core)]
    return "\n".join([*lines, *_rule_lines(core), "end", ""])


def _limit_lines(core: Core) -> Iterator[str]:
    for unit in core.units.values():
        if unit.dispatch:
            parts = (set(part.ports) <= set(unit.ports) for part in core.units.values())
            mask = sum(1 << number for number, part in enumerate(parts) if part)
            yield f"limit {mask} {unit.dispatch}"


def _operation_lines(core: Core) -> Iterator[str]:
    units = list(core.units)
    for (kind, width, element), row in operation_table(core).items():
        forward = row.latency if row.forward is None else row.forward
        issue = ISSUE.index(row.issue or "any")
        figures = f"{row.latency} {forward} {row.cycles} {row.uops} {row.takes} {issue}"
        yield f"op {kind} {width} {element} {units.index(row.unit or '')} {figures}"


def _rule_lines(core: Core) -> Iterator[str]:
    where = f"core '{core.name}'"
    for number, rule in enumerate(core.rules):
        yield f"rule {rule.distance}"
        for side, on in enumerate((rule.on, rule.after)):
            for kind, width in dict.fromkeys((c, w) for c, w, _ in selected(where, on)):
                yield f"apart {kind} {number} {side} {width}"
