"""A run of the harness: what guards it, what it leaves on disk, and what it was made with."""
