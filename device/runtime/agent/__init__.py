"""The agent packed into runtime.pyz: activates, runs and measures releases."""
