"""The graph of a model, and the NumPy references that define its operators."""
