"""Recognizes heads of detectors by the shapes of the outputs, and by what makes them."""

from __future__ import annotations

from edgekit.host.compiler.inputs import DetectionNotes
from edgekit.host.compiler.tasks.center_net import center_net, detect_net, fomo
from edgekit.host.compiler.tasks.center_net_lite import lite_center_net
from edgekit.host.compiler.tasks.chosen import best_of_classes, centers_and_best, hub_boxes
from edgekit.host.compiler.tasks.craft import craft
from edgekit.host.compiler.tasks.distances import raw_distances
from edgekit.host.compiler.tasks.ends import Ends
from edgekit.host.compiler.tasks.face_grids import scrfd, yu_net
from edgekit.host.compiler.tasks.face_points import center_face, old_yu_net, retina_face
from edgekit.host.compiler.tasks.faces import blaze_face, ultra_face
from edgekit.host.compiler.tasks.given import (
    counted_boxes,
    custom_vision,
    keras_yolov3,
    paddle_scores,
    rows_of_mmdeploy,
    rows_of_paddle,
    rows_of_yolov7,
    rows_of_yolov9,
    ssd_of_the_zoo,
    tensorflow_detections,
    torchvision_detections,
    transformer_detections,
    yolov4,
)
from edgekit.host.compiler.tasks.grids import raw_grids
from edgekit.host.compiler.tasks.heads import Head
from edgekit.host.compiler.tasks.instances import boxes_of_instances
from edgekit.host.compiler.tasks.queries import joined_queries, rf_detr, separate_queries
from edgekit.host.compiler.tasks.retina_net import retina_net
from edgekit.host.compiler.tasks.small import fastest_det, nano_det, pico_det
from edgekit.host.compiler.tasks.ssd import anchored_ssd, caffe_ssd, postprocessed_ssd, separate_ssd
from edgekit.host.compiler.tasks.text_map import text_map
from edgekit.host.compiler.tasks.yolo import (
    anchor_free,
    anchored,
    corners_and_scores,
    end_to_end,
    lite_yolov4,
    one_box_of_a_cell,
    yolop,
)
from edgekit.host.compiler.tasks.yolo_v2 import yolo_v2

_RECOGNIZERS = (
    anchor_free,
    boxes_of_instances,
    anchored,
    end_to_end,
    one_box_of_a_cell,
    best_of_classes,
    centers_and_best,
    hub_boxes,
    raw_grids,
    raw_distances,
    fastest_det,
    nano_det,
    pico_det,
    blaze_face,
    ultra_face,
    retina_face,
    retina_net,
    center_face,
    yu_net,
    old_yu_net,
    scrfd,
    corners_and_scores,
    caffe_ssd,
    separate_ssd,
    separate_queries,
    rf_detr,
    joined_queries,
    text_map,
    craft,
    tensorflow_detections,
    torchvision_detections,
    custom_vision,
    transformer_detections,
    rows_of_yolov7,
    rows_of_yolov9,
    rows_of_paddle,
    rows_of_mmdeploy,
    counted_boxes,
    yolov4,
    lite_yolov4,
    keras_yolov3,
    paddle_scores,
    ssd_of_the_zoo,
    yolop,
    center_net,
    lite_center_net,
    fomo,
    detect_net,
    yolo_v2,
)


def find_heads(ends: Ends, notes: DetectionNotes) -> list[Head]:
    """All heads that the outputs may be of; what the file itself says of boxes decides."""
    if stated := [*postprocessed_ssd(ends, notes), *anchored_ssd(ends, notes.anchors)]:
        return stated
    return [head for recognize in _RECOGNIZERS for head in recognize(ends)]
