"""What names a PyTorch network on a command line."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edgekit.host.compiler.frontends.foreign import PROGRAM, SCRIPT, foreign_format, is_safetensors
from edgekit.host.errors import InputError

_FACTORY = re.compile(r"(.+\.py):([A-Za-z_][A-Za-z0-9_]*)")

_SCRIPTS = (".pt", ".pth", ".ptl", ".jit", ".torchscript")


@dataclass(frozen=True)
class TorchSource:
    """A program of torch.export or TorchScript, a factory in a Python file, or a folder of
    Hugging Face."""

    kind: Literal["program", "script", "module", "folder"]
    path: Path
    factory: str = ""

    @property
    def name(self) -> str:
        """A name for files that are made from it."""
        return self.path.resolve().name if self.kind == "folder" else self.path.stem

    @property
    def needs(self) -> str:
        """The library besides PyTorch that defines the network; empty if there is none."""
        if self.kind in ("program", "script"):
            return ""
        if self.kind == "module":
            return _imported(self.path)
        try:
            config = json.loads((self.path / "config.json").read_bytes())
        except (OSError, ValueError, RecursionError):
            raise InputError(f"{self.path}/config.json: expected JSON, found none") from None
        return "timm" if isinstance(config, dict) and "architecture" in config else "transformers"


def _imported(file: Path) -> str:
    """The library that a Python file imports, anywhere in it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return ""  # the process that loads it says what is wrong
    names = {
        name.partition(".")[0]
        for node in ast.walk(tree)
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom) and not node.level
            else []
        )
    }
    if names & {"timm", "torchvision"}:  # timm's environment has both
        return "timm"
    return "transformers" if "transformers" in names else ""


def torch_source(text: str) -> TorchSource | None:
    """The source that a command line names; None for anything else. Raises InputError also for
    files that PyTorch, which may have to be fetched, could not read."""
    if (found := _FACTORY.fullmatch(text)) and not Path(text).exists():
        if not Path(found[1]).is_file():
            raise InputError(f"{found[1]}: no such file; expected a Python file and a function")
        return TorchSource("module", Path(found[1]), found[2])
    path = Path(text)
    if path.suffix == ".pt2" and path.is_file():
        if (other := foreign_format(path)) != PROGRAM:
            raise InputError(f"{path}: expected a program of torch.export, found {other}")
        return TorchSource("program", path)
    if path.suffix in _SCRIPTS and path.is_file() and foreign_format(path) == SCRIPT:
        return TorchSource("script", path)
    weights = sorted(path.glob("*.safetensors")) if path.is_dir() else []
    if weights and (path / "config.json").is_file():
        for each in weights:
            if not is_safetensors(each):
                raise InputError(f"{each}: expected safetensors, found {foreign_format(each)}")
        return TorchSource("folder", path)
    if not weights and _is_of_hugging_face(path / "config.json"):
        pickled = sorted(each.name for each in path.glob("*.bin"))
        raise InputError(
            f"{path}: expected model.safetensors next to config.json, found "
            f"{pickled[0] if pickled else 'no weights'}; write it in Python: "
            "network.save_pretrained(FOLDER)"
        )
    return None


def _is_of_hugging_face(file: Path) -> bool:
    try:
        config = json.loads(file.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(config, dict) and not {"architecture", "architectures"}.isdisjoint(config)
