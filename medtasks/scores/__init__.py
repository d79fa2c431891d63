"""From replies and runs to numbers."""
