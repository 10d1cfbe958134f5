"""The C cross compiler with its cache of objects, and the kernels library that it builds."""
