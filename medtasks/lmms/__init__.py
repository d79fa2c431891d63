"""All that leans on the inside of lmms-eval: finding tasks, running them, its samples and results files."""

AUTOLOAD_VARIABLE = "MEDTASKS_AUTOLOAD"
"""Environment variable that hides our tasks and models from the harness if it is 0."""
