"""The models and inputs used by measurements, result tables and tests."""
