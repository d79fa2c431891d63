"""Servers of models: addresses, errors, the client, the on-disk cache and the journal."""
