"""Debian packages for other architectures: resolved, fetched and unpacked, never installed."""
