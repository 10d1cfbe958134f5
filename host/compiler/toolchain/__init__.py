"""The C cross compiler with its object cache, and the kernel library built by it."""
