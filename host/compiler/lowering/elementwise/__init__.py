"""Element-wise operators, reductions, normalization and resizing."""
