"""The inventory of boards: edgekit.toml of a project, layered over the user's own file.

    model = "models/face.tflite"        # default model of commands (project only)
    board = "gate"

    [boards.gate]
    profile = "a76"
    host = "gate.example"               # or an alias of ~/.ssh/config
    host_key = "ssh-ed25519 AAAA..."
    labels = { site = "lab" }           # matched by `--select site=lab`

Rewriting a file keeps comments and order. A board in both files is one board: each key in the
project's table overrides the user's. The exception: if the user's file pins a host key or a port, a
project, which may be someone else's, cannot redirect the board elsewhere.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_type_hints

import msgspec
from msgspec import Meta

from edgekit.host.common.files import atomic_write, read_file
from edgekit.host.common.paths import config_folder
from edgekit.host.errors import InputError
from edgekit.kb.decoding import convert
from edgekit.kb.targets.board import board_names, nearest

PROJECT_FILE = "edgekit.toml"
USER_FILE = "boards.toml"
DEFAULT_BAUD = 115200
HOME_FOLDER = "~/.edgekit"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PATHS = ("identity", "model")  # relative to the file that contains them
_PINS = ("host_key", "device")
_PLACE = (
    "transport",
    "host",
    "port",
    "user",
    "identity",
    "host_key",
    "device",
    "unsigned",
    "folder",
)
_LARGEST = 16 << 20  # bytes of a file: 10,000 boards with RSA keys take 8 MB


_Text = Annotated[str, Meta(min_length=1, description='"..."')]
_File = Annotated[Path, Meta(description='"..."')]
_Port = Annotated[int, Meta(ge=1, le=65535, description="1 to 65535")]
_Baud = Annotated[int, Meta(ge=50, le=10_000_000, description="50 to 10000000")]
_Threads = Annotated[int, Meta(ge=1, le=256, description="1 to 256")]
_Cluster = Annotated[
    str,
    Meta(
        pattern=r"^[A-Za-z0-9-]{1,32}(\+[A-Za-z0-9-]{1,32}){0,3}$",
        description="big, little, all, or a kind of core such as a76",
    ),
]
_Folder = Annotated[str, Meta(pattern=r"^~?/[^\x00-\x1f\x7f]{1,999}$", description='"/..."')]
_Flag = Annotated[bool, Meta(description="true or false")]
_LABEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
_LabelText = Annotated[str, Meta(pattern=_LABEL)]
_Labels = Annotated[
    dict[_LabelText, _LabelText],
    Meta(description="{ KEY = \"VALUE\" } of letters, digits, '.', '_' and '-'"),
]
_Transport = Annotated[Literal["ssh", "serial", "local"], Meta(description="ssh, serial or local")]


@dataclass(frozen=True)
class BoardEntry:
    """A board; fields that are None fall back to the ssh config, the profile or a default.

    `host_key` is the pinned line, `device` a serial port or URL. `threads` is the default number of
    threads and `cluster` the cores they run on. `unsigned`: the board was enrolled to accept
    unsigned bundles. `folder` is edgekit's on the
    board. `labels` are the user's, for grouping boards.
    """

    name: str
    profile: _Text
    transport: _Transport = "ssh"
    host: _Text | None = None
    port: _Port | None = None
    user: _Text | None = None
    identity: _File | None = None
    host_key: _Text | None = None
    device: _Text | None = None
    baud: _Baud = DEFAULT_BAUD
    threads: _Threads | None = None
    cluster: _Cluster | None = None
    model: _File | None = None
    unsigned: _Flag = False
    folder: _Folder = HOME_FOLDER
    labels: _Labels = field(default_factory=dict)

    def facts(self) -> dict[str, str]:
        """Returns the properties that can select the board."""
        fixed = {"name": self.name, "profile": self.profile, "transport": self.transport}
        host = {"host": self.host} if self.host else {}
        return {"type": self.profile, **self.labels, **fixed, **host}


FIXED = ("name", "profile", "host", "transport")  # selectable properties other than labels


@dataclass(frozen=True)
class Project:
    """The top-level settings of edgekit.toml; `file` is None if there is none."""

    file: Path | None = None
    model: Path | None = None
    board: str = "local"


@dataclass(frozen=True)
class _Defaults:
    """The top-level keys of a project file."""

    model: _Text | None = None
    board: _Text = "local"


_Keys = TypeVar("_Keys", BoardEntry, _Defaults)


def read_project(folder: Path) -> Project:
    """Reads the project that contains `folder`; InputError names the file and key that is wrong."""
    file = project_file(folder)
    if file is None:
        return Project()
    raw = _read(file)
    found = _convert_table(file, "", raw, _Defaults)
    return Project(file, file.parent / found.model if found.model else None, found.board)


def project_file(folder: Path) -> Path | None:
    """Returns edgekit.toml in `folder` or the nearest parent folder."""
    here = folder.absolute()
    return next((f for p in (here, *here.parents) if (f := p / PROJECT_FILE).exists()), None)


def user_file() -> Path:
    """Returns the path of the user's own inventory; it need not exist."""
    return config_folder() / USER_FILE


