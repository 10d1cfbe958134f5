"""Costs of operators and models, in microseconds of the core that runs them."""
