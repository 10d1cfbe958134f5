"""Tables that were measured on each core: data files, and the functions that find and read them."""
