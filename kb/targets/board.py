"""Board profiles: one small TOML file per board, each inheriting from a more general one."""

from __future__ import annotations

import difflib
import functools
import platform
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from edgekit.device.runtime import features
from edgekit.kb.targets.isa import Isa, ProductCosts, costs_over, isa_names, isa_of
from edgekit.kb.targets.timing import TimedCluster, parse_cluster
from edgekit.kb.targets.units import ComputeUnit, NnaUnit, core_unit, parse_nna, parse_unit

LOCAL = "local"  # the machine that edgekit runs on
_SHORTEST_ALIAS = 3
_BETWEEN_WORDS = " -_+.()"
_MEMORY_SIZE = re.compile(r"\W*\b[0-9]+ ?gi?b\b")
_RASPBERRY_PI = re.compile(r"^(?:raspi|rpi|pi)(?=[0-9z]|cm|$)")
CPU = "cpu"  # the unit present on every board
_KINDS = {str: "a text", int: "a whole number, 0 or more", bool: "true or false"}
_TABLES = ("costs", "timing", "units")

FOLDER = Path(__file__).parent / "boards"


@dataclass(frozen=True)
class BoardProfile:
    """The compiler's view of a board. Sizes are in bytes; 0 means unknown.

    - `simd`: the header under device/kernels/simd that kernels are built with.
    - `features`: CPU features (names of /proc/cpuinfo) required by bundles for this board.
    - `extras`: further features of its core, required only by bundles that use them.
    - `vlen_bits`: the RVV register length that kernels are built for.
    - `units`: the compute units that can run operators: those in `compute`, which have speeds, and
      an `nna` with its own parameters. "cpu" is always the first: a core of the fastest cluster.
    - `timing`: clocks and memory of clusters whose cores have a timing model, "cpu" first.
    - `compatible`: names of the board or its chip in device trees.
    - `source`: the source of its sizes.
    - `cpu_class`: the CPUs that share knowledge if no core is named (x86).
    - `in_order`: the core stalls on operands, so kernels load them ahead.
    - `core_profile`: the most general profile of the same core; its virtual board serves both.
    - `costs`: of register tiles on its core, if fitted; else those of its instruction set apply.
    - `inherited`: the inherited platforms with the same instruction set, nearest first.
    """

    name: str
    description: str
    arch: str
    target: str
    cpu: str
    simd: str
    core_profile: str
    inherited: tuple[str, ...] = ()
    core: str = ""
    cpu_class: str = ""
    features: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    in_order: bool = False
    vlen_bits: int = 0
    cores: int = 1
    units: tuple[str, ...] = (CPU,)
    nna: NnaUnit | None = None
    compute: tuple[ComputeUnit, ...] = ()
    timing: tuple[TimedCluster, ...] = ()
    l1d_bytes: int = 32768
    l2_bytes: int = 0
    l3_bytes: int = 0
    memory_bytes: int = 0
    compatible: tuple[str, ...] = ()
    source: str = ""
    abstract: bool = False
    costs: ProductCosts | None = None

    @property
    def isa(self) -> Isa:
        """The properties of its instruction set."""
        return isa_of(self.simd)

    @property
    def computes_half(self) -> bool:
        """True if there are kernels of f16 tensors that run on its core."""
        return self.isa.half is not None and self.isa.half_feature in self.features + self.extras

    @property
    def platform(self) -> str:
        """The key of its knowledge: the core, or the class of an x86 machine."""
        return self.core or self.cpu_class or self.arch

    @property
    def platforms(self) -> tuple[str, ...]:
        """The platforms whose tables apply to it: its own, then those it inherits from."""
        return tuple(dict.fromkeys((self.platform, *self.inherited)))

    @property
    def speeds(self) -> tuple[ComputeUnit, ...]:
        """The units whose work is simulated, except an NNA; starts with a core, even if its speed
        is unknown."""
        if self.compute and self.compute[0].name == CPU:
            return self.compute
        core = core_unit(CPU, self.isa.vl, self.isa.i8.is_dot)
        return (core, *self.compute)


