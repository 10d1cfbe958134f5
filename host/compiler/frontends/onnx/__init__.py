"""ONNX files → `Graph`."""

EXTERNAL_DATA = "location"  # the key for the name of a file that has data of the model
