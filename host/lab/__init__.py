"""The laboratory: benchmarks, tuning and their history. The product does not import it."""
