"""What operators and models cost: microseconds of the core that runs them."""
