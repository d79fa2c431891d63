"""Base of all adapters."""
