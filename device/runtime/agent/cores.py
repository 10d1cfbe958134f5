"""The board's CPU core types, by the names used in board profiles."""

from __future__ import annotations

from typing import Dict, Iterator, Tuple

ARM_LTD = "0x41"
ARM_PARTS = {
    "0xc07": "cortex-a7",
    "0xc09": "cortex-a9",
    "0xc0f": "cortex-a15",
    "0xd03": "cortex-a53",
    "0xd04": "cortex-a35",
    "0xd05": "cortex-a55",
    "0xd07": "cortex-a57",
    "0xd08": "cortex-a72",
    "0xd09": "cortex-a73",
    "0xd0a": "cortex-a75",
    "0xd0b": "cortex-a76",
    "0xd0c": "neoverse-n1",
    "0xd0d": "cortex-a77",
    "0xd41": "cortex-a78",
    "0xd42": "cortex-a78ae",
    "0xd46": "cortex-a510",
    "0xd47": "cortex-a710",
    "0xd80": "cortex-a520",
    "0xd81": "cortex-a720",
}
IN_ORDER = frozenset(
    ("cortex-a7", "cortex-a35", "cortex-a53", "cortex-a55", "cortex-a510", "cortex-a520")
)


def core_names(cpuinfo: str) -> Tuple[str, ...]:
    """Returns the distinct core types in /proc/cpuinfo, in order; empty if it names none.

    ARM: cortex-a57; RISC-V: the `uarch` line without its variant (sifive-u74); x86: model name.
    """
    return tuple(dict.fromkeys(filter(None, map(_core_name, _parse_blocks(cpuinfo)))))


def core_kinds(cpuinfo: str) -> Dict[int, str]:
    """Returns the type of each core in /proc/cpuinfo by core number; "" where it names none."""
    blocks = ((facts.get("processor", ""), facts) for facts in _parse_blocks(cpuinfo))
    return {int(number): _core_name(facts) for number, facts in blocks if number.isdigit()}


def _parse_blocks(cpuinfo: str) -> Iterator[Dict[str, str]]:
    """Parses each block: it describes one core, or all of them."""
    for block in cpuinfo.split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        yield {key.strip(): value.strip() for key, _, value in lines}


def _core_name(facts: Dict[str, str]) -> str:
    if "CPU part" in facts:
        maker, part = facts.get("CPU implementer", ""), facts["CPU part"]
        known = ARM_PARTS.get(part) if maker == ARM_LTD else None
        return known or f"implementer {maker} part {part}"
    if "uarch" in facts:
        maker, _, core = facts["uarch"].partition(",")
        return "-".join(filter(None, (maker, core.partition("-")[0])))
    return facts.get("model name", "")
