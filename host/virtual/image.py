"""Images of boards: kernel, initial RAM disk, disks and keys, built once and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from edgekit.host import debian
from edgekit.host.common.files import locked
from edgekit.host.debian.architecture import Architecture
from edgekit.host.debian.packages import PackageStore, boards_cache
from edgekit.host.debian.tools import BoardToolError, find_tools, run_tool
from edgekit.host.debian.unpack import unpack
from edgekit.host.virtual import rootfs
from edgekit.host.virtual.initrd import initrd
from edgekit.host.virtual.qemu import Drive, QemuMachine, prepare_image
from edgekit.host.virtual.types import OnStep

_DEBIAN = Path(debian.__path__[0])
_RECIPE = (
    *(Path(__file__).parent / name for name in ("guest", "image.py", "initrd.py", "rootfs.py")),
    *(_DEBIAN / name for name in ("architecture.py", "packages.py", "unpack.py")),
)
_BUILDERS = ("apt-get", "debugfs", "dpkg-deb", "mke2fs", "ssh-keygen", "tar")
_KEYGEN_SECONDS = 30
_KEPT_SECONDS = 30 * 86400.0


@dataclass(frozen=True)
class Image:
    """The files a board boots from. The disks are never written; `states` holds saved machines."""

    architecture: Architecture
    folder: Path

    @property
    def kernel(self) -> Path:
        return self.folder / "kernel"

    @property
    def initrd(self) -> Path:
        return self.folder / "initrd"

    @property
    def root_disk(self) -> Path:
        return self.folder / "root.ext4"

    @property
    def home_disk(self) -> Path:
        return self.folder / "home.ext4"

    @property
    def identity(self) -> Path:
        """The private key for logging in to boards of this image."""
        return self.folder / "client_key"

    @property
    def states(self) -> Path:
        return self.folder / "states"

    def host_key(self) -> str:
        """The host public key of the boards, as `type base64`."""
        words = (self.folder / "host_key.pub").read_text(encoding="ascii").split()
        return " ".join(words[:2])


def ensure_image(architecture: Architecture, mirror: str | None, on_step: OnStep) -> Image:
    """The image of an architecture, built if it is not in the cache for the current recipe.

    The first build takes about a minute. An interrupted build leaves nothing that could be mistaken
    for an image; concurrent builds are serialized.
    """
    cache = boards_cache()
    image = Image(architecture, cache / f"{architecture.label}-{recipe_hash()}")
    if image.folder.is_dir():
        os.utime(image.folder)
        return image
    cache.mkdir(parents=True, exist_ok=True)
    find_tools(_BUILDERS)
    with locked(cache / f"{architecture.label}.lock"):
        if not image.folder.is_dir():
            _remove_leftovers(cache, architecture)
            _remove_old(cache, architecture, time.time() - _KEPT_SECONDS)
            work = Path(tempfile.mkdtemp(prefix=f".{architecture.label}-", dir=cache))
            try:
                _build_image(Image(architecture, work), cache / "packages", mirror, on_step)
                work.rename(image.folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return image


def recipe_hash() -> str:
    """16 hex digits over everything that determines an image's content, except package versions."""
    digest = hashlib.sha256()
    for path in _RECIPE:
        for file in sorted(path.iterdir()) if path.is_dir() else [path]:
            digest.update(f"{file.name}\0{file.stat().st_size}\0".encode())
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


def _remove_leftovers(cache: Path, architecture: Architecture) -> None:
    """Deletes remains of a killed build; the caller holds the lock, so no build is running."""
    for path in cache.glob(f".{architecture.label}-*"):
        shutil.rmtree(path, ignore_errors=True)


def _remove_old(cache: Path, architecture: Architecture, before: float) -> None:
    """Deletes images of older recipes that were not used recently; each is 300 MB."""
    for path in cache.glob(f"{architecture.label}-*"):
        if path.stat().st_mtime < before:
            shutil.rmtree(path, ignore_errors=True)


def _build_image(image: Image, packages: Path, mirror: str | None, on_step: OnStep) -> None:
    architecture, work = image.architecture, image.folder
    on_step("packages")
    store = PackageStore(packages / architecture.label, architecture, mirror)
    store.update()
    files = store.fetch()
    on_step("root file system")
    tree = work / "tree"
    tree.mkdir(mode=0o755)
    rootfs.make_tree(tree, architecture, files)
    _make_key(work / "host_key", "board")
    _make_key(work / "client_key", "edgekit")
    rootfs.install_keys(tree, work / "host_key", work / "client_key.pub")
    on_step("kernel")
    _make_kernel(image, files.kernel, (tree / "usr/bin/busybox").read_bytes())
    on_step("disks")
    rootfs.make_root_disk(tree, image.root_disk)
    rootfs.make_home_disk(work / "home", image.home_disk)
    shutil.rmtree(tree)
    shutil.rmtree(work / "home")
    (work / "host_key").unlink()  # it is on the disk image; no copy is needed
    on_step("byte code")
    machine = QemuMachine(architecture, image.kernel, image.initrd, Drive(str(image.root_disk)))
    prepare_image(machine, work / "prepare.log")
    image.states.mkdir()
    work.chmod(0o700)


def _make_kernel(image: Image, package: Path, busybox: bytes) -> None:
    tree = image.folder / "kernel-tree"
    tree.mkdir()
    unpack(package, tree)
    kernels = sorted(tree.glob("boot/vmlinu[xz]-*"))
    modules = sorted(tree.glob("lib/modules/*")) or sorted(tree.glob("usr/lib/modules/*"))
    if not kernels or not modules:
        raise BoardToolError(
            f"{package.name}: expected a kernel and its modules, found none; try another --mirror"
        )
    shutil.copyfile(kernels[0], image.kernel)
    init = (Path(__file__).parent / "guest" / "initrd-init").read_bytes()
    image.initrd.write_bytes(initrd(busybox, init, modules[0]))
    shutil.rmtree(tree)


def _make_key(target: Path, comment: str) -> None:
    keygen = find_tools(["ssh-keygen"])["ssh-keygen"]
    command = [keygen, "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(target)]
    run_tool(command, what="making keys", seconds=_KEYGEN_SECONDS)
