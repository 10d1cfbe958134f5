"""The Python runtime of a board; standard library only, NumPy where arrays come in."""
