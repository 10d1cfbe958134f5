"""Guesses what a file is that is not a model, and how to get a model from it."""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from edgekit.host.compiler.frontends.common.names import shown_name

_TORCH = (
    "a PyTorch file; name a function that loads its network: "
    "edgekit compile FILE.py:FUNCTION --input-shape x=1,3,224,224"
)
PROGRAM = "a program of torch.export; convert it: edgekit compile FILE.pt2 -o model.onnx"
SCRIPT = (
    "a program of TorchScript; convert it: "
    "edgekit compile FILE.pt --input-shape x=1,3,224,224 -o model.onnx"
)
_KERAS = (
    "a Keras model; convert it in Python: open('model.tflite', 'wb').write("
    "tf.lite.TFLiteConverter.from_keras_model(tf.keras.models.load_model(FILE)).convert())"
)
_SAVED_MODEL = (
    "a TensorFlow SavedModel; convert it in Python: open('model.tflite', 'wb').write("
    "tf.lite.TFLiteConverter.from_saved_model(FOLDER).convert())"
)
_CHECKPOINT = (
    "a TensorFlow checkpoint, weights without their network; load it into the network, "
    "tf.saved_model.save(NETWORK, FOLDER), then tf.lite.TFLiteConverter.from_saved_model(FOLDER)"
)
_PADDLE = (
    "a Paddle model; convert it: paddle2onnx --model_dir FOLDER --model_filename MODEL "
    "--params_filename FILE.pdiparams --save_file model.onnx"
)
_FROZEN = (
    "a TensorFlow graph; convert it: "
    "python -m tf2onnx.convert --graphdef FILE --inputs NAME:0 --outputs NAME:0 --output model.onnx"
)
_WEIGHTS = (
    "weights without their network; convert both: edgekit compile FOLDER -o model.onnx (.gguf for "
    "a language model), where FOLDER has config.json, too"
)
_PICKLED_WEIGHTS = (
    "weights as a pickle, which could run any code; save them as safetensors in Python: "
    "transformers.AutoModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
)
_PROGRAM_TEXT = (
    "a Python file; name the function in it that returns the network: "
    "edgekit compile FILE.py:FUNCTION --input-shape x=1,3,224,224"
)
_PICKLE = (
    "a pickled Python object; export a scikit-learn model with skl2onnx.to_onnx, a PyTorch one "
    "with torch.onnx.export"
)
_XGBOOST = "an XGBoost model; convert it in Python: onnxmltools.convert_xgboost"
_LIGHTGBM = "a LightGBM model; convert it in Python: onnxmltools.convert_lightgbm"
_CATBOOST = 'a CatBoost model; convert it in Python: model.save_model("model.onnx", format="onnx")'
_PICTURE = "a picture, which is an input: edgekit run MODEL --input FILE"
_SOUND = "a recording, which is an input: edgekit run MODEL --input FILE"
_ARRAY = "arrays, which are inputs: edgekit run MODEL --input FILE"
_ARCHIVE = "an archive; unpack it and name the model inside"
_CUT_ARCHIVE = "an archive that is cut or damaged; fetch it again"
_PAGE = "a web page; download the file itself"


def _of_another_engine(engine: str) -> str:
    return (
        f"a model for {engine}; export the network that it was made of as .onnx or .tflite "
        "(from PyTorch: edgekit compile FILE.py:FUNCTION -o model.onnx)"
    )


