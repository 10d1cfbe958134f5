"""What methods cost on a core."""
