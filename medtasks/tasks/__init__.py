"""Writing task YAML: a user's own datasets, and parts of prepared ones."""
