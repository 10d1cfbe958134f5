"""What edgekit does around PyTorch, whose part a small program plays that writes given answers."""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgekit.host.compiler.frontends.pytorch.export import export
from edgekit.host.compiler.frontends.pytorch.source import TorchSource, torch_source
from edgekit.host.errors import InputError
from tests.support.onnx_models import model, node, save, value

SAFETENSORS = (2).to_bytes(8, "little") + b"{}"
_PLAYER = """#!{python}
import json, os, pathlib, shutil, signal, sys
request = json.loads(pathlib.Path(sys.argv[3]).read_text())
folder = pathlib.Path(request["folder"])
{does}
pathlib.Path(sys.argv[4]).write_text(json.dumps({answer}))
"""


@pytest.fixture
def play(tmp_path: Path) -> Any:
    """play(answer, does): an interpreter that gives this answer."""

    def write(answer: dict[str, str], does: str = "") -> str:
        path = tmp_path / "python"
        path.write_text(_PLAYER.format(python=sys.executable, does=does, answer=answer))
        path.chmod(0o755)
        return str(path)

    return write


@pytest.fixture
def source(tmp_path: Path) -> TorchSource:
    (tmp_path / "net.py").write_text("def make(): ...")
    found = torch_source(f"{tmp_path}/net.py:make")
    assert found is not None and (found.kind, found.factory, found.name) == (
        "module", "make", "net",
    )  # fmt: skip
    return found


def doubling(folder: Path, wrong: float = 0.0) -> str:
    """Files of a network that doubles, and what the player does with them."""
    save(model([node("Add", ["x", "x"], ["y"])], [value("x", (1, 4))], ["y"]), folder, "made.onnx")
    x = np.arange(4, dtype=np.float32).reshape(1, 4)
    np.savez(folder / "made.npz", in0=x, out0=2 * x + wrong * np.array([[1, -2, 3, 0]]))
    lines = [
        f"shutil.copy({str(folder / 'made.onnx')!r}, folder / 'model.onnx')",
        f"shutil.copy({str(folder / 'made.npz')!r}, folder / 'values.npz')",
        f"shutil.copy(sys.argv[3], {str(folder / 'asked.json')!r})",
    ]
    return "\n".join(lines)


def test_an_export_is_compared_with_pytorch(play: Any, source: TorchSource, tmp_path: Path) -> None:
    out, told = tmp_path / "out", list[str]()
    out.mkdir()
    python = play({"torch": "9.9"}, doubling(tmp_path))
    found = export(source, {"x": (1, 4)}, out, told.append, python)
    assert (found.model, found.torch, found.largest) == (out / "net.onnx", "9.9", 0.0)
    assert found.cosine == pytest.approx(1.0) and found.model.is_file()
    asked = json.loads((tmp_path / "asked.json").read_text())
    assert (asked["kind"], asked["factory"], asked["shapes"]) == ("module", "make", {"x": [1, 4]})
    assert told == ["net.py: loading a network runs its code, in a process of its own"]


def test_a_folder_s_tokenizer_is_next_to_the_model(play: Any, tmp_path: Path) -> None:
    """So that its texts and labels are known."""
    hub, out = tmp_path / "hub", tmp_path / "out"
    (hub / "1_Pooling").mkdir(parents=True)
    out.mkdir()
    names = ("config.json", "tokenizer.json", "1_Pooling/config.json")
    for name in names:
        (hub / name).write_text("{}")
    python = play({"torch": "9"}, doubling(tmp_path))
    found = export(TorchSource("folder", hub), {"x": (1, 4)}, out, lambda _: None, python)
    assert all((found.model.parent / name).read_text() == "{}" for name in names)


