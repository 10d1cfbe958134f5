"""The inventory: two TOML files read as one, strictly validated, edited with minimal changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgekit.host.deploy.inventory import (
    BoardEntry,
    add_board,
    add_boards,
    boards,
    check_place,
    find_board,
    read_project,
    remove_board,
    user_file,
)
from edgekit.host.errors import InputError

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJhgrVpbCFZvm1cBnLFEqLYk6DLK2j7yI0sDHKZZx1lZ"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    return tmp_path / "project"


def write(project: Path, text: str) -> Path:
    file = project / "edgekit.toml"
    file.write_text(text)
    return file


def test_nothing_anywhere(project: Path) -> None:
    assert find_board("a", project) is None
    assert boards(project) == ()
    found = read_project(project)
    assert (found.file, found.model, found.board) == (None, None, "local")


def test_project_is_found_from_below(project: Path) -> None:
    file = write(project, 'model = "m/x.tflite"\nboard = "b"\n[boards.b]\nprofile="a57"\nhost="h"')
    found = read_project(project / "deep" / "er")
    assert (found.file, found.model, found.board) == (file, project / "m/x.tflite", "b")
    assert find_board("b", project / "deep") == BoardEntry("b", "a57", host="h")


def test_every_key(project: Path) -> None:
    write(
        project,
        f"""[boards.b]
        profile = "rv64gcv"
        transport = "ssh"
        host = "10.0.0.7"
        port = 2222
        user = "edge"
        identity = "keys/id"
        host_key = "{KEY}"
        device = "/dev/ttyUSB0"
        baud = 1500000
        threads = 4
        cluster = "a76"
        model = "m.tflite"
        unsigned = true
        folder = "/data/edgekit"
        """,
    )
    assert find_board("b", project) == BoardEntry(
        "b",
        "rv64gcv",
        "ssh",
        "10.0.0.7",
        2222,
        "edge",
        project / "keys/id",
        KEY,
        "/dev/ttyUSB0",
        1_500_000,
        4,
        "a76",
        project / "m.tflite",
        True,
        "/data/edgekit",
    )


def test_transport_follows_from_the_keys(project: Path) -> None:
    write(
        project,
        '''[boards.s]\nprofile="a7"\ndevice="/dev/ttyS0"\n[boards.n]\nprofile="a7"\nhost="h"
        [boards.l]\nprofile="local"\ntransport="local"''',
    )
    assert [b.transport for b in boards(project)] == ["local", "ssh", "serial"]


def test_the_project_overrides_the_user_key_by_key(project: Path) -> None:
    add_board(BoardEntry("b", "a57", host="old", user="me", identity=Path("/k")), user_file())
    add_board(BoardEntry("mine", "a7", host="m"), user_file())
    write(project, '[boards.b]\nprofile = "a72"\nhost = "new"\n')
    found = find_board("b", project)
    assert found == BoardEntry("b", "a72", host="new", user="me", identity=Path("/k"))
    assert [b.name for b in boards(project)] == ["b", "mine"]


@pytest.mark.parametrize(
    "line",
    [
        'host = "elsewhere"',
        'host_key = "ssh-ed25519 AAAA"',
        "port = 2222",
        'user = "root"',
        'identity = "key"',
        'device = "/dev/ttyS9"',
        'transport = "serial"',
        "unsigned = true",
    ],
)
def test_a_project_cannot_move_a_board_that_the_user_pinned(project: Path, line: str) -> None:
    add_board(BoardEntry("b", "a57", host="h", user="me", host_key=KEY), user_file())
    write(project, '[boards.b]\nprofile = "a72"\nhost = "h"\nthreads = 2\n')
    found = find_board("b", project)
    assert found == BoardEntry("b", "a72", host="h", user="me", host_key=KEY, threads=2)
    write(project, f"[boards.b]\n{line}\n")
    with pytest.raises(InputError, match=r"boards\.b\.\w+: expected the value in .*s.toml, wh"):
        find_board("b", project)
    elsewhere = BoardEntry("b", "a57", host="new", host_key=KEY)
    with pytest.raises(InputError, match=r"boards\.b\.host: .* edgekit board add b --global"):
        check_place(elsewhere, project / "edgekit.toml")
    check_place(elsewhere, user_file())
    check_place(BoardEntry("c", "a57", host="new"), project / "edgekit.toml")


def test_files_that_no_person_writes(project: Path) -> None:
    write(project, "a = " + "[" * 5000)
    with pytest.raises(InputError, match=r"edgekit.toml: expected tables of boards, found nested"):
        find_board("b", project)
    write(project, B + "#" * (16 << 20))
    with pytest.raises(InputError, match=r"found: it has [0-9]* bytes, more than 16777216"):
        find_board("b", project)


def test_home_in_paths(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    write(project, '[boards.b]\nprofile="a57"\nhost="h"\nidentity="~/.ssh/id"')
    found = find_board("b", project)
    assert found is not None
    assert found.identity == Path("/home/me/.ssh/id")


B = '[boards.b]\nprofile="a57"\nhost="h"\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("boards = 3", r"edgekit\.toml: expected tables \[boards.NAME\], found 3"),
        ("boards.b = 3", r"expected a table \[boards.b\], found 3"),
        ("colour = 1\n" + B, "expected model or board or boards, found 'colour'"),
        ("[boards.b", "edgekit.toml: expected TOML, found: "),
        (B + "colour = 1", r"boards\.b: expected one of profile, .*; found 'colour'"),
        (B + 'name = "x"', "found 'name'"),
        (B + 'port = "22"', r"boards\.b\.port: expected 1 to 65535, found '22'"),
        (B + "port = true", r"boards\.b\.port: expected 1 to 65535, found True"),
        (B + "port = 70000", r"boards\.b\.port: expected 1 to 65535, found 70000"),
        (B + "threads = 0", r"boards\.b\.threads: expected 1 to 256, found 0"),
        (B + 'folder = "data"', r"boards\.b\.folder: expected \"/\.\.\.\", found 'data'"),
        (B + "cluster = 2", r"boards\.b\.cluster: expected big, little, all, or .*, found 2"),
        (B + 'cluster = "big one"', r"boards\.b\.cluster: expected big, .*, found 'big one'"),
        (B + "user = 7", r'boards\.b\.user: expected "\.\.\.", found 7'),
        (B + 'user = ""', r'boards\.b\.user: expected "\.\.\."'),
        (B + 'unsigned = "yes"', r"boards\.b\.unsigned: expected true or false, found 'yes'"),
        (B + 'transport = "usb"', r"transport: expected ssh, serial or local, found 'usb'"),
        (B + 'transport = "serial"', r'boards\.b: expected device = "\.\.\.", found none'),
        ('[boards.b]\nprofile="a57"', r'boards\.b: expected host = "\.\.\.", found none'),
        ('[boards.b]\nhost="h"', r"boards\.b\.profile: expected one that .*, found none"),
        ('[boards.b]\nhost="h"\nprofile="z80"', r"profile: expected one that .*, found 'z80'"),
    ],
)
def test_mistakes_are_named(project: Path, text: str, message: str) -> None:
    write(project, text)
    with pytest.raises(InputError, match=message) as caught:
        find_board("b", project)
    assert str(project / "edgekit.toml") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mistakes_of_other_boards_do_not_matter(project: Path) -> None:
    write(project, B + "[boards.c]\nport = 0")
    assert find_board("b", project) == BoardEntry("b", "a57", host="h")
    with pytest.raises(InputError, match=r"boards\.c\.port"):
        boards(project)


def test_a_model_is_the_projects(project: Path) -> None:
    user_file().parent.mkdir(parents=True)
    user_file().write_text('model = "x"')
    with pytest.raises(InputError, match=r"boards\.toml: expected boards, found 'model'"):
        find_board("b", project)


@pytest.mark.parametrize("text", ["model = 3", 'board = ""'])
def test_project_settings_are_strings(project: Path, text: str) -> None:
    write(project, text)
    with pytest.raises(InputError, match=r'edgekit\.toml: (model|board): expected "\.\.\."'):
        read_project(project)


COMMENTED = """# The gate's project
model = "m.tflite"  # small

