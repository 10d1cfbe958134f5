"""Recurrent layers and loops."""
