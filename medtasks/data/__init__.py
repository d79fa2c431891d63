"""Datasets: what exists, preparing it, and where it lies."""
