"""The 80 classes of COCO's detection task, in the order that detectors use."""

COCO = (
    "person", "bicycle", "car", "motorcycle", "airplane", "bus", "train", "truck", "boat",
    "traffic light", "fire hydrant", "stop sign", "parking meter", "bench", "bird", "cat", "dog",
    "horse", "sheep", "cow", "elephant", "bear", "zebra", "giraffe", "backpack", "umbrella",
    "handbag", "tie", "suitcase", "frisbee", "skis", "snowboard", "sports ball", "kite",
    "baseball bat", "baseball glove", "skateboard", "surfboard", "tennis racket", "bottle",
    "wine glass", "cup", "fork", "knife", "spoon", "bowl", "banana", "apple", "sandwich", "orange",
    "broccoli", "carrot", "hot dog", "pizza", "donut", "cake", "chair", "couch", "potted plant",
    "bed", "dining table", "toilet", "tv", "laptop", "mouse", "remote", "keyboard", "cell phone",
    "microwave", "oven", "toaster", "sink", "refrigerator", "book", "clock", "vase", "scissors",
    "teddy bear", "hair drier", "toothbrush",
)  # fmt: skip

# The category of each class in COCO's annotation files, whose numbers have gaps.
_UNUSED = (12, 26, 29, 30, 45, 66, 68, 69, 71, 83)
COCO_IDS = tuple(i for i in range(1, 91) if i not in _UNUSED)
# The names of categories 1 to 90, for models that have one class for each; gaps have none.
_NAMES = dict(zip(COCO_IDS, COCO, strict=True))
COCO_CATEGORIES = tuple(_NAMES.get(i, "") for i in range(1, 91))


def as_categories(labels: tuple[str, ...]) -> tuple[str, ...]:
    """Names of COCO's 80 classes, in any spelling, for models that have one class for each of its
    90 categories; other labels as they are."""
    ends = [label.strip().lower() for label in (*labels[:1], *labels[-1:])]
    if len(labels) != len(COCO) or ends != [COCO[0], COCO[-1]]:
        return labels
    named = dict(zip(COCO_IDS, labels, strict=True))
    return tuple(named.get(i, "") for i in range(1, len(COCO_CATEGORIES) + 1))
