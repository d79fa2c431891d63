"""Standard errors and intervals."""
