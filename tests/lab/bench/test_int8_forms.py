"""The 8-bit files of a network that `scripts/performance --allow int8` compares."""

from __future__ import annotations

import pytest

from edgekit.host.compiler.exporters import write_onnx
from edgekit.host.compiler.frontends import import_model
from edgekit.host.compiler.ir.types import DType
from edgekit.host.errors import InputError
from edgekit.host.lab.bench.int8_forms import int8_forms
from edgekit.host.lab.bench.peer_check import bound_of_int8
from tests.support.joined_graphs import csp_block


def test_a_network_has_an_8_bit_file_for_each_format(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    network = tmp_path / "csp.onnx"
    network.write_bytes(write_onnx(csp_block(DType.F32)))
    forms = int8_forms(network)
    assert list(forms) == [".onnx", ".tflite"]
    for path in forms.values():
        graph = import_model(path)
        assert any(t.is_quantized for t in graph.tensors.values())
        assert graph.inputs == import_model(network).inputs
    assert 0.02 <= bound_of_int8(network, forms[".onnx"], {}) <= 0.5
    before = {path: path.stat().st_mtime_ns for path in forms.values()}
    assert int8_forms(network) == forms
    assert before == {path: path.stat().st_mtime_ns for path in forms.values()}


def test_what_is_no_network_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("EDGEKIT_HOME", str(tmp_path))
    (tmp_path / "no.onnx").write_bytes(b"no network")
    with pytest.raises(InputError):
        int8_forms(tmp_path / "no.onnx")
