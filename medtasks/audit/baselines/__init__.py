"""What replies that do not look at the image score, read by a task's own rules."""
