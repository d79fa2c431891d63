"""Prompts that show slices of a volume."""

from medtasks.prompts.volumes import messages, prompt, volumes
