"""Compiles networks straight from PyTorch: programs, a factory, folders of Hugging Face.

    python -m tests.long.pytorch_sources [FOLDER]

Fetches PyTorch and transformers once. Each source is exported, and its outputs compared with
PyTorch's; sources that misbehave must be one line.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from edgekit.host.compiler.frontends.pytorch import export as exports
from edgekit.host.compiler.frontends.pytorch.source import torch_source
from edgekit.host.errors import InputError

_NETWORK = """
import os, sys, torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n = torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.BatchNorm2d(8)
        self.b = torch.nn.Linear(8, 5)
    def forward(self, image):
        x = torch.relu(self.n(self.a(image)))
        return {"classes": torch.softmax(self.b(x.mean((2, 3))), 1), "map": x}
def make():
    print("said by the network")
    return Net()
def with_inputs():
    return Net(), (torch.zeros(1, 3, 16, 16),)
class Two(Net):
    def forward(self, image, size):
        return super().forward(image * size)
def not_a_network():
    return 5
def leaves():
    sys.exit(0)
def dies():
    os.kill(os.getpid(), 9)
"""
_WRITERS = {
    "program.pt2": """
import sys, torch; sys.path.insert(0, sys.argv[1]); from net import Net
torch.export.save(torch.export.export(Net().eval(), (torch.zeros(1, 3, 16, 16),)), sys.argv[2])
""",
    "script.pt": """
import sys, torch; sys.path.insert(0, sys.argv[1]); from net import Net
class Classes(Net):
    def forward(self, image):
        return super().forward(image)["classes"]
torch.jit.trace(Classes().eval(), torch.zeros(1, 3, 16, 16)).save(sys.argv[2])
""",
    "bert": """
import sys, transformers as t
c = t.BertConfig(vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                 intermediate_size=64)
t.BertForSequenceClassification(c).save_pretrained(sys.argv[2])
""",
    "vit": """
import sys, transformers as t
c = t.ViTConfig(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
                image_size=32, patch_size=8)
t.ViTForImageClassification(c).save_pretrained(sys.argv[2])
""",
}
_GOOD = ("net.py:make", "net.py:with_inputs", *_WRITERS)
_BAD = {
    "net.py:missing": "expected a function or class missing",
    "net.py:Two": "expected --input-shape size=",
    "net.py:not_a_network": "expected a torch.nn.Module",
    "net.py:leaves": "SystemExit",
    "net.py:dies": "ended with code -9",
}


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else made)
        return _check_all(folder)


def _check_all(folder: Path) -> int:
    (folder / "net.py").write_text(_NETWORK)
    failed = 0
    for name in _GOOD:
        try:
            _write(name, folder)
            found = _export(name, folder)
            print(f"{name}: cosine {found.cosine:.6f}, largest difference {found.largest:.2g}")
        except (InputError, subprocess.CalledProcessError) as error:
            failed += 1
            print(f"{name}: FAILED {error}")
    for name, said in _BAD.items():
        try:
            _export(name, folder)
            failed += 1
            print(f"{name}: FAILED, expected an error")
        except InputError as error:
            wrong = said not in str(error) or "\n" in str(error)
            failed += wrong
            print(f"{name}: {'FAILED ' if wrong else ''}{error}")
    return min(failed, 1)


def _write(name: str, folder: Path) -> None:
    if name in _WRITERS:
        needs = "-transformers" if name in ("bert", "vit") else ""
        python = exports.interpreter_for(needs[1:], print)
        target = str(folder / name)
        subprocess.run([python, "-c", _WRITERS[name], str(folder), target], check=True)


def _export(name: str, folder: Path) -> exports.Exported:
    source = torch_source(str(folder / name))
    assert source is not None
    shapes = {"image": (1, 3, 16, 16)} if name.startswith(("net.py", "script")) else {}
    with tempfile.TemporaryDirectory() as out:
        return exports.export(source, shapes, Path(out), print)


if __name__ == "__main__":
    raise SystemExit(main())
