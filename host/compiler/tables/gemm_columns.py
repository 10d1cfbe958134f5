"""The columns of a table's file (gemm_file.py)."""

from __future__ import annotations

from typing import Literal

import msgspec

from edgekit.host.compiler.costs.methods.operators import Family
from edgekit.kb.features import Packed

SCHEMA = "edgekit.kb.gemm/1"
RADIUS = 100  # default for rows of operators, which is not written


class SequenceColumns(msgspec.Struct, forbid_unknown_fields=True):
    m: list[int]
    k: list[int]
    n: list[int]
    scale: list[int]
    tie: Literal["low", "high"]


class MethodColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A block of 0 is unlimited."""

    mc: int
    kc: int
    nc: int
    packs: Literal["", "a", "b", "ab"]
    mr: int
    nr: int
    split: Literal["m", "n"] = "m"


class GroupColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """An empty `platform` is the first of the file's platforms. `radius` and `relaxes` are those of
    rows that have none of their own."""

    dtype: str
    threads: int
    packed: Packed
    source: str
    cpu: str = ""
    platform: str = ""
    radius: int = 0
    relaxes: Literal[0, 1] = 1


class RowColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A `method` of 0 is the analytic one, another number its position, from 1, in the file's
    `methods`. A `radius` of 0 means that the method is valid for its entire key, and other zeros
    are unknown values; `relaxes` is 0 or 1."""

    m: int
    k: int
    n: int
    method: MethodColumns | int = 0
    history_rows: int = 0
    gflops: float = 0.0
    ratio: float = 1.0
    radius: int | None = None
    relaxes: Literal[0, 1] | None = None


class OperatorMethodColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """0 for attributes that a family does not have."""

    mr: int
    nr: int
    split: Literal["m", "n"] = "m"
    family: Family | None = None  # default: depthwise for depthwise forms, else in_place
    kc: int = 0
    members: int = 1
    band: int | None = None


class OperatorGroupColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """As `GroupColumns`."""

    dtype: str
    threads: int
    source: str
    platform: str = ""


class OperatorColumns(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """For 0, see `RowColumns`."""

    form: str
    m: int
    k: int
    n: int
    method: OperatorMethodColumns | int = 0
    ratio: float = 1.0
    radius: int = RADIUS


def field_names(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(field.name for field in msgspec.structs.fields(kind))


class TableFile(msgspec.Struct, forbid_unknown_fields=True):
    platforms: list[str]
    sequences: SequenceColumns
    priority: list[Literal["scale", "m", "n", "k"]]
    groups: list[tuple[msgspec.Raw, list[msgspec.Raw]]]
    group_columns: tuple[str, ...] = field_names(GroupColumns)
    columns: tuple[str, ...] = field_names(RowColumns)
    operator_groups: list[tuple[msgspec.Raw, list[msgspec.Raw]]] = []
    operator_group_columns: tuple[str, ...] = field_names(OperatorGroupColumns)
    operator_columns: tuple[str, ...] = field_names(OperatorColumns)
    operator_sequences: SequenceColumns | None = None  # None: the same
    methods: list[MethodColumns] = []  # of several rows
    operator_methods: list[OperatorMethodColumns] = []
    schema: str = SCHEMA
