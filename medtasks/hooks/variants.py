"""Hooks of variants: their names follow from tasks and data, so that none can be written here."""

from medtasks.tasks.documents import variant_hook as __getattr__
