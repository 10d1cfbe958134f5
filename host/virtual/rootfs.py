"""Builds a board's file systems from packages without executing any code from them."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.debian.architecture import Architecture
from edgekit.host.debian.packages import PackageFiles
from edgekit.host.debian.tools import find_tools, run_tool
from edgekit.host.debian.unpack import unpack

USER = "edge"
PASSWORD = "edge"  # for the console, reachable only from this machine; SSH accepts keys only
# crypt() of PASSWORD, precomputed because Python 3.13 removed the crypt module.
_PASSWORD_HASH = (
    "$6$edgekit$/Fer7GH2CUifQrVx37iBXEpccEl.ur8jgcTUMJsUjERORqxo16RZosOQGPLvEY37NXuj"
    "KNgpujfKSORuArxaa."
)
_GUEST = Path(__file__).parent / "guest"
_HOME_MIB = 1024
_SPARE_MIB = 48  # for byte code and file system overhead
_SECONDS = 300
_APPLETS = (
    "clear",
    "dmesg",
    "hostname",
    "ip",
    "less",
    "login",
    "mount",
    "poweroff",
    "umount",
    "vi",
    "which",
)


def make_tree(root: Path, architecture: Architecture, files: PackageFiles) -> None:
    """Creates the root file system as a folder; `install_keys` adds the keys."""
    for name in ("bin", "sbin", "lib"):
        (root / "usr" / name).mkdir(parents=True)
        (root / name).symlink_to(f"usr/{name}")
    for package in files.root:
        unpack(package, root)
    _create_links(root, architecture)
    _write_accounts(root)
    for name in ("dev", "home", "mnt", "proc", "run", "sys", "tmp", "var/log", "var/tmp"):
        (root / name).mkdir(parents=True, exist_ok=True)
    _write_configuration(root, architecture)


def install_keys(root: Path, host_key: Path, client_public_key: Path) -> None:
    """Installs the board's host key and the client's public key."""
    ssh = root / "etc" / "ssh"
    for source, name in ((host_key, ""), (host_key.with_suffix(".pub"), ".pub")):
        target = ssh / f"ssh_host_ed25519_key{name}"
        target.write_bytes(source.read_bytes())
        target.chmod(0o600)
    (root / "etc" / "edgekit" / "authorized_keys").write_bytes(client_public_key.read_bytes())


def make_root_disk(tree: Path, target: Path) -> None:
    """Creates an ext4 image of a tree, with everything owned by root."""
    size = sum(p.lstat().st_size + 4096 for p in tree.rglob("*") if not p.is_symlink())
    megabytes = size * 21 // 20 // (1 << 20) + _SPARE_MIB
    _make_disk(tree, target, megabytes, ("-O", "^has_journal"))
    names = ["/", *(f"/{path.relative_to(tree)}" for path in sorted(tree.rglob("*")))]
    _set_owner(target, names, 0)


def make_home_disk(work: Path, target: Path) -> None:
    """Creates an empty, sparse ext4 disk for /home with the user's home folder."""
    home = work / USER
    home.mkdir(parents=True)
    home.chmod(0o755)
    # Initialize tables now, so that a new board does not spend its first seconds on them.
    options = ("-N", "16384", "-J", "size=16", "-E", "lazy_itable_init=0,lazy_journal_init=0")
    _make_disk(work, target, _HOME_MIB, options)
    _set_owner(target, ["/", "/lost+found"], 0)
    _set_owner(target, [f"/{USER}"], 1000)


def _make_disk(tree: Path, target: Path, megabytes: int, options: tuple[str, ...]) -> None:
    mke2fs = find_tools(["mke2fs"])["mke2fs"]
    command = [mke2fs, "-q", "-t", "ext4", "-m", "0", *options, "-d", str(tree)]
    command += [str(target), f"{megabytes}M"]
    run_tool(command, what=f"making {target.name}", seconds=_SECONDS)


def _set_owner(disk: Path, names: list[str], owner: int) -> None:
    """Sets owner and group inside an image: an unprivileged user cannot chown files outside of
    it."""
    lines = [
        f'set_inode_field "{name}" {field} {owner}' for name in names for field in ("uid", "gid")
    ]
    debugfs = find_tools(["debugfs"])["debugfs"]
    text = "\n".join([*lines, "quit", ""])
    run_tool(
        [debugfs, "-w", "-f", "-", disk], what=f"making {disk.name}", seconds=_SECONDS, text=text
    )


def _create_links(root: Path, architecture: Architecture) -> None:
    """Creates links that maintainer scripts would have created."""
    libraries = root / "usr" / "lib" / architecture.library_folder
    wanted = [(root / "usr/bin/sh", "dash"), (root / "usr/bin/awk", "mawk")]
    wanted += [
        (libraries / f"lib{name}.so.3", f"{name}/lib{name}.so.3") for name in ("blas", "lapack")
    ]
    for name in _APPLETS:
        wanted.append((root / "usr" / "bin" / name, "busybox"))
    wanted.append((root / "usr" / "sbin" / "init", "../bin/busybox"))
    for link, target in wanted:
        if not link.exists() and not link.is_symlink():
            link.symlink_to(target)


def _write_accounts(root: Path) -> None:
    etc, master = root / "etc", root / "usr" / "share" / "base-passwd"
    passwd = (master / "passwd.master").read_text(encoding="utf-8").replace("root:*:", "root:x:")
    passwd += "sshd:x:105:65534::/run/sshd:/usr/sbin/nologin\n"
    passwd += f"{USER}:x:1000:1000:{USER}:/home/{USER}:/bin/bash\n"
    group = (master / "group.master").read_text(encoding="utf-8") + f"{USER}:x:1000:\n"
    shadow = f"root:*:19000::::::\nsshd:*:19000::::::\n{USER}:{_PASSWORD_HASH}:19000:0:99999:7:::\n"
    for name, text, mode in (
        ("passwd", passwd, 0o644),
        ("group", group, 0o644),
        ("shadow", shadow, 0o600),
    ):
        (etc / name).write_text(text, encoding="utf-8")
        (etc / name).chmod(mode)


def _write_configuration(root: Path, architecture: Architecture) -> None:
    ours = root / "etc" / "edgekit"
    ours.mkdir()
    for name in ("start", "control", "prepare"):
        (ours / name).write_bytes((_GUEST / name).read_bytes())
        (ours / name).chmod(0o755)
    inittab = (_GUEST / "inittab").read_text(encoding="utf-8")
    texts = {
        "inittab": inittab.replace("CONSOLE", architecture.console),
        "hostname": "board\n",
        "hosts": "127.0.0.1 localhost board\n",
        "ssh/sshd_config": (_GUEST / "sshd_config").read_text(encoding="utf-8"),
    }
    for name, text in texts.items():
        path = root / "etc" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
