"""Files next to a model that say what it is for: labels, configurations, a tokenizer."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

OWN_LABELS = (
    "{0}.labels", "{0}.names", "{0}.txt", "{0}_labels.txt", "{0}-labels.txt", "{0}.labels.txt",
    "{0}_class_map.csv",
)  # fmt: skip
TAGS = "selected_tags.csv"  # of the taggers of pictures that SmilingWolf trains
# Names of files that say nothing of the model; they count if no other model is in the folder.
COMMON_LABELS = (
    "labels.txt", "label.txt", "labelmap.txt", "label_map.txt", "classes.txt", "class_names.txt",
    "labels.csv", "dict.txt", "coco.names", "obj.names", "imagenet_classes.txt",
    "yamnet_class_map.csv", TAGS,
)  # fmt: skip
CONFIG, PIXELS, POOLING = "config.json", "preprocessor_config.json", "1_Pooling/config.json"
DENSE = "2_Dense/config.json"  # a layer behind the pooling, which exporters leave out
TOKENIZER, VOCABULARY, TOKENIZER_CONFIG = "tokenizer.json", "vocab.txt", "tokenizer_config.json"
SPEECH_VOCABULARY, SPEECH_TOKENS = "vocab.json", "tokens.txt"
GENERATION = "generation_config.json"
ULTRALYTICS = "metadata.yaml"
SPEECH_BRAIN_FILE = "hyperparams.yaml"
PADDLE_FILES = ("infer_cfg.yml", "inference.yml")
PIPELINE = "pipeline.json"  # of MMDeploy
META = "meta.json"  # of deepghs' classifiers
_CONFIGS = (
    CONFIG, PIXELS, POOLING, TOKENIZER, VOCABULARY, TOKENIZER_CONFIG, SPEECH_VOCABULARY, GENERATION,
    DENSE, ULTRALYTICS, *PADDLE_FILES, PIPELINE, META, SPEECH_TOKENS, SPEECH_BRAIN_FILE,
)  # fmt: skip
WAKE_WORD_PARTS = ("melspectrogram", "embedding_model")  # of openWakeWord
_CHARACTERS = re.compile(r"(dict|keys|characters)\w*\.txt$|^charsets?\w*\.json$")
_PLATES = re.compile(r"(plates?|ocr)\w*\.ya?ml$")
_LABELS = re.compile(
    r"(.*[-_. ])?(labels?|label_?map|classes|class_?names|class_map)([-_. ].*)?\.(txt|csv|names)",
    re.I,
)
# As Optimum names the two parts of a model, and the second one for one more token.
_ENCODER, _DECODER, _NEXT = "encoder_model", "decoder_model", "decoder_with_past_model"
_MERGED = "decoder_model_merged"  # as it names both in one file
_MOST_BYTES = 64 << 20
_MOST_YAML, _DEEPEST_YAML, _MOST_REFERENCES = 1 << 20, 32, 16
_ONNX = "onnx"  # folder in which some exporters put the model alone


def config_folder(model: Path) -> Path:
    """The folder with the model's configuration."""
    return model.parent.parent if model.parent.name == _ONNX else model.parent


def character_files(model: Path) -> Iterator[Path]:
    """Files that may list the characters of a model that reads, one in each line: next to it, or in
    one of the two folders above, as packages with several such models have them."""
    own = (model.parent / name.format(model.stem) for name in OWN_LABELS)
    yield from (file for file in own if file.is_file())
    for folder in model.absolute().parents[:3]:
        with contextlib.suppress(OSError):
            yield from sorted(file for file in folder.iterdir() if _CHARACTERS.search(file.name))


def own_text_file(model: Path) -> Path:
    """The file that may list what is a model's alone, one in each line."""
    return model.with_suffix(".txt")


def plate_files(model: Path) -> list[Path]:
    """Files that may be the configuration of a reader of plates."""
    with contextlib.suppress(OSError):
        return sorted(file for file in model.parent.iterdir() if _PLATES.search(file.name))
    return []


