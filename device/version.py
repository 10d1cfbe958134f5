"""The kit's version: one place, readable on the board without the package's metadata."""

VERSION = "0.1.0"
