"""Tests, in the folders of what they test; `support` is what they share."""