_PICKLED, _ZIP = b"\x80", b"PK\x03\x04"
_HDF = b"\x89HDF"
_ONNX = b"\x08"  # such files are named .pb and .pth, too
_STARTS: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG", _PICTURE),
    (b"\xff\xd8\xff", _PICTURE),
    (b"GIF8", _PICTURE),
    (b"RIFF", _SOUND),
    (b"\x93NUMPY", _ARRAY),
    (_HDF, _KERAS),
    (b"\x1f\x8b", _ARCHIVE),
    (b"7z\xbc\xaf", _ARCHIVE),
    (b"BZh", _ARCHIVE),
    (b"\xfd7zXZ", _ARCHIVE),
    (b"Rar!", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", _ARCHIVE),
    (b'{"base_code":', _PADDLE),
    (b'{"learner":', _XGBOOST),
    (b"tree\nversion=", _LIGHTGBM),
    (b"CBM1", _CATBOOST),
    (b"lmgg", _of_another_engine("whisper.cpp or an old llama.cpp")),
    (b"version https://git-lfs", "a pointer of Git LFS; fetch the file: git lfs pull"),
    (b"<!DOCTYPE", _PAGE),
    (b"<!doctype", _PAGE),
    (b"<html", _PAGE),
    (b"\x7fELF", "a library or a program; name the model it was made of"),
)
_ENDINGS = {
    **dict.fromkeys((".pt", ".pth", ".ptl", ".jit", ".torchscript", ".ckpt"), _TORCH),
    ".pt2": PROGRAM,
    ".h5": _KERAS, ".hdf5": _KERAS, ".keras": _KERAS, ".pb": _FROZEN, ".safetensors": _WEIGHTS,
    ".py": _PROGRAM_TEXT, ".pkl": _PICKLE, ".pickle": _PICKLE, ".joblib": _PICKLE, ".npz": _ARRAY,
    ".pdmodel": _PADDLE, ".pdiparams": _PADDLE, ".ubj": _XGBOOST, ".tar": _ARCHIVE,
    **{
        ending: _of_another_engine(engine)
        for engine, endings in (
            ("Ascend", ".om"), ("Core ML", ".mlmodel .mlpackage .mlmodelc"),
            ("Darknet", ".cfg .weights"), ("ExecuTorch", ".pte"), ("Hailo", ".hef"),
            ("IREE", ".vmfb"), ("Kendryte", ".kmodel"), ("MNN", ".mnn"), ("ncnn", ".param"),
            ("ONNX Runtime alone", ".ort"), ("OpenVINO", ".xml .blob"), ("RKNN", ".rknn"),
            ("Paddle Lite or VeriSilicon", ".nb"), ("SNPE", ".dlc"),
            ("Sophgo", ".bmodel .cvimodel"), ("Tengine", ".tmfile"),
            ("TensorRT", ".engine .plan .trt"), ("TNN", ".tnnmodel .tnnproto"),
        )
        for ending in endings.split()
    },
}  # fmt: skip
_CHECKPOINTS = re.compile(r".+\.(index|meta|data-[0-9]{5}-of-[0-9]{5})")
_NETWORKS_OF_BIN = (".param", ".xml")  # of ncnn, OpenVINO
# Files of these names say what a folder is.
_MODELS_OF_OTHERS = _ENDINGS.keys() - {".py", ".cfg", ".npz", ".pkl", ".tar", ".xml", ".plan"}
# How files of these names begin; others have no sign.
_SIGNS: dict[str, tuple[bytes, ...]] = {
    **dict.fromkeys((".pt", ".pth", ".ptl", ".jit", ".torchscript", ".ckpt"), (_ZIP, _PICKLED)),
    **dict.fromkeys((".pt2", ".keras"), (_ZIP,)),
    **dict.fromkeys((".h5", ".hdf5"), (_HDF,)),
    ".pb": (b"\x0a",),
    ".mlmodel": (b"\x08",),
}
_OF_PROGRAMS = ("models/model.json", "serialized_exported_program.json")
_MODELS = (".onnx", ".tflite", ".prototxt")
_WEIGHT_FILES = (".safetensors", "pytorch_model.bin")
_SAVED_MODEL_FILE, _PICKLED_FILE, _BUNDLE = "saved_model.pb", "pytorch_model.bin", ".ekb"
_START = 64


