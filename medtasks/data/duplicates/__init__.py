"""The same and nearly the same images in a set and elsewhere."""
