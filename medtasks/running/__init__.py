"""Running the harness (``medtasks run``): checks before a run, recipes, repeats, and the process itself."""
