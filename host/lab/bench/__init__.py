"""Comparison with other engines and libraries, each in a process of its own, in turns with ours."""
