"""Constants shared by C and Python: device/runtime/kernel_facts.py is their single source."""

from __future__ import annotations

import re

from edgekit.device.runtime import kernel_facts
from edgekit.host.compiler.costs.methods import rule
from edgekit.host.compiler.toolchain.zig import kernels_folder

_FACTS = sorted(name for name in vars(kernel_facts) if name.isupper())


def _sources() -> str:
    files = (p for p in kernels_folder().rglob("*") if p.suffix in (".c", ".h"))
    return "\n".join(p.read_text() for p in files)


def test_every_fact_is_a_whole_number_that_some_kernel_uses():
    used = set(re.findall(r"\bEK_([A-Z0-9_]+)\b", _sources()))
    assert [name for name in _FACTS if name not in used] == []
    assert {type(getattr(kernel_facts, name)) for name in _FACTS} == {int}


def test_no_kernel_tells_a_fact_again():
    defined = set(re.findall(r"^\s*#\s*define\s+EK_([A-Z0-9_]+)\b", _sources(), re.MULTILINE))
    assert defined.isdisjoint(_FACTS)


def test_every_number_of_the_analytic_rule_is_one_that_its_form_in_c_uses():
    parts = (kernels_folder() / "gemm").glob("default*.[ch]")
    text = "\n".join(part.read_text() for part in parts)
    numbers = {name for name in vars(rule) if name.isupper()}
    assert set(re.findall(r"\bRULE_([A-Z_]+)\b", text)) == numbers
