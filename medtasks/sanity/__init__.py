"""Sanity variants of image tasks: what a score is worth without the image, and whether the order of options decides."""
