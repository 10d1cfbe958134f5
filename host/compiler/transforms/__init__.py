"""Graph → Graph: optimization passes, quantization, pruning, splitting."""
