"""The package as users get it: wheel, wheel from sdist, editable. Built without network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import numpy as np
import pytest

from edgekit.host.common.paths import DISTRIBUTION
from tests.support.compiler_cache import home_with_shared_cache

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PACKAGES = ("host", "device", "kb")
IMPORTS = "import edgekit.host, edgekit.device, edgekit.kb; print(edgekit.host.__file__)"


def run(*command: str | Path, cwd: Path, **variables: str) -> str:
    # Without PYTHONPATH: what is imported must be what is installed.
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | variables
    done = subprocess.run(command, cwd=cwd, env=clean, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def tracked_files() -> set[str]:
    """Files of the packages that git knows, as they must be in the wheel."""
    listed = run("git", "ls-files", "-z", "--", *PACKAGES, cwd=ROOT).split("\0")
    return {f"edgekit/{name}" for name in listed if name and (ROOT / name).exists()}


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tracked files: building must neither need git nor leave anything behind."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in run("git", "ls-files", "-z", cwd=ROOT).split("\0"):
        source = ROOT / name
        if name and not name.startswith(("models/", "tests/")) and source.exists():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target, follow_symlinks=False)
    return folder


def build(kind: str, source: Path, out: Path) -> Path:
    run(sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", out, cwd=source)
    (built,) = out.iterdir()
    return built


def packaged_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {n for n in archive.namelist() if ".dist-info/" not in n}


@pytest.fixture(scope="module")
def wheel(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", checkout, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def sdist(checkout: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", checkout, tmp_path_factory.mktemp("sdist"))


def bare_python(folder: Path) -> Path:
    """A fresh environment that sees this one's dependencies, but not its editable edgekit."""
    venv.create(folder, with_pip=False, symlinks=True)
    (site,) = (folder / "lib").glob("python*/site-packages")
    # A .pth file adds a folder, but not what .pth files in that folder add.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin" / "python"


def install(python: Path, *what: str | Path) -> None:
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    offline = ("--no-deps", "--no-index", "--no-build-isolation", "--disable-pip-version-check")
    run(*pip, *offline, "--no-compile", *what, cwd=ROOT)


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the wheel."""
    python = bare_python(tmp_path_factory.mktemp("installed"))
    install(python, wheel)
    return python


def test_wheel_holds_exactly_the_tree(wheel: Path) -> None:
    assert packaged_files(wheel) == tracked_files()


def test_wheel_from_sdist_is_the_same(sdist: Path, wheel: Path, tmp_path: Path) -> None:
    shutil.unpack_archive(sdist, tmp_path / "source")
    (source,) = (tmp_path / "source").iterdir()
    rebuilt = build("wheel", source, tmp_path / "wheel")
    assert rebuilt.read_bytes() == wheel.read_bytes()


def test_sdist_leaves_out_what_is_not_the_package(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        tops = {Path(name).parts[1] for name in archive.getnames()}
    assert {"host", "device", "kb", "README.md", "LICENSE", "pyproject.toml"} <= tops
    assert tops.isdisjoint({"models", "tests", ".ci"})


def test_installed_wheel_imports(installed: Path, tmp_path: Path) -> None:
    place = run(installed, "-c", IMPORTS, cwd=tmp_path)
    assert "site-packages" in place
    assert (installed.parent / "edgekit").exists()


def test_the_wheel_compiles_deploys_and_runs_a_model_without_the_checkout(
    installed: Path, tmp_path: Path
) -> None:
    model = shutil.copy(ROOT / "models" / "okay_nabu.tflite", tmp_path)
    home = home_with_shared_cache(tmp_path / "home")

    def edgekit(*words: str | Path) -> str:
        command = installed.parent / "edgekit"
        return run(command, *words, cwd=tmp_path, EDGEKIT_HOME=str(home))

    edgekit("compile", model, "-o", "model.ekb")
    edgekit("deploy", "model.ekb")
    assert "okay_nabu" in edgekit("status")
    np.save(tmp_path / "sound.npy", np.zeros((1, 3, 40), np.int8))
    edgekit("run", model, "--input", "sound.npy", "--output", "y.npz")
    (output,) = np.load(tmp_path / "y.npz").values()
    assert (output.shape, output.dtype) == ((1, 1), np.uint8)


def test_an_installed_wheel_says_how_to_install_an_extra(installed: Path, tmp_path: Path) -> None:
    program = (
        "from edgekit.host.common.paths import install_command; print(install_command('onnx'))"
    )
    said = run(installed, "-c", program, cwd=tmp_path).strip()
    assert said == f"{installed} -m pip install '{DISTRIBUTION}[onnx]'"


def test_editable_install_imports_the_tree(checkout: Path, tmp_path: Path) -> None:
    # Built in this environment, which has hatchling; a .pth file then points at the checkout.
    built = tmp_path / "editable"
    built.mkdir()
    program = f"import hatchling.build as b; b.build_editable({str(built)!r})"
    run(sys.executable, "-c", program, cwd=checkout)
    (editable,) = built.iterdir()
    python = bare_python(tmp_path / "bare")
    install(python, editable)
    place = run(python, "-c", IMPORTS, cwd=tmp_path)
    assert Path(place.strip()).resolve() == (checkout / "host" / "__init__.py").resolve()


def test_device_package_needs_only_the_standard_library(checkout: Path, tmp_path: Path) -> None:
    shutil.copytree(checkout / "device", tmp_path / "edgekit" / "device")
    program = (
        "import pkgutil, importlib, edgekit.device as d\n"
        "for m in pkgutil.iter_modules(d.__path__):\n"
        "    if m.name != '__main__' and not m.name.startswith('nna'):\n"  # whose emulator is NumPy
        "        print(importlib.import_module('edgekit.device.' + m.name))"
    )
    # The base interpreter without site-packages: any third-party import fails.
    python = Path(sys.base_prefix) / "bin" / Path(sys.executable).resolve().name
    assert "edgekit.device.version" in run(python, "-S", "-c", program, cwd=tmp_path)


def test_the_changelog_has_the_version_and_says_how_it_is_tagged() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    version = (ROOT / "device" / "version.py").read_text(encoding="utf-8").split('"')[-2]
    assert f"\n## {version}" in text
    assert "is tagged `v" in text


def test_the_wheel_says_what_it_is(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = archive.read(name).decode()
    for key in (
        f"Name: {DISTRIBUTION}\n",
        "Summary: ",
        "License-Expression: Apache-2.0",
        "Keywords: ",
        "Classifier: Topic",
    ):
        assert key in metadata, key
