"""Pieces that read published checkpoints."""
