"""PyTorch networks: exported to ONNX by PyTorch itself, in a process of its own."""
