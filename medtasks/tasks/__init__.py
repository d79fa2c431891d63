"""Tasks as data: the index, task files, documents, variants, and tasks of the user."""
