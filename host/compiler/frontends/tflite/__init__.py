"""TensorFlow Lite files → `Graph`."""
