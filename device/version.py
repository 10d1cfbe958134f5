"""The version of edgekit: one place, readable on the board without the package's metadata."""

VERSION = "0.1.0"
