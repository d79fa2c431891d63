"""Whether two runs of the same tasks are the same, as good as each other, or different, and what may be the cause."""
