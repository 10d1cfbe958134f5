"""Models that are named, because they cannot be used for what they are."""

from __future__ import annotations

import numpy as np
import pytest

from edgekit.host.compiler.options import CompileOptions
from edgekit.host.compiler.tasks import import_for_task
from edgekit.host.errors import InputError
from tests.compiler.tasks.test_heads import prepared
from tests.support.detectors import built, detector
from tests.support.onnx_models import model, node, save, value

_CELLS = 16 * 16 + 8 * 8 + 4 * 4 + 2 * 2 + 1  # of 128 x 128 pixels


@pytest.mark.parametrize(
    ("size", "shapes", "said"),
    [
        (24, [(1, 2), (1, 4)], "MTCNN's three networks"),
        (48, [(1, 4), (1, 10), (1, 2)], "MTCNN's three networks"),
        (64, [(1, 2, 27, 27), (1, 4, 27, 27)], "MTCNN's three networks"),
        (64, [(1, 27, 27, 2), (1, 27, 27, 4)], "MTCNN's three networks"),
        (64, [(1, 27, 26, 2), (1, 27, 27, 4)], "its outputs are not known ones"),
        (128, [(1, 9 * _CELLS, 4), (1, 9 * _CELLS, 90)], "whose anchors the file does not state"),
        (128, [(1, 9 * _CELLS, 5), (1, 9 * _CELLS, 90)], "its outputs are not known ones"),
        (64, [(1, 32, 31, 2)], "its outputs are not known ones"),
        (64, [(1, 38, 8, 8), (1, 19, 8, 8)], "is like OpenPose"),
        (64, [(1, 65, 8, 8), (1, 256, 8, 8)], "finds points to compare pictures by"),
        (64, [(1, 3, 3)], "may be how a head is turned"),
        (64, [(1, 1, 16, 16), (1, 5, 16, 16)], "is like EAST"),
        (64, [(1, 16, 16, 5), (1, 16, 16, 1)], "is like EAST"),
        (64, [(1, 1, 1, 100)], "may give the style of a picture"),
        (64, [(1, 120), (1, 66), (1, 66)], "may be how a head is turned or where eyes look"),
    ],
)
def test_a_detector_is_named(tmp_path, size, shapes, said):
    outputs = {f"y{i}": np.zeros(shape, np.float32) for i, shape in enumerate(shapes)}
    made = prepared(detector(tmp_path, outputs, (size, size)))
    assert made.task is None and said in made.source
    assert "--output FILE writes the tensors" in made.source


@pytest.mark.parametrize(
    ("shapes", "said"),
    [
        ([(1, 3, 41), *[(1, 64)] * 4], "TEN VAD"),
        ([(1, 5, 400), *[(1, 128, 19, 1)] * 4], "FSMN-VAD"),
        ([(1, 2, 128, 2), (1, 1, 257)], "a part of DTLN"),
        ([(1, 5, 400), (1, 64)], "its inputs and outputs are not known ones"),
    ],
)
def test_a_listener_is_named(tmp_path, shapes, said):
    names = [f"x{i}" for i in range(len(shapes))]
    nodes = [node("Neg", [name], [f"y{name}"]) for name in names]
    inputs = [value(name, shape) for name, shape in zip(names, shapes, strict=True)]
    made = prepared(save(model(nodes, inputs, [f"y{n}" for n in names], opset=13), tmp_path))
    assert made.task is None and said in made.source
    assert ("if the input is features" in made.source) == said.startswith("its inputs")


@pytest.mark.parametrize("name", ["input_features", "input_values"])
def test_an_encoder_of_sound_needs_its_decoder(tmp_path, name):
    nodes = [node("Reshape", [name, "shape"], ["last_hidden_state"])]
    given = [value(name, [1, 80, 100] if name == "input_features" else [1, 8000])]
    constants = {"shape": np.array([1, 40, 200])}
    path = save(model(nodes, given, ["last_hidden_state"], constants, opset=13), tmp_path)
    said = "put its decoder, decoder_model.onnx, and the .json files of both next to it"
    assert said in prepared(path).source
    for task in ("transcribe", "keyword"):
        with pytest.raises(InputError, match=said):
            prepared(path, CompileOptions(task=task))


