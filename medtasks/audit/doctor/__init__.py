"""Whether everything a run needs is in place: one module per thing looked at, each finding with what mends it."""
