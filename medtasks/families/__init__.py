"""Task families: how the reply to a sample becomes a score, and the metrics that are declared over scores."""