class UnknownBoardError(ValueError):
    """A profile does not exist or cannot be read."""


class ProfileError(UnknownBoardError):
    """The file of a profile is wrong."""


def board_names(folder: Path = FOLDER) -> list[str]:
    """Names of the boards a model can be compiled for, `local` first; `folder` has their files."""
    concrete = (
        n for n in profile_names(folder) if not _read_profile(n, folder).get("abstract", False)
    )
    return [LOCAL, *concrete]


def profile_names(folder: Path = FOLDER) -> list[str]:
    """Names of all profiles with a file in `folder`, including those that only serve as bases."""
    return sorted(path.stem for path in folder.glob("*.toml"))


def load_board(name: str, folder: Path = FOLDER) -> BoardProfile:
    """Loads the profile `name` from `folder`; `local` is the best of edgekit's own x86 or ARM
    profiles that this machine can run. A board's common name does as well: Raspberry Pi 4, pi4."""
    name = _profile_of(name, folder)
    profile = _detect_local() if name == LOCAL else load_profile(name, folder)
    if profile.abstract:
        heirs = [n for n in board_names(folder)[1:] if name in _inheritance_chain(n, folder)]
        raise UnknownBoardError(
            f"expected a board profile, found '{name}', which is only a base for "
            f"{', '.join(heirs) or LOCAL}"
        )
    return profile


def nearest(name: str, known: Iterable[str] | None = None, folder: Path = FOLDER) -> str:
    """Names similar to a wrong one, formatted to be appended to a message; empty if there are none.

    Candidates are `known`, or else the boards in `folder`, which also match by chip and
    description.
    """
    names = _own_names(folder) if known is None else {_normalize_name(n): n for n in known}
    wanted, aliases = _normalize_name(name), _aliases(folder) if known is None else {}
    # Boards with similar aliases may have nothing in common: only a typing error is near.
    typed = difflib.get_close_matches(wanted, aliases, n=1, cutoff=0.85)
    close = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    similar = (*(aliases[key] for key in typed), *(names[key] for key in close))
    found = ", ".join(dict.fromkeys(similar))
    return f" (nearest: {found})" if found else ""


def _aliases(folder: Path) -> dict[str, str]:
    """Profiles by all their normalized names."""
    names = _own_names(folder)
    for profile in profile_names(folder):
        for alias in _read_profile(profile, folder).get("aliases", ()):
            names.setdefault(_normalize_name(alias), profile)
    return names


def _own_names(folder: Path) -> dict[str, str]:
    """Boards by their normalized names, chips, and descriptions without details."""
    names = {_normalize_name(n): n for n in board_names(folder)}
    for board in board_names(folder)[1:]:
        raw = _read_profile(board, folder)
        chips = (chip.partition(",")[2] for chip in raw.get("compatible", ()))
        for alias in (*chips, re.split("[(:]", raw["description"])[0]):
            names.setdefault(_normalize_name(alias), board)
    return names


def _profile_of(name: str, folder: Path) -> str:
    """The profile that a name means: in any case, by an alias, or by the end of one of its own
    names if that end is one board's only (Nano); else the name itself."""
    if name == LOCAL or name in profile_names(folder):
        return name
    wanted, names = _normalize_name(name), _aliases(folder)
    if not all(c.isalnum() or c in _BETWEEN_WORDS for c in name):
        return name
    if wanted in names:
        return names[wanted]
    ends = {board for alias, board in _own_names(folder).items() if alias.endswith(wanted)}
    return ends.pop() if len(ends) == 1 and len(wanted) >= _SHORTEST_ALIAS else name


def _normalize_name(name: str) -> str:
    """A name without case, spaces, signs, the size of the memory and the word model, and with one
    spelling of Raspberry Pi."""
    words = _MEMORY_SIZE.sub("", name.lower()).replace("model", "")
    return _RASPBERRY_PI.sub("raspberrypi", "".join(c for c in words if c.isalnum()))


