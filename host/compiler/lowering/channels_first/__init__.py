"""Channels-first image layouts, used where they are faster."""
