"""Extractors: from a raw reply to a value, or the reason why it has none."""
