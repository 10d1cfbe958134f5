"""Pure functions Graph → Graph that know nothing of boards."""
