"""The audit of a run: one file that a reviewer can open."""
