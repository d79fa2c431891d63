"""Prompts about volumes: those of images, which show volumes, too."""

from medtasks.prompts.images import images as volumes
from medtasks.prompts.template import messages, prompt
