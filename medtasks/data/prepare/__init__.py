"""From a published source to a prepared dataset: downloads, archives, tables, rows."""
