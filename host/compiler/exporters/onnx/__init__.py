"""`Graph` → ONNX files."""
