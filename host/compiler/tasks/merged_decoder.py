"""The decoders next to an encoder of speech: in files of their own, or merged in one in which an
input says which of both computes. Those are written to the cache as files of their own."""

from __future__ import annotations

from pathlib import Path

from edgekit.host.common.files import atomic_write
from edgekit.host.common.paths import cache_folder
from edgekit.host.compiler.frontends import model_hash
from edgekit.host.compiler.sidecars import decoder_file, merged_file, next_token_file

_FLAG = "use_cache_branch"


def decoder_of(model: Path) -> Path | None:
    """The decoder of whole texts; None if there is none."""
    return decoder_file(model) or _part(model, cached=False)


def next_token_of(model: Path) -> Path | None:
    """The decoder of one more token; None if there is none."""
    return next_token_file(model) or _part(model, cached=True)


def _part(model: Path, cached: bool) -> Path | None:
    file = merged_file(model)
    if file is None:
        return None
    folder, digest = cache_folder() / "objects", model_hash(file)
    parts = [folder / f"{digest}-{name}.onnx" for name in ("decoder", "next-token")]
    if not all(part.is_file() for part in parts):
        from edgekit.host.compiler.frontends.onnx.merged import split_model

        made = split_model(file, _FLAG)
        if made is None:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        for part, content in zip(parts, made, strict=True):
            atomic_write(part, content)
    return parts[cached]
