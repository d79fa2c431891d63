"""Checks of everything that a run needs, each result with its fix."""
