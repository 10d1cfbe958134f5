"""Models that are known by the names of their inputs and outputs, or by metadata, but show no
results here: what they are, and what to use instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from edgekit.host.compiler.frontends import outline_model
from edgekit.host.compiler.frontends.formats import format_of
from edgekit.host.compiler.frontends.onnx.file import onnx_metadata
from edgekit.host.compiler.ir.types import Graph
from edgekit.host.compiler.sidecars import voice_file
from edgekit.host.compiler.tasks.rotated import is_east
from edgekit.host.compiler.tasks.unsupported import FSMN
from edgekit.host.compiler.tasks.usual_pixels import IMPULSE

_PINTO_ROWS = "label_xyxy_score"
_CTC = "use SenseVoice's or Zipformer's file with CTC, and its tokens.txt"
_OPTIMUM = ("use Optimum's encoder_model.onnx with decoder_model.onnx and the .json files of both "
            "next to it")  # fmt: skip
_MOONSHINE = ("preprocess", "encode", "uncached_decode", "cached_decode")
_PIPER = "use a voice of Piper with its .onnx.json: edgekit run voice.onnx --input phonemes.txt"
_MASKS = "use one that finds objects by itself, such as yolov8n-seg or FastSAM"
_SPEAKERS = "use WeSpeaker's or 3D-Speaker's file"
_PERSONS = "use one that finds persons, such as yolov8n-pose or MoveNet"
_POINTS = "it finds points to compare pictures by, which no task shows"
_TURNED = ("its angles may be how a head is turned or where eyes look, which no task shows; use a "
           "model of points of the face, such as face_landmarker's")  # fmt: skip
_TEXT = "use PaddleOCR's detector: edgekit run det.onnx --recognizer rec.onnx --input page.png"


@dataclass(frozen=True)
class _Known:
    """A model that has at least these inputs and outputs, or whose `kind` in the metadata begins
    so. `shape`: extents of its first input, or none."""

    said: str
    inputs: frozenset[str] = frozenset()
    outputs: frozenset[str] = frozenset()
    kind: str = ""
    shape: tuple[int, ...] = ()


def _by(said: str, inputs: str = "", outputs: str = "", kind: str = "", *shape: int) -> _Known:
    return _Known(said, frozenset(inputs.split()), frozenset(outputs.split()), kind, shape)


_KNOWN = (
    # Voices.
    _by(f"it is a voice of Kokoro, which takes numbers of phonemes and a row of voices.bin; "
        f"{_PIPER}", "style speed"),
    _by(f"it is the first part of a voice of Matcha, whose vocoder is another file; {_PIPER}",
        "", "", "matcha"),
    _by(f"it is the first part of a voice of Matcha, whose vocoder is another file; {_PIPER}",
        "x x_length noise_scale length_scale", "mel"),
    _by(f"it is a vocoder, the last part of a voice; {_PIPER}", "mels"),
    _by(f"it is a voice whose phonemes no file lists; {_PIPER}", "x x_length noise_scale"),
    _by(f"it is a voice of VITS as Hugging Face exports it, whose texts become numbers in another "
        f"way; {_PIPER}", "input_ids", "waveform"),
    # Speech.
    _by(f"it is an encoder of Whisper as sherpa-onnx exports it; {_OPTIMUM}", "mel",
        "n_layer_cross_k"),
    _by(f"it is a decoder of Whisper as sherpa-onnx exports it; {_OPTIMUM}",
        "tokens in_n_layer_self_k_cache"),
    _by(f"it joins the encoder and the decoder of a transducer, which are not put together here; "
        f"{_CTC}", "encoder_out decoder_out"),
    _by(f"it is the encoder of a transducer, whose decoder and joiner are not put together with it "
        f"here; {_CTC}", "", "encoder_out"),
    _by(f"it is the decoder of a transducer, which is not put together with its encoder here; "
        f"{_CTC}", "", "decoder_out"),
    _by(f"it is Paraformer, which finds out how many words there are while it runs; {_CTC}",
        "speech speech_lengths"),
    _by(f"it is Paraformer, which finds out how many words there are while it runs; {_CTC}",
        "", "", "paraformer"),
    _by(f"it takes NeMo's features of sound, which are not computed here; {_SPEAKERS}",
        "audio_signal length", "embs"),
    _by("it takes NeMo's MFCC, which are not computed here; use MarbleNet of 80 bands or Silero's "
        "silero_vad.onnx for speech, YAMNet for classes of sounds",
        "audio_signal", "logits", "", 1, 64),
    _by(f"it takes NeMo's features of sound, which are not computed here; {_CTC}",
        "audio_signal length"),
    _by(f"it is Zipformer for a stream, whose states are not fed back here; {_CTC}",
        "x cached_key_0 processed_lens"),
    _by("it is CED, whose features of sound are not computed here; use Zipformer's file for "
        "classes of sounds, YAMNet or PANNs", "", "", "ced"),
    _by(f"it takes Dolphin's features of sound, which are not computed here; {_CTC}", "", "",
        "dolphin"),
    _by(f"it takes TeleSpeech's MFCC, which are not computed here; {_CTC}", "", "", "telespeech"),
    _by(FSMN, "speech in_cache0"),
    _by("it gives text commas and full stops, which is not done here", "", "", "ct-transformer"),
    # Other sounds.
    _by("it is CLAP's encoder of sound, whose features of 48,000 samples a second are not computed "
        "here; use YAMNet or PANNs for classes of sounds", "input_features", "audio_embeds"),
    _by("it takes noise out of spectra of sound, which are not computed here", "mix conv_cache"),
    _by("it is DNSMOS, whose three values for speech, noise and both are no scores", "", "", "",
        1, 144160),
    _by("it is DNSMOS of P.808, whose features of sound are not computed here", "", "", "",
        1, 900, 120),
    _by("it is Basic Pitch, whose notes are not put together here", "", "", "", 1, 43844, 1),
    # Pictures and texts.
    _by("it finds what a text names, with both encoders in one file, which is not done here; use a "
        "detector of fixed classes, such as yolo11n.onnx", "pixel_values input_ids", "pred_boxes"),
    _by("it is CLIP with both encoders in one file; use vision_model.onnx and text_model.onnx of "
        "the same export: edgekit run vision_model.onnx --task embed --input photos",
        "pixel_values input_ids"),
    # Texts.
    _by("it is a language model, which runs as .gguf: edgekit compile FOLDER -o llm.gguf with the "
        "folder of Hugging Face that it is from", "input_ids past_key_values.0.key", "logits"),
    # Pictures.
    _by(f"it is the encoder of SAM 2, whose decoder takes points; {_MASKS}", "",
        "image_embed high_res_feats_0"),
    _by(f"it is the decoder of SAM 2, which takes points and the encoder's output; {_MASKS}",
        "image_embed high_res_feats_0"),
    _by(_POINTS, "", "keypoints scores descriptors"),
    _by(_POINTS, "", "semi desc"),
    _by("it compares the points of two pictures, of which a task takes one", "kpts0 kpts1"),
    _by("it compares the points of two pictures, of which a task takes one", "",
        "matches0 mscores0"),
    _by(_TURNED, "", "angle_y_fc angle_p_fc angle_r_fc"),
    _by(_TURNED, "", "yaw_pitch_roll"),
    _by("it is OpenVINO's model for age and sex, of which the age is no score of classes; use "
        "labels and a classifier of faces", "", "age_conv3 prob"),
    _by("it finds lanes as Ultra-Fast-Lane-Detection-v2 does, which no task shows", "",
        "loc_row loc_col exist_row exist_col"),
    _by("it is NVIDIA's LPRNet of TAO, whose characters are a list of its own that is not read "
        "here; use fast-plate-ocr", "", "tf_op_layer_ArgMax tf_op_layer_Max"),
    _by(f"it is the decoder of Segment Anything, which takes points and the encoder's output; "
        f"{_MASKS}", "image_embeddings point_coords"),
    _by(f"it is the encoder of Segment Anything, whose decoder takes points; {_MASKS}", "",
        "image_embeddings"),
    _by(f"it is Mask2Former or MaskFormer, whose masks are not put together here; {_MASKS}", "",
        "class_queries_logits masks_queries_logits"),
    _by(f"it is YOLACT, whose masks are not put together here; {_MASKS}", "",
        "loc conf mask proto"),
    _by("it is Robust Video Matting, whose states grow with the picture; use MODNet or U2-Net",
        "src r1i"),
    _by("it puts another face into a picture, which is not done here", "target source"),
    _by("it finds how far pixels moved between two pictures, of which a task takes one", "",
        "flow"),
    _by("it takes the pictures of two cameras, of which a task takes one; use MiDaS or Depth "
        "Anything for depths", "left right"),
    _by("it fills what a mask hides, of which a task takes none", "image mask"),
    _by(f"it is EAST, whose boxes are not decoded here; {_TEXT}", "", "scores geometry"),
    _by("it is like MediaPipe's hair segmenter, which takes the mask of the picture before with "
        "each; use selfie_multiclass_256x256.tflite, which also finds hair", "", "", "",
        1, 512, 512, 4),
    _by(f"it is OpenPose, whose points are not put together to persons here; {_PERSONS}", "",
        "heatmaps pafs"),
)  # fmt: skip


_Shape = tuple[int | str | None, ...]


def _has_fields(first: _Shape, made: Sequence[_Shape]) -> bool:
    """OpenPose: maps of 18 points and the rest, and two for each of 19 limbs."""
    channels = [shape[1] for shape in made if len(shape) == 4]
    return len(first) == 4 and len(channels) == len(made) and {*channels} == {19, 38}


def _separates(first: _Shape, made: Sequence[_Shape]) -> bool:
    """Demucs: for each of its sources as many samples of both sides."""
    return len(first) == 3 and first[1] == 2 and len(made) == 1 and made[0][2:] == first[1:]


def _knows_speakers(first: _Shape, made: Sequence[_Shape]) -> bool:
    """ECAPA-TDNN and others: a vector of rows of 80 bands."""
    vectors = len(made) == 1 and bool(made[0]) and made[0][-1] in (192, 256, 512)
    return len(first) == 3 and first[2] == 80 and vectors and {*made[0][1:-1]} <= {1}


def _has_face_points(first: _Shape, made: Sequence[_Shape]) -> bool:
    """Twice 68 or 106 numbers of pictures as PFLD takes them."""
    return first[2:] == (112, 112) and len(made) == 1 and made[0] in ((1, 136), (1, 212))


def _finds_by_regions(first: _Shape, made: Sequence[_Shape]) -> bool:
    """Faster R-CNN and Mask R-CNN: boxes, classes and scores of a picture without a batch."""
    rows = made[0][0] if made and len(made[0]) == 2 and made[0][1] == 4 else None
    return len(first) == 3 and first[0] == 3 and rows is not None and made[1:3] == [(rows,)] * 2


def _hears_speech(first: _Shape, made: Sequence[_Shape]) -> bool:
    """MarbleNet: scores of speech and of none of NeMo's 80 bands."""
    return len(first) == 3 and first[1] == 80 and len(made) == 1 and made[0][-1:] == (2,)


