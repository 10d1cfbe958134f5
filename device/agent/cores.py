"""The CPU cores of a board, by the names that board profiles use."""

from __future__ import annotations

from typing import Dict, Tuple

_ARM_LTD = "0x41"
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
}


def core_names(cpuinfo: str) -> Tuple[str, ...]:
    """Each kind of core that /proc/cpuinfo lists, once, in order; empty if it names none.

    ARM: cortex-a57; RISC-V: the `uarch` line without its variant (sifive-u74); x86: model name.
    """
    found: Dict[str, None] = {}
    for block in cpuinfo.split("\n\n"):
        lines = (line.partition(":") for line in block.splitlines())
        name = _core({key.strip(): value.strip() for key, _, value in lines})
        if name:
            found[name] = None
    return tuple(found)


def _core(facts: Dict[str, str]) -> str:
    if "CPU part" in facts:
        maker, part = facts.get("CPU implementer", ""), facts["CPU part"]
        known = ARM_PARTS.get(part) if maker == _ARM_LTD else None
        return known or f"implementer {maker} part {part}"
    if "uarch" in facts:
        maker, _, core = facts["uarch"].partition(",")
        return "-".join(filter(None, (maker, core.partition("-")[0])))
    return facts.get("model name", "")
