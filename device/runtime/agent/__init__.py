"""The agent, which runtime.pyz ships: puts releases into service, runs and measures them."""
