"""Golden vectors: reference inputs and outputs for the health check on the board."""
