"""Pure functions Graph → Graph, independent of the board."""