@functools.cache
def _read_profile(name: str, folder: Path) -> dict[str, Any]:
    path = folder / f"{name}.toml"
    spelled = name.replace("-", "").isalnum()
    if not spelled or not path.is_file():
        if name in profile_names(folder):
            raise ProfileError(
                f"board profile '{name}': expected letters, digits and - in its name, found others"
            )
        near = nearest(name, folder=folder)
        raise UnknownBoardError(f"expected a board profile, found '{name}'{near}")
    try:
        raw = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ProfileError(f"board profile '{name}': {error}") from None
    _check_keys(f"board profile '{name}'", raw)
    return raw


def _check_keys(where: str, raw: dict[str, Any]) -> None:
    """Checks that a file has a description or a base that has one, only known keys, and values of
    their types."""
    kinds = get_type_hints(BoardProfile) | {"inherits": str, "aliases": tuple[str, ...]}
    for key in ("name", "nna", "compute", "core_profile", "inherited"):
        del kinds[key]
    if not {"description", "inherits"} & set(raw):
        raise ProfileError(f"{where}: expected a description, found none")
    if unknown := sorted(set(raw) - set(kinds)):
        known = ", ".join(sorted(kinds))
        raise ProfileError(f"{where}: expected known keys ({known}), found {', '.join(unknown)}")
    for key, value in raw.items():
        if key in _TABLES:
            kind, valid = "a table", isinstance(value, dict)
            valid = valid and (key == "costs" or all(isinstance(t, dict) for t in value.values()))
        elif kinds[key] in _KINDS:
            kind, valid = _KINDS[kinds[key]], type(value) is kinds[key]
            valid = valid and (kinds[key] is not int or value >= 0)
        else:
            kind = "a list of texts"
            valid = isinstance(value, list) and all(isinstance(v, str) for v in value)
        if not valid:
            raise ProfileError(f"{where}: expected {key} to be {kind}, found {value!r}")


def _inheritance_chain(name: str, folder: Path) -> list[str]:
    """A profile and those it inherits from, most general last."""
    chain = [name]
    while base := _read_profile(chain[-1], folder).get("inherits"):
        if base in chain or not (folder / f"{base}.toml").is_file():
            found = "itself" if base in chain else f"'{base}'"
            raise ProfileError(
                f"board profile '{chain[-1]}': expected to inherit from another profile "
                f"({', '.join(profile_names(folder))}), found {found}"
            )
        chain.append(base)
    return chain


def _core_profile(name: str, folder: Path) -> str:
    """The most general profile with the same core that is not merely a base."""
    core = _merge_profile(name, folder).get("core")
    same = [
        n
        for n in _inheritance_chain(name, folder)
        if not _read_profile(n, folder).get("abstract", False)
        and _merge_profile(n, folder).get("core") == core
    ]
    return same[-1] if same else name


def _inherited_platforms(name: str, folder: Path) -> Iterator[str]:
    """Inherited platforms that have the same instruction set."""
    simd = _merge_profile(name, folder)["simd"]
    for merged in (_merge_profile(n, folder) for n in _inheritance_chain(name, folder)[1:]):
        if merged["simd"] == simd:
            yield merged.get("core") or merged.get("cpu_class") or merged["arch"]


def _merge_profile(name: str, folder: Path) -> dict[str, Any]:
    merged: dict[str, Any] = {}
    for each in reversed(_inheritance_chain(name, folder)):
        raw = _read_profile(each, folder)
        tables = {kind: {**merged.get(kind, {})} for kind in ("units", "timing")}
        for own in ("abstract", "aliases", "compatible", "source", "inherits"):
            merged.pop(own, None)
        merged |= raw
        for kind, values in tables.items():
            for unit, table in raw.get(kind, {}).items():
                values[unit] = {**values.get(unit, {}), **table}
            if values:
                merged[kind] = values
    merged.pop("inherits", None)
    return merged


