"""Types that several threads decode for the first time at once."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from edgekit.kb.decoding import convert, decode_json

# msgspec alone ends each of these runs with SIGSEGV.
_MANY = """
import sys, threading
from dataclasses import make_dataclass
from edgekit.kb.decoding import convert, decode_json
sys.setswitchinterval(1e-6)
for turn in range(40):
    leaf = {f"a{i}": i for i in range(30)}
    Leaf = make_dataclass("Leaf", [(name, int) for name in leaf])
    middle = {f"b{i}": leaf for i in range(8)}
    Middle = make_dataclass("Middle", [(name, Leaf) for name in middle])
    top = {f"c{i}": middle for i in range(8)}
    Top = make_dataclass("Top", [(name, Middle) for name in top])
    begin, ends = threading.Barrier(6), []
    def work():
        begin.wait()
        ends.append(convert(top, Top).c7.b7.a29 + decode_json(b'{"a0": 0}', dict[str, int])["a0"])
    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ends == [29] * 6
"""


def test_threads_may_meet_at_the_first_use_of_a_type() -> None:
    done = subprocess.run([sys.executable, "-c", _MANY], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError):
        convert({"a": "x"}, dict[str, int])
    with pytest.raises(msgspec.DecodeError):
        decode_json(b"{", dict[str, int])
