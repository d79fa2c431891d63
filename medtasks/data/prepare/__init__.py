"""From a published source to a prepared dataset: downloads, tables, and the one way rows become samples."""
