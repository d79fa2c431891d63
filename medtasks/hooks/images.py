"""Images of a document."""

from medtasks.prompts.images import images, no_images
