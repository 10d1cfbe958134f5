"""Benchmarks against other engines and libraries, one process each, interleaved with ours."""
