"""Recipes: how published models are run, one file per model; see :mod:`medtasks.running.recipes`."""
