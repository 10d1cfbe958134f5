"""A model file becomes C for one core, compiled, with weights and golden vectors."""
