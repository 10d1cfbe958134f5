"""Lowering of decision trees."""
