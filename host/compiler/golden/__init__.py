"""Golden vectors: the inputs and outputs that the health check on the board compares with."""
