"""Settings of prompts by name, from the ``prompts.yml`` of each benchmark, where the names are."""

from medtasks.tasks.prompt_settings import prompt_settings as __getattr__  # new ones each time
