"""Datasets: catalogue, preparation, and access to prepared ones."""