def boards(project_folder: Path) -> tuple[BoardEntry, ...]:
    """Returns all boards, by name."""
    tables = _load_tables(project_folder)
    return tuple(_parse_entry(name, *tables[name]) for name in sorted(tables))


def find_board(name: str, project_folder: Path) -> BoardEntry | None:
    """Returns the board of that name; ignores errors in other boards' entries."""
    found = _load_tables(project_folder).get(name)
    return None if found is None else _parse_entry(name, *found)


def add_board(entry: BoardEntry, file: Path) -> None:
    """Adds a board to `file`, creating the file if needed; overwrites keys of an existing entry."""
    add_boards((entry,), file)


def add_boards(entries: Sequence[BoardEntry], file: Path) -> None:
    """Adds boards to `file` like `add_board`, all or nothing."""
    import tomlkit

    for entry in entries:
        _parse_entry(entry.name, file, _non_default_values(entry))
    document = _load_document(file)
    if "boards" not in document:
        document["boards"] = tomlkit.table(is_super_table=True)
    tables: Any = document["boards"]
    for entry in entries:
        if entry.name not in tables:
            tables[entry.name] = tomlkit.table()
        table, values = tables[entry.name], _non_default_values(entry)
        for key in [key for key in table if key not in values]:
            del table[key]
        for key, value in values.items():
            if table.get(key) != value:
                table[key] = _inline_table(value) if isinstance(value, dict) else value
    _write(file, tomlkit.dumps(document))


