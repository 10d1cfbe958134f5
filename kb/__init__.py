"""Board profiles, measured tables, and the functions that read them."""
