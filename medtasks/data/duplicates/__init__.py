"""The same and nearly the same pictures in a set and elsewhere."""
