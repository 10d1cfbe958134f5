"""Files, paths and text: what every other package uses."""
