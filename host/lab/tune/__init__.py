"""Measuring methods on boards, and the history of what was measured."""
