"""Metrics as pure functions over scored answers."""
