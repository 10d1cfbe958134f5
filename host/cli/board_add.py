"""`edgekit board add` and `remove`: real boards in the inventory, with pinned host keys."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from edgekit.host.cli import complete
from edgekit.host.cli.options import Json, examples, labels_of
from edgekit.host.errors import AuthenticationError, InputError

if TYPE_CHECKING:
    from edgekit.host.deploy.inventory import BoardEntry

_KEY_SECONDS = 30.0
_SSH_PORT = 22


@dataclass(frozen=True)
class _Trust:
    """How a host key is verified: by this fingerprint, by --yes, or by asking the user."""

    fingerprint: str | None
    yes: bool


def register(group: typer.Typer) -> None:
    """Adds the commands to the group `board`."""
    group.command(
        "add",
        epilog=examples(
            "edgekit board add mypi --host pi@192.0.2.7",
            "edgekit board add mypi --profile rpi5 --host mypi --fingerprint SHA256:...",
            "edgekit board add dev --profile a57 --transport serial --device /dev/ttyUSB0",
        ),
    )(add)
    group.command("remove", epilog=examples("edgekit board remove mypi"))(remove)


Name = Annotated[str, typer.Argument(metavar="NAME", show_default=False, help="Name of the board.")]
Everywhere = Annotated[
    bool,
    typer.Option(
        "--global", help="Write to the user's inventory instead of this project's edgekit.toml."
    ),
]


def _text_option(name: str, shape: str, what: str, completion: Any = None) -> Any:
    return typer.Option(
        name, metavar=shape, show_default=False, help=what, autocompletion=completion
    )


Profile = Annotated[
    str | None,
    _text_option(
        "--profile",
        "PROFILE",
        "Profile of the board (default: detected on it).",
        complete.profiles,
    ),
]
Host = Annotated[
    str | None,
    _text_option(
        "--host", "[USER@]ADDRESS[:PORT]", "Address of the board, or a Host of ~/.ssh/config."
    ),
]
Identity = Annotated[
    Path | None,
    _text_option("--identity", "FILE", "Private key to log in with (default: as ssh chooses)."),
]
Way = Annotated[
    Literal["ssh", "serial"] | None,
    typer.Option(
        "--transport",
        show_default=False,
        help="Connection to use (default: by --host or --device).",
    ),
]
SerialPort = Annotated[
    str | None,
    _text_option("--device", "PORT or URL", "Serial port, as /dev/ttyUSB0 or socket://HOST:PORT."),
]
Baud = Annotated[
    int | None,
    typer.Option(
        "--baud",
        metavar="N",
        min=50,
        show_default=False,
        help="Speed of the serial port (default: 115200).",
    ),
]
User = Annotated[
    str | None, _text_option("--user", "USER", "User to log in as on the serial port.")
]
Threads = Annotated[
    int | None,
    typer.Option(
        "--threads",
        metavar="N",
        min=1,
        max=256,
        show_default=False,
        help="Threads that models run on there (default: the release's).",
    ),
]
Cluster = Annotated[
    str | None,
    _text_option("--cluster", "NAME", "Cores that models run on there (default: the release's)."),
]
Folder = Annotated[
    str | None,
    _text_option("--folder", "PATH", "Folder for edgekit on the board (default: ~/.edgekit)."),
]
Unsigned = Annotated[
    bool,
    typer.Option("--allow-unsigned", help="Let the board accept releases that are not signed."),
]
ReplaceKeys = Annotated[
    bool,
    typer.Option("--replace-keys", help="Let the board trust this machine's signing key only."),
]
Labels = Annotated[
    list[str] | None,
    typer.Option(
        "--label",
        metavar="KEY=VALUE",
        show_default=False,
        help="Label for --select; repeat it for more.",
    ),
]
Fingerprint = Annotated[
    str | None,
    _text_option(
        "--fingerprint", "SHA256:...", "Pin the host key without asking if it has this fingerprint."
    ),
]
Yes = Annotated[
    bool, typer.Option("--yes", help="Pin the host key that the board shows, without asking.")
]


def add(
    name: Name,
    profile: Profile = None,
    host: Host = None,
    identity: Identity = None,
    transport: Way = None,
    device: SerialPort = None,
    baud: Baud = None,
    user: User = None,
    threads: Threads = None,
    cluster: Cluster = None,
    folder: Folder = None,
    unsigned: Unsigned = False,
    replace_keys: ReplaceKeys = False,
    label: Labels = None,
    fingerprint: Fingerprint = None,
    yes: Yes = False,
    everywhere: Everywhere = False,
    as_json: Json = False,
) -> None:
    """Add a real board to the inventory, and pin its host key."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.inventory import add_board, check_board, check_name, check_place
    from edgekit.host.fleet.address import parse_address

    file = inventory_file(everywhere)
    check_name(name, file)
    entry = _find_or_create_entry(name, profile)
    entry = replace(entry, threads=threads or entry.threads, cluster=cluster or entry.cluster)
    entry = replace(entry, folder=folder or entry.folder)
    entry = replace(entry, labels={**entry.labels, **labels_of(label)})
    if unsigned:
        entry = replace(entry, unsigned=True)
    if replace_keys and entry.unsigned:
        raise InputError(
            "--replace-keys: expected a board that checks signatures, found an unsigned one"
        )
    if (transport or ("serial" if device and not host else entry.transport)) == "serial":
        if host or identity or not (device or entry.device):
            raise InputError(
                "--transport serial: expected --device, no --host and no --identity, found "
                "others; use those of one transport"
            )
        entry = replace(
            entry,
            transport="serial",
            device=device or entry.device,
            baud=baud or entry.baud,
            user=user or entry.user,
        )
    else:
        if device or not (host or entry.host):
            raise InputError(
                "--transport ssh: expected --host USER@ADDRESS and no --device, "
                f"found {'--device' if device else 'no --host'}; use the options of one transport"
            )
        entry = replace(entry, transport="ssh", identity=identity or entry.identity)
        if host:
            where = parse_address(host)
            entry = replace(entry, host=where.host, port=where.port, user=where.user)
        entry = replace(entry, host_key=_pinned_key(entry, _Trust(fingerprint, yes)))
    check_board(entry, file)
    check_place(entry, file)
    entry = _join_board(entry, replace_keys)
    add_board(entry, file)
    if as_json:
        emit({"schema": "edgekit.board.add/1", "file": str(file), "board": entry_document(entry)})
        return
    print(f"added    {name} to {file}: {entry.profile} at {place(entry)}")
    print(f"next     edgekit deploy --board {name}")