@pytest.mark.parametrize(
    ("answer", "does", "said"),
    [
        ({"error": "ValueError: two\nlines"}, "", "net.py: PyTorch: ValueError: two lines"),
        ({"torch": "9"}, "", "PyTorch wrote no model"),
        (
            {"torch": "9"},
            "os.kill(os.getpid(), signal.SIGKILL)",
            "ended with code -9; is there enough memory?",
        ),
        ({"torch": "9"}, "sys.exit(3)", "ended with code 3; does the network's own code"),
    ],
)
def test_a_failing_network_is_one_line(
    play: Any, source: TorchSource, tmp_path: Path, answer: dict[str, str], does: str, said: str
) -> None:
    with pytest.raises(InputError) as error:
        export(source, {}, tmp_path, lambda _: None, play(answer, does))
    assert said in str(error.value) and "\n" not in str(error.value)


def test_other_outputs_than_those_of_pytorch_are_refused(
    play: Any, source: TorchSource, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    python = play({"torch": "9"}, doubling(tmp_path, wrong=1.0))
    with pytest.raises(InputError, match="expected the outputs of PyTorch 9, found a cosine of 0"):
        export(source, {}, out, lambda _: None, python)


def test_sources_are_recognized(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "p.pt2", "w") as archive:
        archive.writestr("p/models/model.json", "{}")
    with zipfile.ZipFile(tmp_path / "s.jit", "w") as archive:
        archive.writestr("s/code/__torch__.py", "")
    folder = tmp_path / "bert"
    folder.mkdir()
    assert torch_source(str(folder)) is None
    (folder / "config.json").write_text('{"architectures": ["BertModel"]}')
    with pytest.raises(InputError, match=r"expected model.safetensors .*found no weights"):
        torch_source(str(folder))
    (folder / "pytorch_model.bin").touch()
    with pytest.raises(InputError, match=r"found pytorch_model.bin; write it .*save_pretrained"):
        torch_source(str(folder))
    (folder / "model.safetensors").write_bytes(SAFETENSORS)
    found = [torch_source(str(path)) for path in (tmp_path / "p.pt2", tmp_path / "s.jit", folder)]
    assert [each and (each.kind, each.needs, each.name) for each in found] == [
        ("program", "", "p"),
        ("script", "", "s"),
        ("folder", "transformers", "bert"),
    ]
    (folder / "config.json").write_text('{"architecture": "resnet18"}')
    assert TorchSource("folder", folder).needs == "timm"
    (folder / "config.json").write_text("{")
    with pytest.raises(InputError, match=r"config.json: expected JSON"):
        TorchSource("folder", folder).needs  # noqa: B018
    assert torch_source("model.onnx") is None
    with pytest.raises(InputError, match=r"none.py: no such file"):
        torch_source("none.py:make")


@pytest.mark.parametrize(
    ("text", "needs"),
    [
        ("import torch\ndef make():\n    import torchvision.models as m\n", "timm"),
        ("from timm.layers import x\n", "timm"),
        ("from transformers import BertModel\n", "transformers"),
        ("from .timm import x\nimport timmy\n", ""),
        ("def make(:\n", ""),
    ],
)
def test_the_library_that_a_factory_imports_is_fetched(
    tmp_path: Path, text: str, needs: str
) -> None:
    (tmp_path / "net.py").write_text(text)
    source = torch_source(f"{tmp_path}/net.py:make")
    assert source is not None and source.needs == needs


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.pt2", b"\x8f\x01", r"a program of torch.export, found a file that begins with b'\x8f"),
        ("p.pt2", b"<!DOCTYPE html>", "a program of torch.export, found a web page"),
        (
            "hub/model.safetensors",
            b"\x8f" * 99,
            r"safetensors, found a file that begins with b'\x8f",
        ),
        (
            "hub/model.safetensors",
            b"version https://git-lfs.github.com",
            "found a pointer of Git LFS",
        ),
        ("hub/model.safetensors", SAFETENSORS[:-2], "found a file that begins with b'\\x02"),
    ],
)
def test_what_pytorch_cannot_read_is_said_before_it_is_fetched(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "config.json").write_text("{}")
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError) as error:
        torch_source(str(tmp_path / name.partition("/")[0]))
    assert said in str(error.value)