def load_profile(name: str, folder: Path = FOLDER) -> BoardProfile:
    """The profile in `name`.toml of `folder`, which may be only a base for others."""
    merged = _merge_profile(name, folder) | {"name": name}
    merged.pop("aliases", None)
    where = f"board profile '{name}'"
    if missing := [key for key in ("arch", "target", "cpu", "simd") if key not in merged]:
        raise ProfileError(
            f"{where}: expected {', '.join(missing)}, or a profile to inherit from, found none"
        )
    if merged["simd"] not in isa_names():
        known = ", ".join(isa_names())
        raise ProfileError(f"{where}: expected simd to be one of {known}, found '{merged['simd']}'")
    for key in ("features", "extras", "compatible"):
        merged[key] = tuple(merged.get(key, ()))
    merged["core_profile"] = _core_profile(name, folder)
    merged["inherited"] = tuple(_inherited_platforms(name, folder))
    if "costs" in merged:
        merged["costs"] = _parse_costs(where, merged["costs"], merged["simd"])
    merged |= _parse_units(where, merged.get("units", {})) | _parse_timing(
        where, merged.get("timing", {})
    )
    return BoardProfile(**merged)


def _parse_costs(where: str, tables: dict[str, Any], simd: str) -> ProductCosts:
    """The costs of tiles: the profile's, then those of its instruction set."""
    try:
        return costs_over(isa_of(simd).costs, tables)
    except ValueError as error:
        raise ProfileError(f"{where}: costs: {error}") from None


def _parse_units(where: str, tables: dict[str, Any]) -> dict[str, Any]:
    """The fields of BoardProfile that are defined by [units]."""
    try:
        nna = parse_nna(where, tables["nna"]) if "nna" in tables else None
        compute = tuple(parse_unit(where, n, t) for n, t in tables.items() if n != "nna")
    except ValueError as error:
        raise ProfileError(str(error)) from None
    compute = tuple(sorted(compute, key=lambda unit: unit.name != CPU))
    others = [unit.name for unit in compute if unit.name != CPU]
    return {"units": (CPU, *others, *(("nna",) if nna else ())), "nna": nna, "compute": compute}


def _parse_timing(where: str, tables: dict[str, Any]) -> dict[str, Any]:
    """The field of BoardProfile that is defined by [timing]."""
    try:
        clusters = [parse_cluster(where, name, table) for name, table in tables.items()]
    except ValueError as error:
        raise ProfileError(str(error)) from None
    return {"timing": tuple(sorted(clusters, key=lambda cluster: cluster.name != CPU))}


def _detect_local() -> BoardProfile:
    """The first candidate profile whose features and registers this machine has."""
    machine = platform.machine()
    flags = cpu_flags()
    candidates = {
        "x86_64": ("x86-64-v4-amx", "x86-64-v4", "x86-64-v3", "x86-64"),
        "aarch64": ("a76", "generic-aarch64"),
        "armv7l": ("generic-armv7",),
        "riscv64": ("rv64gcv-zvl512b", "rv64gcv-zvl256b", "rv64gcv", "rv64gc"),
    }.get(machine)
    if candidates is None:
        raise UnknownBoardError(f"no board profile for this machine's architecture '{machine}'")
    for name in candidates:
        found = load_profile(name)
        if set(found.features) <= flags and found.vlen_bits <= (features.vlen_bits() or 0):
            return BoardProfile(**{**found.__dict__, "name": LOCAL, "abstract": False})
    raise UnknownBoardError(f"this machine's CPU has none of {', '.join(candidates)}")


def cpu_flags() -> frozenset[str]:
    """Feature names of this machine's CPUs, as reported by the kernel."""
    return features.features()


@dataclass(frozen=True)
class Caches:
    """Bytes of the data caches available to a core; never 0."""

    l1: int
    l2: int
    l3: int


def caches_of(board: BoardProfile) -> Caches:
    """The caches of a profile; unknown sizes are derived from the level below."""
    l2 = board.l2_bytes or 8 * board.l1d_bytes
    return Caches(board.l1d_bytes, l2, board.l3_bytes or 4 * l2)


def last_cache(board: BoardProfile) -> int:
    """Bytes of the last-level cache, as given by the profile or estimated."""
    return board.l3_bytes or caches_of(board).l2
