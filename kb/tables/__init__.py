"""Tables of methods per core, and what looks them up."""
