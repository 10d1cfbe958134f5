"""Writes a `Graph` to an ONNX file."""