@pytest.mark.parametrize(
    ("inputs", "outputs", "kind", "said"),
    [
        ({"tokens": (1, 9), "style": (1, 8), "speed": (1,)}, ["audio"], "", "a voice of Kokoro"),
        ({"x": (1, 9, 80), "x_lens": (1,)}, ["encoder_out"], "zipformer2", "of a transducer"),
        ({"x": (1, 9, 80), "x_lens": (1,)}, ["y"], "zipformer2", "inputs and outputs are not"),
        ({"audio_signal": (1, 9, 80), "length": (1,)}, ["embs"], "", "WeSpeaker's or 3D"),
        ({"audio_signal": (1, 9, 80), "length": (1,)}, ["logprobs"], "", "its tokens.txt"),
        ({"speech": (1, 5, 400), "in_cache0": (1, 2)}, ["logits"], "", "it is like FSMN-VAD's"),
        ({"speech": (1, 9, 560), "speech_lengths": (1,)}, ["logits"], "", "it is Paraformer"),
        ({"input_1": (1, 512, 512, 4)}, ["conv2d"], "", "like MediaPipe's hair segmenter"),
        ({"input_1": (1, 144160)}, ["Identity"], "", "it is DNSMOS, whose three values"),
        ({"pixel_values": (1, 3, 8, 8), "input_ids": (1, 9)}, ["pred_boxes"], "", "a text names"),
        ({"pixel_values": (1, 3, 8, 8), "input_ids": (1, 9)}, ["image_embeds"], "", "it is CLIP"),
        ({"x": (1, 3, 64, 64)}, ["image_embeddings"], "", "encoder of Segment Anything"),
        ({"x": (1, 3, 64, 64)}, ["label_xyxy_score"], "", "as in PINTO's model zoo"),
        ({"mel": (1, 80, 9)}, ["n_layer_cross_k"], "", "as sherpa-onnx exports it"),
        ({"input_ids": (1, 1)}, ["logits"], "", "answers another"),
        ({"x": (1, 80, 2)}, ["y"], "", "may be MarbleNet"),
        ({"x": (1, 640)}, ["y"], "", "unusual sounds of machines"),
        ({"audio_signal": (1, 64, 9)}, ["logits"], "", "takes NeMo's MFCC"),
        ({"x": (1, 3, 64, 64)}, ["yaw_pitch_roll"], "", "may be how a head is turned"),
        ({"kpts0": (1, 9, 2), "kpts1": (1, 9, 2)}, ["y"], "", "the points of two pictures"),
        ({"x": (1, 3, 64, 64)}, ["tf_op_layer_ArgMax", "tf_op_layer_Max"], "", "LPRNet of TAO"),
    ],
)
def test_a_model_is_named_by_its_ends(tmp_path, inputs, outputs, kind, said):
    nodes = [node("Neg", [next(iter(inputs))], [outputs[0]])]
    nodes += [node("Neg", [outputs[0]], [name]) for name in outputs[1:]]
    nodes += [node("Neg", [name], [f"y{name}"]) for name in [*inputs][1:]]
    given = [value(name, shape) for name, shape in inputs.items()]
    made = model(nodes, given, [*outputs, *(f"y{name}" for name in [*inputs][1:])], opset=13)
    entry = made.metadata_props.add()
    entry.key, entry.value = "model_type", kind
    found = prepared(save(made, tmp_path))
    assert found.task is None and said in found.source
    assert "--output FILE writes" in found.source


def test_a_model_of_open_shapes_is_named_where_results_are_expected(tmp_path):
    nodes = [node("Neg", [name], [f"y{name}"]) for name in ("input", "input_lengths", "scales")]
    given = [value("input", [1, "n"]), value("input_lengths", [1]), value("scales", [3])]
    path = save(model(nodes, given, ["yinput"], opset=13), tmp_path)
    with pytest.raises(InputError, match=r"put m.onnx.json, which .*; for its tensors alone, m.on"):
        import_for_task(path, CompileOptions(task="guess"))
    with pytest.raises(InputError, match=r"^m.onnx: input input \[1,n\]: expected fixed shapes"):
        import_for_task(path, CompileOptions())
    (tmp_path / "uncached_decode.int8.onnx").touch()
    path = path.rename(tmp_path / "encode.int8.onnx")
    with pytest.raises(InputError, match=r"a part of Moonshine .*encoder_model.onnx with dec"):
        import_for_task(path, CompileOptions(task="guess"))


@pytest.mark.parametrize("joined", [False, True])
def test_a_map_of_features_is_not_taken_for_boxes(tmp_path, joined):
    """FastestDet's output has the size of an encoder's; how it is joined shows which it is."""
    parts = {name: np.full((1, count, 4, 6), 0.5, np.float32)
             for name, count in (("object", 1), ("box", 4), ("class", 11))}  # fmt: skip
    nodes = [node("Concat", [*parts], ["y"], axis=1)]
    if not joined:
        parts, nodes = {"whole": np.full((1, 16, 4, 6), 0.5, np.float32)}, []
        nodes = [node("Identity", ["whole"], ["y"])]
    made = prepared(built(tmp_path, parts, nodes, ["y"], (64, 96)))
    assert (made.task is not None) == joined
    assert joined or "'y' may be a map of features, or FastestDet's; --head fast" in made.source
