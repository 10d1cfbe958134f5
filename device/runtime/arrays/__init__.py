"""Python bindings of the kernels library: dense, sparse and pruned matrix products, and the NNA."""
