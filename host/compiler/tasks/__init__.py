"""Tasks: what a model is for, from its file, and outputs that people can read."""

from edgekit.host.compiler.tasks.classes import class_count
from edgekit.host.compiler.tasks.dictation import variants_of
from edgekit.host.compiler.tasks.find import with_task
from edgekit.host.compiler.tasks.generate import with_chunks
from edgekit.host.compiler.tasks.planned import PlannedVariant, planned, planned_of
from edgekit.host.compiler.tasks.prepared import Prepared
from edgekit.host.compiler.tasks.usual_shapes import import_for_task

__all__ = [
    "PlannedVariant",
    "Prepared",
    "class_count",
    "import_for_task",
    "planned",
    "planned_of",
    "variants_of",
    "with_chunks",
    "with_task",
]
