"""The history of measured products and operators, including results from benchmarks."""