def _inline_table(labels: Mapping[str, str]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    table.update(labels)
    return table


def remove_board(name: str, file: Path) -> None:
    """Removes a board from `file`; InputError if it is missing."""
    import tomlkit

    document = _load_document(file)
    tables: Any = document.get("boards", {})
    if name not in tables:
        known = ", ".join(sorted(tables)) or "it has none"
        raise InputError(
            f"{file}: expected one of its boards ({known}), found '{name}'; list all: "
            "edgekit boards"
        )
    del tables[name]
    if not tables:
        del document["boards"]
    _write(file, tomlkit.dumps(document))


def _load_tables(project_folder: Path) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Returns each board's keys, and the last file that names it."""
    found: dict[str, tuple[Path, dict[str, Any]]] = {}
    for file in (user_file(), project_file(project_folder)):
        if file is None or not file.exists():
            continue
        for name, table in _read(file).get("boards", {}).items():
            absolute = _resolve_paths(file, table)
            if name in found:
                _check_same_place(file, name, absolute, found[name][1])
                absolute = found[name][1] | absolute
            found[name] = (file, absolute)
    return found


def check_name(name: str, file: Path) -> None:
    """InputError if `file` may not have a board of that name."""
    if not _NAME.fullmatch(name):
        raise InputError(
            f"{file}: expected a board's name of letters, digits, '.', '_' and '-', found '{name}'"
        )


def check_board(entry: BoardEntry, file: Path) -> None:
    """InputError if `entry` is not a valid board of `file`; an unknown profile may be empty."""
    _parse_entry(
        entry.name,
        file,
        _non_default_values(entry) | ({} if entry.profile else {"profile": "local"}),
    )


def check_place(entry: BoardEntry, file: Path) -> None:
    """InputError if `entry` may not be in `file`: the user's file pins the board to another
    address."""
    users = user_file()
    if file != users and users.exists():
        table = _read(users).get("boards", {}).get(entry.name, {})
        _check_same_place(
            file, entry.name, _non_default_values(entry), _resolve_paths(users, table)
        )


def _check_same_place(
    file: Path, name: str, table: Mapping[str, Any], users: Mapping[str, Any]
) -> None:
    if not any(key in users for key in _PINS):
        return
    known = {**users, "transport": _transport_kind(users)}
    for key in _PLACE:
        if key in table and table[key] != known.get(key):
            raise InputError(
                f"{file}: boards.{name}.{key}: expected the value in {user_file()}, which pins "
                f"this board, found {table[key]!r}; rename the project's board, or pin it "
                f"again for all projects: edgekit board add {name} --global"
            )


def _read(file: Path) -> dict[str, Any]:
    """Reads the file and checks its top-level keys; boards are checked when they are used."""
    raw = _parse_toml(file)
    known = ("boards",) if file.name == USER_FILE else ("model", "board", "boards")
    for key, value in raw.items():
        if key not in known:
            raise InputError(f"{file}: expected {' or '.join(known)}, found '{key}'")
        if key == "boards" and not isinstance(value, dict):
            raise InputError(f"{file}: expected tables [boards.NAME], found {value!r}")
    for name, table in raw.get("boards", {}).items():
        if not isinstance(table, dict):
            raise InputError(f"{file}: expected a table [boards.{name}], found {table!r}")
    return raw


def _parse_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_file(file, _LARGEST).decode())
    except OSError as error:
        raise InputError(f"{file}: expected a readable file, found: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"{file}: expected TOML, found: {error}") from None
    except RecursionError:
        raise InputError(f"{file}: expected tables of boards, found nested ones") from None


def _resolve_paths(file: Path, table: dict[str, Any]) -> dict[str, Any]:
    paths = {
        key: str(file.parent / Path(table[key]).expanduser())
        for key in _PATHS
        if isinstance(table.get(key), str) and table[key]
    }
    return table | paths


def _parse_entry(name: str, file: Path, table: Mapping[str, Any]) -> BoardEntry:
    """Parses a board's table; InputError names the first invalid key."""
    check_name(name, file)
    at = f"boards.{name}"
    known = [each.name for each in fields(BoardEntry) if each.name != "name"]
    for key in table:
        if key not in known:
            raise InputError(f"{file}: {at}: expected one of {', '.join(known)}; found '{key}'")
    given = {"name": name, "profile": "none", "transport": _transport_kind(table), **table}
    entry = _convert_table(file, at, given, BoardEntry)
    if taken := [key for key in entry.labels if key in FIXED]:
        raise InputError(
            f"{file}: {at}.labels: expected labels other than {', '.join(FIXED)}, which every "
            f"board has, found '{taken[0]}'; rename it"
        )
    if "profile" not in table or entry.profile not in board_names():
        found = f"'{entry.profile}'{nearest(entry.profile)}" if "profile" in table else "none"
        raise InputError(
            f"{file}: {at}.profile: expected one that `edgekit boards` lists, found {found}"
        )
    needed = {"ssh": "host", "serial": "device"}.get(entry.transport)
    if needed and needed not in table:
        raise InputError(f'{file}: {at}: expected {needed} = "...", found none')
    return entry


def _transport_kind(table: Mapping[str, Any]) -> Any:
    if "transport" in table:
        return table["transport"]
    return "serial" if "device" in table and "host" not in table else "ssh"


def _convert_table(file: Path, at: str, table: Mapping[str, Any], kind: type[_Keys]) -> _Keys:
    """Converts a table to `kind`; InputError locates the first invalid value in the file."""
    try:
        return convert(table, kind, _decode_path)
    except msgspec.ValidationError as error:
        key = str(error).rpartition("$.")[2].rstrip("`").partition("[")[0]
        where = ".".join(filter(None, (at, key)))
        expected = _describe_expected(kind, key)
        raise InputError(f"{file}: {where}: expected {expected}, found {table[key]!r}") from None


def _decode_path(kind: type, value: object) -> Path:
    if kind is not Path or not isinstance(value, str) or not value:
        raise ValueError("no path")
    return Path(value)


def _describe_expected(kind: type, key: str) -> str:
    hint: Any = get_type_hints(kind, include_extras=True)[key]
    metas = (m for part in (hint, *get_args(hint)) for m in getattr(part, "__metadata__", ()))
    return next(str(m.description) for m in metas if isinstance(m, Meta))


def _non_default_values(entry: BoardEntry) -> dict[str, Any]:
    """Returns the keys that differ from their defaults."""
    values: dict[str, Any] = {}
    for each in fields(entry):
        value = getattr(entry, each.name)
        default = {} if each.default is MISSING else each.default
        if each.name == "name" or (value == default and each.name != "transport"):
            continue
        values[each.name] = str(value) if isinstance(value, Path) else value
    return values


def _load_document(file: Path) -> Any:
    import tomlkit

    if not file.exists():
        return tomlkit.document()
    _read(file)  # for its one-line errors
    return tomlkit.parse(file.read_text(encoding="utf-8"))


def _write(file: Path, text: str) -> None:
    """Replaces the file atomically, so that an interruption leaves the old one."""
    try:
        file.resolve().parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, text.encode())
    except OSError as error:
        raise InputError(f"{file}: expected to write it, found: {error.strerror}") from None
