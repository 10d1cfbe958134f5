"""The classes of ImageNet's challenge of 2012, in the order that classifiers use."""

from __future__ import annotations

from pathlib import Path


def imagenet_labels(count: int) -> tuple[str, ...]:
    """The first of WordNet's names of each class, after "background" if `count` is 1001."""
    text = Path(__file__).with_name("imagenet.txt").read_text("ascii")
    labels = tuple(text.splitlines())
    return ("background", *labels)[-count:]
