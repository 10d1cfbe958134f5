"""The graph of a model, and the NumPy reference of each operator that defines what it computes."""
