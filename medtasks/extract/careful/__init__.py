"""Careful extractors, which we would defend."""