def _finds_turned_text(first: _Shape, made: Sequence[_Shape]) -> bool:
    """EAST: for each cell of 4 x 4 pixels a score, and distances to four edges with an angle."""
    channels = [{shape[at] for shape in made} for at in (1, 3)] if _are_maps(made) else []
    return len(first) == 4 and len(made) == 2 and {1, 5} in channels


def _removes_noise(_: _Shape, made: Sequence[_Shape]) -> bool:
    """A mask of a spectrum or samples, and states of two LSTM."""
    return not {(1, 1, 257), (1, 1, 512)}.isdisjoint(made) and (1, 2, 128, 2) in made


def _are_maps(made: Sequence[_Shape]) -> bool:
    return all(len(shape) == 4 and None not in shape for shape in made)


def _compares_points(first: _Shape, made: Sequence[_Shape]) -> bool:
    """SuperPoint: for each cell of 8 x 8 pixels where a point is or that there is none, and a
    vector."""
    cells = tuple(n // 8 if isinstance(n, int) else n for n in first[2:])
    return first[1:2] in ((1,), (3,)) and [*made] == [(1, n, *cells) for n in (65, 256)]


_LANES = ([(1, 101, 56, 4)], [(1, 201, 18, 4)])  # of TuSimple and CULane

_WRITTEN = ([(1, 224)], [(1, 448)])  # tokens of Whisper's text
_STYLE = (1, 1, 1, 100)  # a vector

# Scores of angles: Hopenet's, L2CS-Net's and WHENet's.
_ANGLES = ([(1, 66)] * 3, [(1, 90)] * 2, [(1, 120), (1, 66), (1, 66)])

_BY_SHAPES = (
    ("it is like Ultra-Fast-Lane-Detection, whose lanes no task shows; use one that finds the area "
     "of lanes, such as a model for --task segment",
     lambda first, made: first[2:] == (288, 800) and [*made] in _LANES),
    (_TURNED, lambda first, made: len(first) == 4 and [*made] in _ANGLES),
    (_POINTS, _compares_points),
    (f"it is like EAST, of which only the file with outputs feature_fusion/… is decoded; {_TEXT}",
     _finds_turned_text),
    ("it is a part of DTLN, which takes noise out of sound in two parts, which no task does",
     _removes_noise),
    ("it may be Whisper whose file goes on from word to word itself, which is not decoded here; "
     f"{_OPTIMUM}", lambda first, made: first == (1, 80, 3000) and [*made] in _WRITTEN),
    ("it may give the style of a picture, which another file takes together with a picture; use "
     "one that has its style in it",
     lambda first, made: len(first) == 4 and [*made] == [_STYLE]),
    ("it may be MarbleNet, which is known by inputs audio_signal and length as NeMo exports them; "
     "use such a file or Silero's silero_vad.onnx", _hears_speech),
    ("it is like Resemblyzer, whose features of sound are not computed here; use WeSpeaker's or "
     "3D-Speaker's file", lambda first, made: first[1:] == (160, 40) and made == [(1, 256)]),
    ("it is like YOLO-NAS-Pose, whose rows are not decoded; use yolov8n-pose",
     lambda first, made: len(first) == 4 and len(made) == 1 and made[0][1:] == (57,)),
    ("it is like MLPerf Tiny's model for unusual sounds of machines, whose error is no score",
     lambda first, made: first == (1, 640) and [*made] == [first]),
    ("it may be CREPE, whose numbers are pitches, which no task shows",
     lambda first, made: first[1:] == (1024,) and made == [(1, 360)]),
    ("it may give the points of a face, of whose size and pixels nothing is known; use PFLD's with "
     "98 points, InsightFace's 2d106det.onnx or face_landmarker's", _has_face_points),
    ("it may give the vector of a speaker, but no file says whose features of sound it takes: "
     "hyperparams.yaml next to it would for SpeechBrain's, the metadata for WeSpeaker's",
     _knows_speakers),
    (f"it is like OpenPose, whose points are not put together to persons here; {_PERSONS}",
     _has_fields),
    ("it may take the sources of music apart, which no task does", _separates),
    ("its three rows may be how a head is turned, which no task shows; use a model of its points, "
     "such as face_landmarker's", lambda first, made: len(first) == 4 and made == [(1, 3, 3)]),
)  # fmt: skip


def named_graph(path: Path, graph: Graph) -> str:
    """What a model is; empty if it is not one of these."""
    ends = [{name: graph.tensors[name].shape for name in names}
            for names in (graph.inputs, graph.outputs)]  # fmt: skip
    return next(_said(path, *ends), "")


def named_file(path: Path) -> str:
    """The same by the file, whose shapes may be open."""
    outline = outline_model(path)
    ends = [{slot.name: slot.shape or () for slot in slots}
            for slots in (outline.inputs, outline.outputs)]  # fmt: skip
    return next(_said(path, *ends), "")


_Dims = Mapping[str, _Shape]


def _said(path: Path, inputs: _Dims, outputs: _Dims) -> Iterator[str]:
    if path.name.partition(".")[0] in _MOONSHINE and any(path.parent.glob("uncached_decode*.onnx")):
        yield f"it is a part of Moonshine as sherpa-onnx exports it; {_OPTIMUM}"
    if {"input", "input_lengths", "scales"} <= {*inputs}:
        yield (
            f"it is a voice as Piper has it: put {voice_file(path).name}, which lists phonemes, "
            f"next to it, and give these: edgekit run {path.name} --input phonemes.txt"
        )
    made, first = [*outputs.values()], next(iter(inputs.values()), ())
    if "boxes" not in outputs and _finds_by_regions(first, made):  # torchvision's name them
        yield (
            "it is like Faster R-CNN or Mask R-CNN of ONNX' model zoo, whose sizes and pixels are "
            "not known here; use a detector of one stage, such as yolo11n.onnx"
        )
    if path.stem.startswith(IMPULSE) and len(first) == 2:
        yield (
            "it takes features of sound or motion as Edge Impulse computes them, of whose kind the "
            "file does not say; use a file of the raw data, or give the features as .npz"
        )
    if "input_ids" in inputs and made == [(1, 1)]:
        yield "it may say how well a text answers another, but a task takes one text"
    if rows := [name for name in outputs if "batchno_classid" in name or name == _PINTO_ROWS]:
        yield (
            f"'{rows[0]}' has boxes as in PINTO's model zoo, whose models take pixels in different "
            "ways, which this file does not say; use the authors' own file"
        )
    if not is_east(outputs):
        yield from (said for said, fits in _BY_SHAPES if fits(first, made))
    about = onnx_metadata(path) if format_of(path) == "onnx" else {}
    for known in _KNOWN:
        has_names = known.inputs <= {*inputs} and known.outputs <= {*outputs}
        has_kind = about.get("model_type", "").lower().startswith(known.kind)
        if has_names and has_kind and first[: len(known.shape)] == known.shape:
            yield known.said
