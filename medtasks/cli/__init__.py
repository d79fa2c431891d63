"""The ``medtasks`` command."""
