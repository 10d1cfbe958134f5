"""Tasks: what a model is for, from its file, and outputs that people can read."""

from edgekit.host.compiler.tasks.find import Prepared, class_count, with_task

__all__ = ["Prepared", "class_count", "with_task"]
