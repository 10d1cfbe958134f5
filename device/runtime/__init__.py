"""The board's Python runtime; standard library only, NumPy where a caller passes arrays."""
