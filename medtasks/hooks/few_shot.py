"""Prompts after solved examples."""

from medtasks.prompts.few_shot import images, messages, prompt
