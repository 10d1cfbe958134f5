"""Plan → C: the text of each subgraph, and of `run()` that calls them."""
