"""The kernels library from Python: products of dense, sparse and pruned matrices, and the NNA."""