def remove(name: Name, everywhere: Everywhere = False, as_json: Json = False) -> None:
    """Remove a board from the inventory; what runs there stays."""
    from edgekit.host.cli.output import emit
    from edgekit.host.deploy.inventory import remove_board

    file = inventory_file(everywhere)
    remove_board(name, file)
    if as_json:
        emit({"schema": "edgekit.board.remove/1", "file": str(file), "board": name})
    else:
        print(f"removed  {name} from {file}")


def place(entry: BoardEntry) -> str:
    """Where a board of the inventory is reached."""
    if entry.transport == "local":
        return "this machine"
    if entry.device:
        return f"{entry.device} at {entry.baud} baud"
    user = f"{entry.user}@" if entry.user else ""
    port = f":{entry.port}" if entry.port and entry.port != _SSH_PORT else ""
    return f"{user}{entry.host}{port}"


def entry_document(entry: BoardEntry) -> dict[str, Any]:
    """JSON document of an inventory entry."""
    paths = {key: str(value) for key, value in asdict(entry).items() if isinstance(value, Path)}
    document = asdict(entry) | paths
    return {"name": entry.name, "kind": document.pop("transport"), **document}


def _find_or_create_entry(name: str, profile: str | None) -> BoardEntry:
    """The board's inventory entry, or a blank one. `profile` overrides the entry's profile, which
    is empty if none was named yet."""
    from edgekit.host.deploy.connections import LOCAL
    from edgekit.host.deploy.inventory import BoardEntry, find_board
    from edgekit.kb.targets.board import load_board

    if name == LOCAL:
        raise InputError(f"expected a name for the board, found '{name}', which is this machine")
    if profile is not None:
        load_board(profile)
    known = find_board(name, Path.cwd()) or BoardEntry(name, "")
    return known if profile is None else replace(known, profile=profile)


def _pinned_key(entry: BoardEntry, trust: _Trust) -> str:
    """The host key to pin. AuthenticationError unless it was verified."""
    from edgekit.host.cli.output import note
    from edgekit.host.cli.progress import working
    from edgekit.host.deploy.transport.ssh import fetch_host_key
    from edgekit.host.deploy.transport.ssh_config import user_config
    from edgekit.host.deploy.transport.ssh_keys import parse_host_key

    board, host = entry.name, entry.host
    assert host is not None
    with working(f"board {board}: asking {host} for its host key"):
        line = fetch_host_key(host, entry.port, _KEY_SECONDS, config=user_config())
    key = parse_host_key(line, f"board '{board}'")
    note(f"host key of {host}: {key}")
    if entry.host_key is not None and entry.host_key != line:
        note(f"warning: a different key is pinned now: {_shown_key(entry.host_key)}")
    if trust.fingerprint is not None:
        if trust.fingerprint != key.fingerprint:
            raise AuthenticationError(
                f"board '{board}': expected the host key {trust.fingerprint}, found "
                f"{key.fingerprint}; compare on the board: ssh-keygen -lf "
                "/etc/ssh/ssh_host_ed25519_key.pub"
            )
    elif not trust.yes:
        _confirm_host_key(board, key.fingerprint)
    return line


def _shown_key(line: str) -> str:
    from edgekit.host.deploy.transport.ssh_keys import parse_host_key

    try:
        return str(parse_host_key(line, "pinned"))
    except InputError:
        return f"'{line[:60]}', which is not a key"


def _confirm_host_key(board: str, fingerprint: str) -> None:
    if not sys.stdin.isatty():
        raise AuthenticationError(
            f"board '{board}': expected confirmation of its host key, found no terminal to ask "
            f"on; if it belongs to the board: --fingerprint {fingerprint}"
        )
    print("compare on the board: ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub", file=sys.stderr)
    print("Does it belong to the board? [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise AuthenticationError(
            f"board '{board}': expected its host key to be confirmed, found that it was "
            "not; nothing was added"
        )


def _join_board(entry: BoardEntry, replace_keys: bool) -> BoardEntry:
    """Joins the board and prints what was found on it."""
    from edgekit.host.cli.output import note, warn
    from edgekit.host.cli.progress import stages
    from edgekit.host.deploy.connections import connect_to_entry
    from edgekit.host.fleet.join import join

    board = connect_to_entry(entry)
    with stages(f"board {entry.name}") as tell:
        joined = join(entry, board, tell, replace_keys)
    for text in joined.notes:
        note(text)
    for text in joined.warnings:
        warn(text)
    return joined.entry


def inventory_file(everywhere: bool) -> Path:
    """The inventory file to write: the project's, or the user's for all projects."""
    from edgekit.host.deploy.inventory import PROJECT_FILE, project_file, user_file

    if everywhere:
        return user_file()
    return project_file(Path.cwd()) or Path.cwd() / PROJECT_FILE
