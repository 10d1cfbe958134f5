"""Compiles a model file to C for one core, with packed weights and golden vectors."""