def foreign_format(path: Path) -> str | None:
    """What a file or folder is instead of a model, and what to do; None if that is not known."""
    try:
        if path.is_dir():
            return _of_folder(path)
        with path.open("rb") as file:
            start = file.read(_START)
        named = _by_name(path, start)
    except OSError:
        return None
    found = next((text for known, text in _STARTS if start.lstrip().startswith(known)), None)
    if found is not None:
        return found
    if start.startswith(_ZIP):
        return _of_archive(path, named)
    return named or (_PICKLE if start.startswith(_PICKLED) else None)


def is_safetensors(path: Path) -> bool:
    """Whether a file begins as weights of Hugging Face do. Raises OSError."""
    with path.open("rb") as file:
        start = file.read(9)
    length = int.from_bytes(start[:8], "little")
    return start.endswith(b"{") and len(start) == 9 and length <= path.stat().st_size


def _by_name(path: Path, start: bytes) -> str | None:
    """What the name of a file says, unless its bytes say otherwise."""
    ending = path.suffix.lower()
    if path.name == _SAVED_MODEL_FILE:
        return _SAVED_MODEL
    if path.name == _PICKLED_FILE and start.startswith((_ZIP, _PICKLED)):
        return _PICKLED_WEIGHTS
    if _CHECKPOINTS.fullmatch(path.name):
        return _CHECKPOINT
    if ending == ".bin":
        network = next((e for e in _NETWORKS_OF_BIN if path.with_suffix(e).is_file()), "")
        return f"weights of {_ENDINGS[network]}" if network else None
    if ending == ".safetensors":
        is_such = is_safetensors(path)
    else:
        is_such = start.startswith(_SIGNS.get(ending, (b"",)))
    text = _ENDINGS.get(ending)
    if is_such or text is None:
        return text
    if start.startswith(_ONNX):
        return None
    return f"a file that begins with {start[:8]!r}, as none named {ending} does; fetch it again"


def _of_folder(path: Path) -> str | None:
    names = sorted(p.name for p in path.iterdir())
    if _SAVED_MODEL_FILE in names:
        return _SAVED_MODEL
    if path.suffix.lower() in _ENDINGS:
        return _ENDINGS[path.suffix.lower()]
    if models := _naming(names, "a folder"):
        return models
    if "config.json" in names and any(name.endswith(_PICKLED_FILE) for name in names):
        return _PICKLED_WEIGHTS
    if any(name.endswith(_WEIGHT_FILES) for name in names):
        return _WEIGHTS
    if any(map(_CHECKPOINTS.fullmatch, names)):
        return _CHECKPOINT
    for name in names:
        ending = Path(name).suffix.lower()
        with_weights = ending == ".xml" and f"{Path(name).stem}.bin" in names  # OpenVINO
        if ending in _MODELS_OF_OTHERS or with_weights:
            return f"a folder with {shown_name(name)}, {_ENDINGS[ending]}"
    return None


def _of_archive(path: Path, named: str | None) -> str | None:
    """What is in an archive, or else what its name says; None for bundles, which are archives."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile):
        return named or (None if path.suffix == _BUNDLE else _CUT_ARCHIVE)
    if any("/code/" in name for name in names):
        return SCRIPT
    if any(name.endswith("/data.pkl") for name in names):
        return _TORCH
    if any(name.endswith(_OF_PROGRAMS) for name in names):
        return PROGRAM
    if "model.weights.h5" in names:
        return _KERAS
    if names and all(name.endswith(".npy") for name in names):
        return _ARRAY
    is_bundle = "manifest.json" in names or path.suffix == _BUNDLE
    return _naming(names, "an archive") or named or (None if is_bundle else _ARCHIVE)


def _naming(names: list[str], what: str) -> str | None:
    models = [name for name in names if name.endswith(_MODELS)]
    if not models:
        return None
    shown = ", ".join(map(shown_name, models[:3]))
    return f"{what} with {shown}; name the model{' after unpacking it' * (what != 'a folder')}"
