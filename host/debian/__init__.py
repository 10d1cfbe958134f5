"""Packages of Debian for other architectures: resolved, fetched and unpacked, never installed."""
