"""Estimates a program's run time on a real core: QEMU executes it, and our plugin models the core.

`plugin/` has the plugin's C code: instruction decoders, and models of cores and memory. Its inputs
and outputs: docs/estimates.md.
"""
