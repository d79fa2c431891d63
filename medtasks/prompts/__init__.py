"""Prompts: templates filled with a document's fields, the images at their places, solved examples before them."""
