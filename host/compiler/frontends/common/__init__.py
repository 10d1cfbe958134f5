"""Code shared by the importers of all formats."""
