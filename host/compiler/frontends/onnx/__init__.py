"""ONNX files → `Graph`."""
