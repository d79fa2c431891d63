"""Published benchmarks: one module or folder each, named by ``reader`` in the catalogue."""
