"""Utilities for files, paths and text shared by all other packages."""
