"""Pictures in requests, and as JSON what models find in them, in texts and in sound."""

import base64
import io
import warnings

NO_PILLOW = (
    b"expected Pillow on the board, which reads pictures, found none; install it (on Debian: "
    b"python3-pil), or send raw inputs to /run\n"
)


TASKS = ("detect", "classify", "pose", "segment", "instances", "obb", "embed", "image", "ocr")
UNREADABLE = (  # what Pillow raises for damaged files
    OSError, ValueError, SyntaxError, EOFError, TypeError, LookupError, RuntimeError,
)  # fmt: skip


class UnreadableError(Exception):
    pass


def read_picture(body):
    """Decodes a JPEG, PNG or other picture, upright and in RGB. ImportError without Pillow."""
    from PIL import Image, ImageOps, UnidentifiedImageError

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(body)) as opened:
                return in_eight_bits(ImageOps.exif_transpose(opened)).convert("RGB")
    except UnidentifiedImageError:  # it would name an object of Python
        raise UnreadableError("expected a picture that Pillow reads, found another file") from None
    except UNREADABLE as error:
        raise UnreadableError(f"expected a picture that Pillow reads, found: {error}") from None
    except (Image.DecompressionBombWarning, Image.DecompressionBombError):
        raise UnreadableError(
            f"expected a picture of at most {Image.MAX_IMAGE_PIXELS} pixels, found more"
        ) from None


def in_eight_bits(picture):
    """Pillow cuts 16 bits at 255 instead of scaling them. ValueError for other numbers."""
    if picture.mode not in ("F", "I", "I;16", "I;16B", "I;16L"):
        return picture
    low, high = picture.getextrema()
    most, least = (255, 1) if picture.mode == "F" else (65535, 0)
    if low < 0 or high > most or low < high <= least:
        raise ValueError(f"pixels from {low:g} to {high:g}")
    if picture.mode == "F":
        return picture
    return picture.convert("I").point(lambda value: value * (1 / 256) + 0).convert("L")


def as_json(task, found):
    """What a model found; of segments, only the shares of the classes."""
    if task == "segment":
        return {"shares": [share._asdict() for share in found.shares]}
    if task in ("ocr", "transcribe"):
        return found._asdict()
    if task == "image":
        made = io.BytesIO()
        made_picture(found).save(made, "PNG")
        png = base64.b64encode(made.getvalue()).decode()
        return {"image": {"width": found.width, "height": found.height, "png": png}}
    if task == "embed":
        return {"vector": found}
    if task == "instances":
        each = [{"box": i.box._asdict(), "spans": [list(span) for span in i.spans]} for i in found]
        return {"instances": each}
    if task == "read":
        return {"lines": [line._asdict() for line in found]}
    if task == "obb":
        return {"rotated": [{"box": r.box._asdict(), "corners": r.corners} for r in found]}
    if task == "pose":
        points = [[point._asdict() for point in pose.points] for pose in found]
        each = [{"box": p.box._asdict(), "points": q} for p, q in zip(found, points)]
        return {"poses": each}
    return {"boxes" if task == "detect" else "classes": [each._asdict() for each in found]}


def made_picture(found):
    """What a model for pictures made, as Pillow's."""
    from PIL import Image

    mode = "L" if found.channels == 1 else "RGB"
    return Image.frombytes(mode, (found.width, found.height), found.pixels)


def predictions_of(boxes):
    """Boxes as DeepStack names them."""
    names = ("label", "confidence", "x_min", "y_min", "x_max", "y_max")
    return {"success": True, "predictions": [dict(zip(names, (b.name, *b[1:6]))) for b in boxes]}
