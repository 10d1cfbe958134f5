"""Plan → C: one file per subgraph, plus `run()`, which calls them."""
