"""`Graph` → TensorFlow Lite files."""
