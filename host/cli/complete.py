"""Shell completion of boards, profiles and models; never fails and prints nothing."""

from __future__ import annotations

from pathlib import Path

_MODELS = (".tflite", ".onnx", ".gguf", ".prototxt", ".ekb")


def boards(incomplete: str) -> list[str]:
    """Boards of the inventory, virtual boards, this machine and the profiles."""
    from edgekit.host.deploy.inventory import boards as known
    from edgekit.host.errors import InputError
    from edgekit.host.virtual.machines import virtual_board_names

    try:
        own = [entry.name for entry in known(Path.cwd())]
    except InputError:
        own = []  # the command itself will report the inventory error
    return _filter_by_prefix(incomplete, [*own, *virtual_board_names(), *profiles("")])


def selections(incomplete: str) -> list[str]:
    """Labels of inventory boards, with their values."""
    from edgekit.host.deploy.inventory import boards as known
    from edgekit.host.errors import InputError

    try:
        found = {f"{key}={value}" for e in known(Path.cwd()) for key, value in e.facts().items()}
    except InputError:
        return []
    return _filter_by_prefix(incomplete, sorted(found))


def virtual_boards(incomplete: str) -> list[str]:
    """Names of virtual boards."""
    from edgekit.host.virtual.machines import virtual_board_names

    return _filter_by_prefix(incomplete, virtual_board_names())


def profiles(incomplete: str) -> list[str]:
    """Profiles a model can be compiled for."""
    from edgekit.kb.targets.board import board_names

    return _filter_by_prefix(incomplete, board_names())


def models(incomplete: str) -> list[str]:
    """Models, bundles, and folders that may lead to them."""
    folder, _, name = incomplete.rpartition("/")
    place = f"{folder}/" if "/" in incomplete else ""
    try:
        there = sorted(p for p in Path(place or ".").iterdir() if p.name.startswith(name))
    except OSError:
        return []
    seen = [p for p in there if name or not p.name.startswith(".")]
    found = [f"{place}{p.name}/" if p.is_dir() else f"{place}{p.name}" for p in seen]
    found = [each for each in found if each.endswith((*_MODELS, "/"))]
    # Descend into a single folder: the shell would append a space to it.
    return models(found[0]) if len(found) == 1 and found[0].endswith("/") else found


def _filter_by_prefix(incomplete: str, names: list[str]) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]
