"""Test helpers shared across folders: cases, graphs, file corruption, servers, C drivers."""
