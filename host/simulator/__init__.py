"""How long a program would take on a real core: QEMU executes it, a plugin of ours models the core.

`plugin/` is the C of the plugin: decoders of instruction sets, models of cores and of their memory.
What it is told and what it answers: docs/estimates.md.
"""
