"""Tables of methods per core, and their lookup."""
