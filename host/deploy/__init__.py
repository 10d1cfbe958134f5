"""Deploys compiled models to boards and runs them there."""