# ours
[boards.gate]
host = "old"   # moved twice
profile = "a76"
user = "pi"

[boards.other] # not ours
profile = "a7"
host = "o"
"""


def test_comments_and_order_survive(project: Path) -> None:
    file = write(project, COMMENTED)
    add_board(BoardEntry("gate", "a76", host="new", host_key=KEY), file)
    text = file.read_text()
    assert text == COMMENTED.replace('"old"', '"new"').replace(
        'user = "pi"\n', f'transport = "ssh"\nhost_key = "{KEY}"\n'
    )


def test_adding_and_removing_leaves_the_rest(project: Path) -> None:
    file = write(project, COMMENTED)
    add_board(BoardEntry("third", "rv64gc", host="t", port=23), file)
    assert find_board("third", project) == BoardEntry("third", "rv64gc", host="t", port=23)
    remove_board("third", file)
    assert file.read_text().rstrip() == COMMENTED.rstrip()
    remove_board("gate", file)
    assert "# not ours" in file.read_text()
    assert [b.name for b in boards(project)] == ["other"]


def test_remove_what_is_not_there(project: Path) -> None:
    file = write(project, COMMENTED)
    with pytest.raises(InputError, match=r"\(gate, other\), found 'none'"):
        remove_board("none", file)
    with pytest.raises(InputError, match=r"\(it has none\), found 'x'"):
        remove_board("x", user_file())


def test_a_linked_file_stays_a_link(project: Path) -> None:
    kept = project / "dotfiles.toml"
    kept.touch(0o600)
    user_file().parent.mkdir(parents=True)
    user_file().symlink_to(kept)
    add_board(BoardEntry("b", "a57", host="h"), user_file())
    assert user_file().is_symlink()
    assert "[boards.b]" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_what_cannot_be_read_back_is_not_written(project: Path) -> None:
    file = project / "edgekit.toml"
    for entry in (
        BoardEntry("a/b", "a57", host="h"),
        BoardEntry("b", "z80", host="h"),
        BoardEntry("b", "a57"),
        BoardEntry("b", "a57", host="h", port=0),
    ):
        with pytest.raises(InputError, match=r"edgekit\.toml: "):
            add_board(entry, file)
    assert not file.exists()


def test_folder_that_cannot_be_written(project: Path) -> None:
    (project / "file").touch()
    with pytest.raises(InputError, match="expected to write it, found: "):
        add_board(BoardEntry("b", "a57", host="h"), project / "file" / "boards.toml")


text = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=20)


@pytest.mark.slow
@given(
    name=st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,20}", fullmatch=True),
    host=text,
    user=st.none() | text,
    port=st.none() | st.integers(1, 65535),
    threads=st.none() | st.integers(1, 256),
    unsigned=st.booleans(),
)
def test_an_added_board_is_found(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    host: str,
    user: str | None,
    port: int | None,
    threads: int | None,
    unsigned: bool,
) -> None:
    folder = tmp_path_factory.mktemp("inventory")
    entry = BoardEntry(name, "a57", "ssh", host, port, user, threads=threads, unsigned=unsigned)
    add_board(entry, folder / "edgekit.toml")
    assert find_board(name, folder) == entry
    add_board(entry, folder / "edgekit.toml")
    assert boards(folder) == (entry,)


def test_labels_are_written_in_one_line_and_read(project: Path) -> None:
    file = project / "edgekit.toml"
    entries = [BoardEntry(f"b{i}", "a57", host=f"h{i}", labels={"site": "lab"}) for i in range(3)]
    add_boards(entries, file)
    assert 'labels = {site = "lab"}' in file.read_text()
    assert boards(project) == tuple(entries)
    add_boards([replace(entries[1], labels={"site": "x", "n": "1"})], file)
    assert [b.labels for b in boards(project)] == [
        {"site": "lab"},
        {"site": "x", "n": "1"},
        {"site": "lab"},
    ]


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ('{ site = "a b" }', r"labels: expected \{ KEY = \"VALUE\" \}"),
        ('{ "a=b" = "x" }', r"labels: expected \{ KEY = \"VALUE\" \}"),
        ("{ site = 3 }", r"labels: expected \{ KEY = \"VALUE\" \}"),
        ('"site"', r"labels: expected \{ KEY = \"VALUE\" \}"),
        ('{ host = "x" }', "other than name, profile, host, transport, .* found 'host'"),
    ],
)
def test_labels_that_cannot_be_selected_by(project: Path, labels: str, found: str) -> None:
    write(project, f'[boards.b]\nprofile = "a57"\nhost = "h"\nlabels = {labels}')
    with pytest.raises(InputError, match=found):
        boards(project)


def test_of_many_boards_all_are_written_or_none(project: Path) -> None:
    file = project / "edgekit.toml"
    good = BoardEntry("a", "a57", host="h")
    with pytest.raises(InputError, match=r"boards.b.profile"):
        add_boards([good, BoardEntry("b", "nosuch", host="h")], file)
    assert not file.exists()
