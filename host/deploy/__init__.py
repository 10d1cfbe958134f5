"""A compiled model goes to a board and is used there."""
