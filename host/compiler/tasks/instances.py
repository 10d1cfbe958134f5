"""YOLO's heads for instance segmentation: boxes, and masks that are summed of shared maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from edgekit.device.runtime.agent.fitting import LEAST
from edgekit.device.runtime.agent.task import FIELDS
from edgekit.host.compiler.ir import ops
from edgekit.host.compiler.ir.types import Tensor
from edgekit.host.compiler.tasks.append import Appender
from edgekit.host.compiler.tasks.candidates import best_rows, with_image
from edgekit.host.compiler.tasks.chosen import HUB_MASKS, hub_instances
from edgekit.host.compiler.tasks.ends import Ends, InputImage
from edgekit.host.compiler.tasks.heads import Head, in_pixels, sizes_of
from edgekit.host.compiler.tasks.prepared import Prepared, free_name
from edgekit.host.compiler.tasks.yolo import MOST_ROWS, box_counts

_MASKS = "masks"
_MASK_STRIDE = 4


@dataclass(frozen=True)
class MaskMaps:
    """The output that masks are summed of: [1, maps, rows, columns], or with the maps last."""

    tensor: Tensor
    last: bool

    @property
    def count(self) -> int:
        return self.tensor.shape[3 if self.last else 1]

    def planes(self, to: Appender) -> str:
        """Appends what makes it f32 [maps, rows, columns]."""
        x, (_, *sizes) = to.floats(self.tensor.name), self.tensor.shape
        if self.last:
            x, sizes = to.add(ops.Transpose((0, 3, 1, 2)), x), [sizes[2], *sizes[:2]]
        return to.add(ops.Reshape(tuple(sizes)), x)


def mask_maps(ends: Ends) -> tuple[Tensor, MaskMaps] | None:
    """The output with the boxes, or with the weights of the maps, and the maps, of a model that has
    just these, or those of Qualcomm AI Hub."""
    flat = [t for t in ends.outputs if len(t.shape) == 3 and t.shape[0] == 1]
    maps = [t for t in ends.outputs if len(t.shape) == 4 and t.shape[0] == 1]
    if hub_instances(ends):
        flat = [t for t in flat if t.name == HUB_MASKS[2]]
    elif len(ends.outputs) != 2:
        return None
    if len(flat) != 1 or len(maps) != 1:
        return None
    # Files of TensorFlow have the channels last.
    extents = ends.image.grid(_MASK_STRIDE)
    last = maps[0].shape[1:3] == extents
    return (flat[0], MaskMaps(maps[0], last)) if last or maps[0].shape[2:] == extents else None


def instance_head(ends: Ends) -> Head | None:
    """YOLOv8 and later: [1, 4 + classes + maps, boxes], or, of models that select,
    [1, boxes, 6 + maps]; YOLOv5: [1, boxes, 5 + classes + maps]; Qualcomm AI Hub's."""
    found = mask_maps(ends)
    if found is None:
        return None
    if of_hub := hub_instances(ends):
        return of_hub
    output, maps = found
    _, second, third = output.shape
    image, name = ends.image, output.name
    rows: Callable[[Appender], str]
    if second > 4 + maps.count and third in box_counts(image, 1):
        whose, classes = "YOLOv8", second - 4 - maps.count

        def rows(to: Appender) -> str:
            return best_rows(to, image, to.floats(name), maps.count, lambda rest: rest)

    elif third > 5 + maps.count and second in box_counts(image, 3):
        whose, classes = "YOLOv5", third - 5 - maps.count

        def rows(to: Appender) -> str:
            x = without_object_score(to, to.floats(name), classes)
            return best_rows(to, image, x, maps.count, lambda rest: rest)

    elif third == 6 + maps.count and 1 < second <= MOST_ROWS:
        whose, classes = "YOLO26", 0

        def rows(to: Appender) -> str:
            return _given_rows(to, image, to.floats(name), maps.count)

    else:
        return None
    return Head("yolo-seg", f"'{name}' is like {whose}'s with masks", classes, rows)


def boxes_of_instances(ends: Ends) -> Iterator[Head]:
    """The same for --task detect: the boxes alone."""
    head = instance_head(ends)
    if head is None:
        return

    def rows(to: Appender) -> str:
        found = head.rows(to)
        boxes, _ = to.add_all(ops.Split(3, (FIELDS, to.shape(found)[3] - FIELDS)), found)
        return boxes

    yield replace(head, rows=rows)


def with_instance_masks(found: Prepared, ends: Ends) -> Prepared:
    """Appends the masks of a model's rows."""
    seen = mask_maps(ends)
    assert seen is not None and found.task is not None
    _, maps = seen
    to = Appender(found.graph, _MASKS)
    planes = maps.planes(to)
    _, h, w = to.shape(planes)
    op = ops.InstanceMasks(ends.image.width / w, ends.image.height / h, least=LEAST)
    masks = to.add(op, found.task.output, planes)
    name = free_name(found.graph, _MASKS)
    return replace(found, graph=to.with_output(masks, name), task=replace(found.task, masks=name))


def without_object_score(to: Appender, x: str, classes: int) -> str:
    """As YOLOv8 has it: [1, 4 + classes + …, boxes]."""
    rest = to.shape(x)[2] - 5 - classes
    box, sure, each, more = to.add_all(ops.Split(2, (4, 1, classes, rest)), x)
    x = to.add(ops.Concat(2), box, to.add(ops.Mul(), each, sure), more)
    return to.add(ops.Transpose((0, 2, 1)), x)


def _given_rows(to: Appender, image: InputImage, x: str, maps: int) -> str:
    box, score, label, rest = to.add_all(ops.Split(2, (4, 1, 1, maps)), x)
    return with_image(to, label, score, in_pixels(to, image, box, sizes_of(image)), rest)
