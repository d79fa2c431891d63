"""Everything that touches the inside of lmms-eval: discovery, evaluation, hooks, models' failures, kept answers."""

AUTOLOAD_VARIABLE = "MEDTASKS_AUTOLOAD"
"""Environment variable that hides our tasks and models from the harness if it is 0."""
