"""Servers of models: where they are, what goes wrong there, and the one client that asks them."""