def other_label_files(model: Path) -> list[Path]:
    """Files whose names say that they list labels, but of which model they do not say."""
    with contextlib.suppress(OSError):
        return sorted(file for file in model.parent.iterdir() if is_label_file(file.name))
    return []


def is_label_file(name: str) -> bool:
    """Whether a file is named as one that lists labels."""
    return _LABELS.fullmatch(name) is not None


def features_file(model: Path) -> Path:
    """The file that may say how a model's features of sound are computed."""
    return model.with_suffix(".toml")


def wake_word_files(model: Path) -> tuple[Path, ...]:
    """The models next to one of openWakeWord's that compute what it takes, in order."""
    files = (model.with_name(f"{name}{model.suffix}") for name in WAKE_WORD_PARTS)
    return tuple(file for file in files if file.is_file() and file != model)


def decoder_file(model: Path) -> Path | None:
    """The decoder next to an encoder, as Optimum exports them; None for other models."""
    return _beside_encoder(model, _DECODER)


def next_token_file(model: Path) -> Path | None:
    """The decoder for one more token, which has caches, next to an encoder."""
    return _beside_encoder(model, _NEXT)


def merged_file(model: Path) -> Path | None:
    """Both decoders in one file next to an encoder, unless they are there on their own."""
    return None if decoder_file(model) else _beside_encoder(model, _MERGED)


def _beside_encoder(model: Path, name: str) -> Path | None:
    if not model.name.startswith(_ENCODER):
        return None
    file = model.with_name(model.name.replace(_ENCODER, name, 1))
    return file if file.is_file() else None


def voice_file(model: Path) -> Path:
    """The file that may have the phonemes of a voice, as Piper names it."""
    return model.with_name(f"{model.name}.json")


def sidecar_files(model: Path) -> Iterator[Path]:
    """All such files that exist."""
    labels = (*(name.format(model.stem) for name in OWN_LABELS), *COMMON_LABELS)
    named = (model.parent / name for name in labels)
    for file in (
        *named,
        *other_label_files(model),
        *character_files(model),
        *plate_files(model),
        features_file(model),
        voice_file(model),
        *wake_word_files(model),
        *(config_folder(model) / name for name in _CONFIGS),
    ):
        if file.is_file() and file != model:
            yield file


def copy_configs(folder: Path, to: Path) -> None:
    """Copies configuration and tokenizer to where a model is made of those in `folder`."""
    for name in _CONFIGS:
        if (folder / name).is_file():
            (to / name).parent.mkdir(exist_ok=True)
            shutil.copyfile(folder / name, to / name)


def read_sidecar(file: Path, most_bytes: int = _MOST_BYTES) -> bytes | None:
    """Its content; None if there is none that can be read, or too much."""
    try:
        if not file.is_file() or file.stat().st_size > most_bytes:
            return None
        return file.read_bytes()
    except OSError:
        return None


def read_yaml_sidecar(file: Path) -> dict[str, Any]:
    """The mapping in a YAML file; empty for other files, and for tags, depths and references that
    no exporter of models writes."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = (read_sidecar(file, _MOST_YAML) or b"").decode("utf-8", "replace")
    try:
        plain = _is_plain(yaml.parse(text, loader))
        made = yaml.load(text, loader) if plain else None
    except (yaml.YAMLError, ValueError):
        return {}
    return made if isinstance(made, dict) else {}


def _is_plain(events: Iterator[Any]) -> bool:
    """Whether YAML has no tags, is not deep and refers to few places, which refer to no others, so
    that what it stands for is not much more than the text."""
    import yaml

    depth, references, named = 0, 0, 0  # `named`: the depth of a place that is referred to
    for event in events:
        refers = isinstance(event, yaml.AliasEvent)
        references += refers
        if (refers and named) or getattr(event, "tag", None):
            return False
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            named = named or (depth if event.anchor else 0)
        elif isinstance(event, yaml.CollectionEndEvent):
            named = 0 if depth == named else named
            depth -= 1
        if depth > _DEEPEST_YAML or references > _MOST_REFERENCES:
            return False
    return True
