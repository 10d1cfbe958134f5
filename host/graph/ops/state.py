"""Variables that live between runs; `state` names an entry of `Graph.states`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from edgekit.host.graph.types import Operator


@dataclass(frozen=True)
class ReadState(Operator):
    """No inputs; one output with the state's shape and dtype."""

    kind: ClassVar[str] = "read_state"
    state: str = ""


@dataclass(frozen=True)
class WriteState(Operator):
    """ins: the new value; no outputs."""

    kind: ClassVar[str] = "write_state"
    state: str = ""
